"""`bench evaluate`: score captions of any system with the benchmark's evaluator."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Annotated, Any

import typer

from harness.cli.compare import parse_limits
from harness.cli.evaluate_baseline import baseline_content, changes_since, print_changes, write_summary
from harness.cli.evaluate_print import print_more, print_scores, print_systems
from harness.cli.inputs import doing
from harness.cli.options import (
    BertOption,
    ClipOption,
    InstancesOption,
    LanguageOption,
    LimitOption,
    TokenizerOption,
    refuse_typed,
    typed_words,
)
from harness.cli.output import ForceOption, Out, OutputFolder, check_folder, check_out, deliver, echo
from harness.metrics.signature import DomainFrequencies, EvaluationSettings
from harness.utils.errors import BenchError

if TYPE_CHECKING:
    from harness.config.evaluation import TokenizerName
    from harness.data.formats.match import MatchOptions
    from harness.data.formats.references import References
    from harness.metrics.caption_scores import MatchedCaptions
    from harness.metrics.evaluator import Report
    from harness.metrics.more.measure import MoreSettings
    from harness.metrics.more.measured import Measured
    from results.comparison.limits import LimitedChange

EXAMPLES = r"""
bench evaluate ours.json theirs.json --references captions_val2014.json \
    --report report
bench evaluate results.json --references captions_val2014.json \
    --allow-subset
bench evaluate results.json --references dataset_coco.json.gz --split test \
    --out scores.json
bench evaluate ours.json theirs.json --references captions_val2014.json \
    --out scores
bench evaluate ours.json --references captions_val2014.json \
    --baseline scores.json --max-drop CIDEr-D=0.5
bench evaluate results.json --references captions_val2014.json --limit 100
bench evaluate nocaps.json --references nocaps_val_4500_captions.json \
    --domain-df subset
bench evaluate ours.json --references coco_cn.json --tokenizer zh
bench evaluate results.json --references captions_val2014.json --more \
    --instances instances_val2014.json
bench evaluate results.json --references captions_val2014.json \
    --scores CLIPScore=clipscore.json
"""

ScoresOption = Annotated[
    list[str] | None,
    typer.Option(
        "--scores",
        metavar="NAME=FILE",
        help="A metric computed by another program: JSON with a number for each caption.",
    ),
]
NoMeteorOption = Annotated[bool, typer.Option("--no-meteor", help="Leave METEOR out: no Java, and faster.")]
_NOT_WITH_REPORT = (
    "out",
    "force",
    "scores",
    "split",
    "reference_field",
    "reference_format",
    "domain_df",
    "domains",
    "sets",
    "no_meteor",
    "id_field",
    "by_position",
    "caption_field",
    "format_name",
    "baseline",
    "max_drop",
)
_ONE_FILE_ONLY = ("scores", "sets", "baseline", "max_drop")
_CONDITIONS = (
    "references",
    "split",
    "reference_field",
    "reference_format",
    "domain_df",
    "domains",
    "limit",
    "allow_subset",
    "tokenizer",
    "language",
    "no_meteor",
)
"""Options that scores depend on, besides those of the captions."""
_BYTES_PER_SYSTEM = 2**30
"""Memory that scoring one system takes, at most."""


def evaluate(
    context: typer.Context,
    predictions: Annotated[
        list[Path], typer.Argument(help="A file of captions for each system; docs/evaluation.md has the forms.")
    ],
    references: Annotated[
        Path, typer.Option(help="Human captions, in any form that bench data formats lists, gzipped or not.")
    ],
    scores: ScoresOption = None,
    cards: Annotated[Path | None, typer.Option(help="YAML that describes each system, by file name.")] = None,
    out: Annotated[
        Path | None, Out(help="Write scores, also per image, as JSON; of several files into this folder, one for each.")
    ] = None,
    force: ForceOption = False,
    baseline: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Compare with scores that --out wrote before.")
    ] = None,
    max_drop: Annotated[
        list[str] | None,
        typer.Option(
            metavar="METRIC=POINTS",
            help="Exit code 1 if a score is more than this below that of --baseline; may be repeated.",
        ),
    ] = None,
    report: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Write an HTML report with every caption, and the results as a workspace, into this folder.",
        ),
    ] = None,
    split: Annotated[str | None, typer.Option(help="Which split of a Karpathy file.", show_default="test")] = None,
    domain_df: Annotated[
        DomainFrequencies,
        typer.Option(
            help="Document frequencies for a domain's CIDEr-D: of all images, as nocaps's server has it, or its own."
        ),
    ] = "all",
    domains: Annotated[
        Path | None, typer.Option(help="JSON that gives each image its domain, in place of the references' own.")
    ] = None,
    allow_subset: Annotated[
        bool,
        typer.Option(
            "--allow-subset",
            help="Score only the images that every file has a caption of. Such a score compares with no other.",
        ),
    ] = False,
    limit: LimitOption = None,
    tokenizer: TokenizerOption = "python",
    language: LanguageOption = None,
    more: Annotated[
        bool,
        typer.Option("--more", help="Also measure diversity, and what --clip, --bert, --instances and --sets are for."),
    ] = False,
    clip: ClipOption = None,
    bert: BertOption = None,
    instances: InstancesOption = None,
    images: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Folder of the images, for --clip and for the report's gallery."),
    ] = None,
    id_field: Annotated[
        str | None, typer.Option(metavar="NAME", help="The field that names the images, where several could.")
    ] = None,
    by_position: Annotated[
        bool,
        typer.Option("--by-position", help="Take captions that name no image in the order of the references."),
    ] = False,
    caption_field: Annotated[
        str | None, typer.Option(metavar="NAME", help="The field that holds the captions, where several could.")
    ] = None,
    format_name: Annotated[
        str | None,
        typer.Option("--format", metavar="NAME", help="The format of the captions, if the content does not tell it."),
    ] = None,
    reference_field: Annotated[
        str | None, typer.Option(metavar="NAME", help="The field that holds the references, where several could.")
    ] = None,
    reference_format: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The format of the references, if the content does not tell it."),
    ] = None,
    sets: Annotated[Path | None, typer.Option(help="Several captions of each image, for self-CIDEr.")] = None,
    no_meteor: NoMeteorOption = False,
) -> None:
    """Score captions: BLEU, METEOR, ROUGE-L, CIDEr-D, and SPICE where its models are installed.

    Several files are compared with the first, over the same images. --baseline compares one file with earlier scores.

    Scores equal those of pycocoevalcap 1.2. Exit code 0: every metric that the language has was computed (SPICE where
    its models are installed); 1: some were not, or a score fell further than --max-drop; 2: wrong input.
    """
    with doing("Loading the evaluator"):
        from harness.data.formats.match import MatchOptions
        from harness.metrics.more.measure import MoreSettings
        from harness.metrics.spice import find_spice

    more = more or any((clip, bert, instances, sets))
    more_settings = MoreSettings.parse(clip, bert, instances or ())
    if report is not None or cards is not None:
        from harness.cli.evaluate_systems import compare_systems

        refuse_typed(
            context,
            _NOT_WITH_REPORT,
            "cannot be combined with --report or --cards",
            "leave --report and --cards out; a card may have id_field, by_position, caption_field, format and scores",
        )
        if report is not None:
            check_folder(report, "--report", inputs=[*predictions, references, cards])
        evaluation = {"tokenizer": tokenizer, "language": language}
        compare_systems(
            predictions,
            references,
            images,
            report,
            cards,
            more_settings if more else None,
            evaluation,
            allow_subset=allow_subset,
            limit=limit,
        )
        return

    # Check the options before anything is read.
    if images is not None and not more:
        raise BenchError("--images is only used by --clip and --report", "add one of them, or leave --images out")
    if len(predictions) > 1:
        refuse_typed(context, _ONE_FILE_ONLY, "needs exactly one file of captions", "give one file, or leave it out")
    other_metrics = named_files(scores)
    limits = parse_limits(max_drop or (), other_metrics)
    if limits and baseline is None:
        raise BenchError("--max-drop needs --baseline", "add --baseline scores.json")
    names = name_systems(predictions)
    inputs = [*predictions, references, domains, sets, baseline, *other_metrics.values(), *(instances or ())]
    outs = _check_outs(out, names, force=force, inputs=inputs)

    # Read and score.
    baseline_scores = None
    if baseline is not None:
        from harness.metrics.stored_scores import read_scores

        baseline_scores = read_scores(baseline)
    with doing(f"Reading {references}"):
        human = _read_references(references, split, reference_field, reference_format, domains, domain_df)
    settings = EvaluationSettings(
        tokenizer=tokenizer,
        domain_df=domain_df,
        meteor=not no_meteor,
        spice=find_spice() is not None,
        language=language,
    )
    options = MatchOptions(id_field, by_position, caption_field, format_name)
    systems = {
        name: _read_captions(file, human, other_metrics, options, tokenizer, allow_subset=allow_subset, limit=limit)
        for name, file in zip(names, predictions, strict=True)
    }
    if len(systems) > 1:
        systems = _over_common_images(systems)
    reports = dict(zip(names, _score(systems, settings), strict=True))
    changes: list[LimitedChange] = []
    if baseline is not None and baseline_scores is not None:
        conditions = typed_words(context, _CONDITIONS)
        changes = changes_since(
            baseline_scores,
            reports[names[0]],
            human.labels,
            limits,
            baseline=baseline,
            command=f"bench evaluate ACCEPTED {conditions} --out {shlex.quote(str(baseline))} --force",
        )

    # Print and write.
    contents = {name: report.to_json(human.labels) for name, report in reports.items()}
    if len(systems) > 1:
        for name, system_changes in print_systems(reports, human).items():
            contents[name] |= {"baseline": names[0], "changes": system_changes}
    else:
        print_scores(reports[names[0]], human, systems[names[0]].matched.matched_by)
    is_missing = any(_lacks_scores(report, settings) for report in reports.values())
    if more:
        for name, system in systems.items():
            caption_sets = None
            if sets is not None:
                set_options = MatchOptions(id_field, False, caption_field)
                caption_sets = _read_sets(sets, human, system.matched.references, set_options)
            measured = _measure_more(
                more_settings, references, human, system.matched, caption_sets, settings, images=images
            )
            if len(systems) > 1:
                echo(name)
            print_more(measured)
            contents[name] |= _more_json(measured, human)
            if more_settings.missing_reasons(measured.values, *(["self-CIDEr"] if sets else ())):
                is_missing = True
    if baseline is not None:
        print_changes(changes, baseline)
        write_summary(changes, predictions[0], baseline)
        contents[names[0]] |= baseline_content(changes, baseline)
    for name, path in outs.items():
        write_json(contents[name], path)
    if out is not None and len(names) > 1:
        folder = OutputFolder(out)
        for path in outs.values():
            folder.record(path.name)
    if is_missing or any(change.is_exceeded for change in changes):
        raise typer.Exit(1)


def _lacks_scores(report: Report, settings: EvaluationSettings) -> bool:
    """Whether a metric of the settings was not computed."""
    return any(report.quantity(metric).value is None for metric in ("BLEU-4", *settings.java_metrics))


def _check_outs(
    out: Path | None, names: Sequence[str], *, force: bool, inputs: Sequence[Path | None]
) -> dict[str, Path]:
    """The file for the scores of each system, none without `--out`; BenchError if one cannot be written."""
    if out is None:
        return {}
    if len(names) == 1:
        check_out(out, force=force, inputs=inputs)
        return {names[0]: out}
    if out.suffix == ".json" and not out.is_dir():
        raise BenchError(f"--out {out} is one file, for {len(names)} systems", f"name a folder: --out {out.stem}")
    folder = OutputFolder(out, force=force, inputs=inputs)
    return {name: folder.check(f"{name}.json") for name in names}


def name_systems(files: Sequence[Path]) -> list[str]:
    """A name for each file: its name up to the first dot, with its folder where two would be equal."""
    stems = [file.name.partition(".")[0] for file in files]
    names = [
        stem if stems.count(stem) == 1 else f"{file.parent.name}_{stem}"
        for file, stem in zip(files, stems, strict=True)
    ]
    if repeated := [name for name in names if names.count(name) > 1]:
        raise BenchError(f"two files would both be called {repeated[0]}", "give each file once, or rename one of them")
    return names


def _read_references(
    path: Path,
    split: str | None,
    caption_field: str | None,
    format_name: str | None,
    domains: Path | None,
    domain_df: DomainFrequencies,
) -> References:
    from harness.data.formats.references import read_references
    from harness.data.nocaps import read_domains

    references = read_references(path, split=split, caption_field=caption_field, format_name=format_name)
    if domains is not None:
        references = replace(references, domains=read_domains(domains, references))
    if domain_df != "all" and not references.domains:
        raise BenchError(f"--domain-df {domain_df}: no image has a domain", "add --domains FILE, or leave it out")
    return references


@dataclass(frozen=True, slots=True)
class SystemCaptions:
    """A file's captions with the references of their images, and scores of `--scores` by metric and image."""

    matched: MatchedCaptions
    other_scores: dict[str, dict[int, float]]


def _read_captions(
    file: Path,
    references: References,
    other_metrics: Mapping[str, Path],
    options: MatchOptions,
    tokenizer: TokenizerName,
    *,
    allow_subset: bool,
    limit: int | None,
) -> SystemCaptions:
    from harness.data.formats.predictions import read_predictions, scores_by_image
    from harness.metrics.caption_scores import match_captions

    names = {"files": references.files, "labels": references.labels}
    with doing(f"Reading {file}"):
        predictions = read_predictions(
            file, references.captions, **names, other_files=references.other_files, options=options
        )
        try:
            matched = match_captions(
                predictions, references, allow_subset=allow_subset, limit=limit, tokenizer=tokenizer
            )
        except BenchError as error:
            raise BenchError(f"{file}: {error}", error.hint) from error
        other_scores: dict[str, dict[int, float]] = {}
        by_position = predictions.by_position
        for name, path in other_metrics.items():
            other_scores[name], positions_used = scores_by_image(path, name, matched.captions, **names, options=options)
            by_position = by_position or positions_used
    if options.by_position and not by_position:
        raise BenchError("--by-position is not needed: every file names its images", "leave it out")
    return SystemCaptions(matched, other_scores)


def _over_common_images(systems: Mapping[str, SystemCaptions]) -> dict[str, SystemCaptions]:
    """The captions of the images that all files have, so that they can be compared; BenchError if there are none."""
    common = set.intersection(*(set(system.matched.captions) for system in systems.values()))
    if not common:
        raise BenchError("no image has a caption in every file", "score each file alone")
    return {
        name: system
        if len(system.matched.captions) == len(common)
        else replace(system, matched=system.matched.only(common, _other_files_lack(name, systems, common)))
        for name, system in systems.items()
    }


def _other_files_lack(name: str, systems: Mapping[str, SystemCaptions], common: Collection[int]) -> str:
    """The note that images of a system are left out, and because of which other files."""
    images = systems[name].matched.captions.keys()
    lacking = [other for other, system in systems.items() if not images <= system.matched.captions.keys()]
    count = len(images) - len(common)
    return f"left out: {count} image{'' if count == 1 else 's'} without a caption in {' and '.join(lacking)}"


def _score(systems: Mapping[str, SystemCaptions], settings: EvaluationSettings) -> list[Report]:
    """Score every system, several at a time, each with its own METEOR process."""
    from concurrent.futures import ThreadPoolExecutor

    from harness.metrics.caption_scores import score_captions
    from harness.metrics.evaluator import Evaluator
    from harness.utils.progress import Reporter

    jobs = min(len(systems), _max_jobs())
    with (
        Reporter() as reporter,
        reporter.task("scoring", len(systems)) as task,
        Evaluator(settings=settings, meteors=jobs) as evaluator,
    ):
        for name, system in systems.items():
            owner = f"{name}: " if len(systems) > 1 else ""
            for note in system.matched.notes:
                reporter.note(f"{owner}{note}", style="yellow")
            for doubt in system.matched.doubts:
                reporter.note(f"{owner}check the captions: {doubt}", style="yellow")

        def score(system: SystemCaptions) -> Report:
            report = score_captions(system.matched, evaluator, system.other_scores)
            task.advance()
            return report

        if len(systems) == 1:
            return [score(system) for system in systems.values()]
        task.reach(0)  # the first systems take a while
        evaluator.expect(caption for system in systems.values() for caption in system.matched.captions.values())
        with ThreadPoolExecutor(jobs) as pool:
            return list(pool.map(score, systems.values()))


def _max_jobs() -> int:
    """How many systems can be scored at a time, by the cores and the free memory."""
    from harness.config.execution import usable_cores
    from harness.utils.memory import free_host_memory

    jobs = usable_cores()
    free = free_host_memory()
    if free is not None:
        jobs = min(jobs, free // _BYTES_PER_SYSTEM)
    return max(1, jobs)


def _read_sets(
    path: Path, references: References, scored: Mapping[int, Sequence[str]], options: MatchOptions
) -> dict[int, list[str]]:
    """The captions of `--sets`, several for each scored image."""
    from harness.data.formats.predictions import read_caption_sets

    names = {"files": references.files, "labels": references.labels}
    sets = read_caption_sets(path, references.captions, **names, options=options)
    if absent := [image_id for image_id in scored if image_id not in sets]:
        raise BenchError(
            f"--sets {path} has no captions of {len(absent)} images ({absent[0]} first)",
            "give captions of every image that is scored",
        )
    return sets


def _measure_more(
    settings: MoreSettings,
    file: Path,
    human: References,
    matched: MatchedCaptions,
    caption_sets: Mapping[int, list[str]] | None,
    evaluation: EvaluationSettings,
    *,
    images: Path | None,
) -> Measured:
    """Compute the further metrics of a system's captions; `file` has the objects of the embedded data's images."""
    from harness.metrics.chair import objects_of_scenes
    from harness.metrics.more.measure import MoreEvaluator, ScoredCaptions

    references = matched.references
    system = ScoredCaptions(
        {image_id: matched.captions[image_id] for image_id in references},
        references,
        {} if caption_sets is None else {image_id: caption_sets[image_id] for image_id in references},
        {} if images is None else _image_files(images, human, references),
    )
    objects = None if settings.instances else objects_of_scenes(file)
    return MoreEvaluator(settings, objects, words=evaluation).measure(system)


def _more_json(measured: Measured, references: References) -> dict[str, Any]:
    values = measured.values
    return {
        "more": {name: score.value for name, score in values.items()},
        "more_reasons": {name: score.reason for name, score in values.items() if score.value is None},
        "more_intervals": {name: [score.low, score.high] for name, score in values.items() if score.low is not None},
        "more_per_image": {
            name: {references.labels.get(image, str(image)): value for image, value in by_image.items()}
            for name, by_image in measured.per_image.items()
        },
    }


def write_json(content: Mapping[str, Any], out: Path | None) -> None:
    """Write a JSON file of `--out`, if it was given."""
    from harness.utils.hashing import canonical_json

    if out is not None:
        deliver(canonical_json(content) + "\n", out)
        echo(f"written to {out}")


def named_files(scores: Sequence[str] | None) -> dict[str, Path]:
    """The files of `--scores NAME=FILE`, by the names of their metrics."""
    from results.metrics import base_name, metric_names

    files: dict[str, Path] = {}
    for option in scores or ():
        name, _, file = option.partition("=")
        if not (name and file) or name in files or base_name(name) in metric_names():
            raise BenchError(f"--scores {option} is not NAME=FILE with a new name", "write --scores Polos=polos.json")
        files[name] = Path(file)
    return files


def _image_files(folder: Path, human: References, images: Mapping[int, object]) -> dict[int, Path]:
    """The image files that the references name, below a folder."""
    from harness.data.karpathy import PicturePaths
    from harness.utils.files import RefusedPath

    if not folder.is_dir():
        raise BenchError(f"--images {folder} is not a folder", "name the folder of the images")
    paths = PicturePaths(folder.resolve())
    paths_by_image = {image_id: PurePosixPath(human.files.get(image_id, "")) for image_id in images}
    try:
        return {
            image_id: paths.root / paths.claim(file.name, str(file.parent), image_id)
            for image_id, file in paths_by_image.items()
        }
    except RefusedPath as error:
        raise BenchError(f"--images {folder}: {error}", "give references that name a file for each image") from error
