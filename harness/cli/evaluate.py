"""`bench evaluate`: score any system's captions with the evaluator of the benchmark itself."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from itertools import pairwise
from math import isnan
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Annotated, Any

import typer

from harness.cli.inputs import doing
from harness.cli.options import BertOption, ClipOption, InstancesOption, refuse_typed
from harness.cli.output import Out, OutFile, OutFolder, check_out, deliver, echo, format_table
from harness.metrics.signature import DomainFrequencies, EvaluationSettings, TokenizerName, evaluation_signature
from harness.utils.errors import BenchError

if TYPE_CHECKING:
    from harness.data.formats.references import References
    from harness.metrics.evaluator import Report
    from harness.metrics.more.measure import MoreSettings
    from harness.metrics.more.measured import Measured

EXAMPLES = """
bench evaluate ours.json theirs.json --references captions_val2014.json --report report
bench evaluate results.json --references captions_val2014.json --allow-subset
bench evaluate results.json --references dataset_coco.json.gz --split test --out scores.json
bench evaluate nocaps.json --references nocaps_val_4500_captions.json --domain-df subset
bench evaluate results.json --references captions_val2014.json --more --instances instances_val2014.json
bench evaluate results.json --references captions_val2014.json --scores CLIPScore=clipscore.json
bench evaluate --judgements flickr8k.json --scores Polos=polos.json
"""


def evaluate(
    context: typer.Context,
    predictions: Annotated[
        list[Path] | None, typer.Argument(help="A file of captions for each system; docs/evaluation.md has the forms.")
    ] = None,
    references: Annotated[
        Path | None, typer.Option(help="What people wrote: COCO's, Karpathy's or nocaps's JSON, gzipped or not.")
    ] = None,
    judgements: Annotated[
        Path | None,
        typer.Option(help="How people rated captions; the command says how far each metric agrees with them."),
    ] = None,
    scores: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=FILE", help="A metric that was computed elsewhere: JSON with a number for each caption."
        ),
    ] = None,
    cards: Annotated[
        Path | None, typer.Option(help="YAML that says what is known of each system, by file name.")
    ] = None,
    out: Annotated[
        Path | None, Out(help="Write scores, also per image, as JSON."), OutFile(rb'\{"(agreement|bootstrap)":')
    ] = None,
    report: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Write an HTML report with every caption, and the results as a workspace, into this folder.",
        ),
        OutFolder(whole=True),
    ] = None,
    split: Annotated[str | None, typer.Option(help="Which split of a Karpathy file.  [default: test]")] = None,
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
            help="Score the images that have captions where others have none. Such a score compares with no other.",
        ),
    ] = False,
    tokenizer: Annotated[
        TokenizerName,
        typer.Option(help="The tokenizer: in Python, or its Java original, which gives the same for captions."),
    ] = "python",
    more: Annotated[
        bool,
        typer.Option(
            "--more", help="Also measure diversity, objects that are not there, and scores by CLIP and BERT models."
        ),
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
    reference_field: Annotated[
        str | None, typer.Option(metavar="NAME", help="The field that holds the references, where several could.")
    ] = None,
    sets: Annotated[
        Path | None, typer.Option(help="With --more: several captions of each image, for self-CIDEr.")
    ] = None,
    no_meteor: Annotated[bool, typer.Option("--no-meteor", help="Leave METEOR out: no Java, and faster.")] = False,
) -> None:
    """Score captions: BLEU, METEOR, ROUGE-L, CIDEr-D, and SPICE where its models are installed.

    Several files are compared with each other, over the same images. With --judgements, the command says how far each
    metric agrees with people.

    Scores equal those of pycocoevalcap 1.2. Exit code 0: every metric was computed; 1: some were not; 2: wrong input.
    """
    with doing("Loading the evaluator"):
        from harness.metrics.evaluator import Evaluator, Report, with_intervals
        from harness.metrics.more.measure import MoreSettings
    from harness.data.formats.look import odd_captions, refuse_unspaced, without_shared_words
    from harness.data.formats.match import MatchOptions
    from harness.data.formats.predictions import (
        POSITIONS,
        check_predictions,
        read_caption_sets,
        read_predictions,
        scores_by_image,
    )
    from harness.data.formats.references import read_references
    from harness.data.nocaps import read_domains
    from harness.metrics.spice import find_spice
    from harness.utils.progress import Reporter

    others = _metrics_of(scores)
    if judgements is not None:
        reads = {"judgements", "references", "scores", "out", "tokenizer", "no_meteor", "by_position"}
        unused = [name for name in context.params if name not in reads]
        refuse_typed(context, unused, "--judgements has captions of its own", "leave it out")
        settings = EvaluationSettings(tokenizer=tokenizer, meteor=not no_meteor)
        _judge(judgements, references, others, out, settings, by_position=by_position)
        return
    if not predictions or references is None:
        raise BenchError("captions and their references are needed", "bench evaluate FILE --references FILE")
    as_rows = len(predictions) > 1 or report is not None or cards is not None
    if not more:
        of_rows = {"images"} if as_rows else set()  # a gallery shows them
        of_more = [name for name in ("clip", "bert", "instances", "images", "sets") if name not in of_rows]
        refuse_typed(context, of_more, "read by --more alone", "add --more, or leave it out")
    more_settings = MoreSettings.parse(clip, bert, instances or ())
    if as_rows:
        why = "of one file; of several, say it on the card of each: --cards"
        fields = ("id_field", "by_position", "caption_field")
        refuse_typed(context, fields, why, "write id_field: NAME, by_position: true or caption_field: NAME there")
        other = ("out", "split", "reference_field", "domain_df", "domains", "tokenizer", "sets", "no_meteor")
        why = "works with one file and no --report; otherwise all images are scored, as by bench run"
        refuse_typed(context, other, why, "leave it out, or give one file")
        if others:
            raise BenchError("--scores: for one file", "name them on the card of each file: scores: {NAME: FILE}")
        settled = more_settings if more else None
        _compare(predictions, references, images, report, cards, settled, allow_subset=allow_subset)
        return
    [captions_file] = predictions
    with doing(f"Reading {references}"):
        wanted = read_references(references, split=split, caption_field=reference_field)
    if domains is not None:
        wanted = replace(wanted, domains=read_domains(domains, wanted))
    if domain_df != "all" and not wanted.domains:
        raise BenchError(f"--domain-df {domain_df}: no image has a domain", "add --domains FILE, or leave it out")
    options = MatchOptions(id_field, by_position, caption_field)
    names = {"files": wanted.files, "labels": wanted.labels}
    read = read_predictions(captions_file, wanted.captions, **names, options=options)
    try:
        chosen, captions, notes = check_predictions(read, wanted, allow_subset=allow_subset)
    except BenchError as error:
        raise BenchError(f"{captions_file}: {error}", error.hint) from error
    refuse_unspaced((text for texts in chosen.values() for text in texts), references.name)
    settings = EvaluationSettings(
        tokenizer=tokenizer, domain_df=domain_df, meteor=not no_meteor, spice=find_spice() is not None
    )
    further = {name: scores_by_image(file, name, captions, **names, options=options) for name, file in others.items()}
    if by_position and not (read.by_position or any(used for _, used in further.values())):
        raise BenchError("--by-position: every file names its images", "leave it out")
    with Reporter() as reporter, Evaluator(settings=settings) as evaluator, reporter.task("scoring", 1):
        positions = [POSITIONS] if read.by_position else []
        for note in (*wanted.notes, *positions, *(f"left out: {note}" for note in notes)):
            reporter.note(note, style="yellow")
        for doubt in filter(None, (*odd_captions(captions), without_shared_words(captions, chosen))):
            reporter.note(f"perhaps no captions: {doubt}", style="yellow")
        evaluation = evaluator.evaluate(
            chosen,
            captions,
            {image_id: domain for image_id, domain in wanted.domains.items() if image_id in chosen},
            others={name: values for name, (values, _) in further.items()},
        )
        count, groups = len(wanted.captions), evaluation.domains
        signature = evaluation_signature(
            settings, chosen, name=wanted.name, of=count, domains=groups, by_position=read.by_position
        )
        scored = Report(signature, with_intervals(evaluation))
    _print(scored, wanted)
    further_metrics = None
    if more:
        match = MatchOptions(id_field, caption_field=caption_field)
        several = None
        if sets is not None:
            several = read_caption_sets(sets, wanted.captions, **names, options=match)
            if absent := [image_id for image_id in chosen if image_id not in several]:
                raise BenchError(
                    f"--sets {sets} has no captions of {len(absent)} images ({absent[0]} first)",
                    "give captions of every image that is scored",
                )
        further_metrics = _measure(more_settings, references, wanted, chosen, captions, several, images=images)
        _print_more(further_metrics)
    content = scored.to_json(wanted.labels)
    if further_metrics is not None:
        values = further_metrics.values
        content |= {
            "more": {name: score.value for name, score in values.items()},
            "more_reasons": {name: score.reason for name, score in values.items() if score.value is None},
            "more_intervals": {
                name: [score.low, score.high] for name, score in values.items() if score.low is not None
            },
            "more_per_image": {
                name: {wanted.labels.get(image, str(image)): value for image, value in of.items()}
                for name, of in further_metrics.per_image.items()
            },
        }
    _write_json(content, out)
    lacking = further_metrics is not None and more_settings.lacking(
        further_metrics.values, *(["self-CIDEr"] if sets else ())
    )
    needed = ("BLEU-4", *([] if no_meteor else ["METEOR"]), *(["SPICE"] if settings.spice else []))
    if lacking or any(scored.quantity(metric).value is None for metric in needed):
        raise typer.Exit(1)


def _write_json(content: Mapping[str, Any], out: Path | None) -> None:
    from harness.utils.hashing import canonical_json

    if out is not None:
        deliver(canonical_json(content) + "\n", out)
        echo(f"written to {out}")


def _metrics_of(options: Sequence[str] | None) -> dict[str, Path]:
    from harness.metrics.contract import METRICS

    found = {}
    for option in options or ():
        name, _, file = option.partition("=")
        if not (name and file) or name in found or name.partition(" (")[0] in METRICS:
            raise BenchError(f"--scores {option} names no further metric", "write --scores Polos=polos.json")
        found[name] = Path(file)
    return found


def _judge(
    file: Path,
    references: Path | None,
    others: Mapping[str, Path],
    out: Path | None,
    settings: EvaluationSettings,
    *,
    by_position: bool,
) -> None:
    """Print and write how far each metric agrees with people; exit code 1 where one could not be computed."""
    from harness.metrics.contract import OVERALL
    from harness.metrics.evaluator import Evaluator
    from harness.metrics.judgements import agreements, read_judgements, scores_in_order
    from results.statistics.agreement import differences

    judged = read_judgements(file, references)
    numbers = {name: scores_in_order(path, name, judged, by_position=by_position) for name, path in others.items()}
    texts = dict(enumerate(judged.references)), dict(enumerate(judged.captions))
    with Evaluator(settings=settings) as evaluator:
        scored = evaluator.evaluate(*texts, others=numbers)
    found = agreements(judged, scored.per_image)
    if not found:
        raise BenchError(f"nothing was scored: {scored.scores[OVERALL]['CIDEr-D'].reason}", "use --tokenizer python")
    names = list(next(iter(found.values())))
    gaps = {name: differences({metric: of[name] for metric, of in found.items()}) for name in names}
    reasons = {metric: each.reason for metric, each in scored.scores[OVERALL].items() if each.value is None}
    echo(f"{len(judged.captions):,} captions of {len(set(judged.images)):,} images, {file.name}")
    told = {
        metric: {name: None if isnan(each.value) else [each.value, each.low, each.high] for name, each in of.items()}
        for metric, of in found.items()
    }
    cells = [
        ["-" if each is None else "{:.1f} [{:.1f}, {:.1f}]".format(*(100 * x for x in each)) for each in of.values()]
        for of in told.values()
    ]
    rows = [(metric, *row) for metric, row in zip(told, cells, strict=True)]
    echo(format_table(["metric", *(f"{name} [95 %]" for name in names)], rows, "table"), nl=False)
    known = [metric for metric in found if not isnan(found[metric][names[0]].value)]
    if not known:
        echo("-: no two captions that are compared have different ratings")
    order = sorted(known, key=lambda metric: -found[metric][names[0]].value)
    both = gaps[names[0]]
    for above, below in (pair for pair in pairwise(order) if pair in both or pair[::-1] in both):
        gap, p = both[above, below] if (above, below) in both else both[below, above]
        echo(f"{above} {100 * abs(gap):.1f} above {below}, p {p:.2g}")
    echo(f"times 100, intervals over images; p of {names[0]}, corrected for all pairs of metrics")
    for metric, reason in reasons.items():
        echo(f"{metric}: {reason}")
    content = {
        "agreement": told,
        "differences": {name: [[*pair, *of[pair]] for pair in of] for name, of in gaps.items()},
        "n": len(judged.captions),
        "images": len(set(judged.images)),
        "ratings": len(judged.ratings),
        "reasons": reasons,
    }
    _write_json(content, out)
    if "CIDEr-D" in reasons or (settings.meteor and "METEOR" in reasons):
        raise typer.Exit(1)


def _compare(
    predictions: Sequence[Path],
    references: Path,
    images: Path | None,
    report: Path | None,
    cards: Path | None,
    more: MoreSettings | None,
    *,
    allow_subset: bool,
) -> None:
    """Score files of captions as rows, print who is better than whom, and write a report that is a workspace, too."""
    from tempfile import TemporaryDirectory

    with doing("Loading torch"):
        from harness.benchmark.benchmark import run_benchmark
        from harness.benchmark.plan import Request
    from harness.config.load import load_preset
    from harness.config.model_patterns import CAPTIONS
    from harness.utils.progress import Reporter
    from harness.utils.workspace import Workspace
    from reports.html.report import write_report
    from reports.text.terminal import print_leaderboard
    from results.store.store import Store

    check_out(report, "--report", folder=True)
    results = None if report is None else Path(Workspace(report).database)
    if results is not None:
        _refuse_other_runs(results)
    with TemporaryDirectory() as folder, Reporter() as reporter:
        place = Workspace(Path(folder))
        asked = Request(
            models=tuple(f"{CAPTIONS}{file}" for file in predictions),
            data=str(references),
            preset=load_preset("quick"),
            workspace=place,
            images=images,
            more=more,
            cards=cards,
            allow_subset=allow_subset,
        )
        ended, lacking = run_benchmark(asked, reporter)
        with Store(place.database) as store:
            print_leaderboard(store, reporter.console)
            if report is not None:
                reporter.note(f"report: {write_report(store, report).absolute().as_uri()}")
        if results is not None:
            _copy_database(Path(place.database), results)
            reporter.note(f"results: {results}; --workspace {report} names them to bench compare and bench export")
        if "failed" in ended.values() or lacking:
            raise typer.Exit(1)


def _refuse_other_runs(database: Path) -> None:
    """BenchError where results that are to be replaced hold more than captions of files, which are scored anew."""
    from results.runs.reading import read_runs
    from results.store.store import Store

    if not database.exists():
        return
    with Store(str(database), read_only=True) as store, store.reading() as connection:
        others = [run.key for run in read_runs(connection) if run.kind != "captions"]
    if others:
        raise BenchError(
            f"--report {database.parent}: its {database.name} holds runs that are not files of captions ({others[0]})",
            "name another folder: --report FOLDER",
        )


def _copy_database(source: Path, target: Path) -> None:
    """Copy a database of SQLite; one that is there is replaced in one transaction."""
    try:
        with closing(sqlite3.connect(source)) as original, closing(sqlite3.connect(target)) as copy:
            original.backup(copy)
    except sqlite3.Error as error:
        raise BenchError(f"{target} cannot be written: {error}", "name another folder: --report FOLDER") from error


def _print(report: Report, references: References) -> None:
    """Scores times 100, as papers show them."""
    from harness.data.nocaps import describe_domains
    from harness.metrics.contract import OVERALL
    from reports.tables.numbers import bounds, percent
    from results.statistics.significance import RESAMPLES, SEED

    domains, overall = report.evaluation.domains, report.evaluation.scores[OVERALL]

    def cell(metric: str, domain: str = OVERALL) -> str:
        value = report.quantity(metric, domain).value
        return "-" if value is None else f"{100 * value:.2f}"

    rows = []
    for metric in dict.fromkeys([*overall, *(name for domain in domains for name in report.evaluation.scores[domain])]):
        own = ["", ""]  # of domains alone
        if metric in overall:
            found = report.quantity(metric)
            own = [cell(metric), bounds(found.low, found.high, percent)]
        rows.append([metric, *own, *(cell(metric, domain) for domain in domains)])
    echo(f"{len(report.evaluation.ids)} images of {references.name}")
    header = ["metric", "score", "95 % interval", *(f"{domain} ({len(ids)})" for domain, ids in domains.items())]
    echo(format_table(header, rows, "table"), nl=False)
    for metric in overall:
        if (quantity := report.quantity(metric)).value is None:
            echo(f"{metric}: {quantity.reason or ''}")
    if domains:
        echo(f"domains: {describe_domains({domain: len(members) for domain, members in domains.items()})}")
    echo(f"scores x100; interval over images, {RESAMPLES} resamples, seed {SEED}")
    echo(report.signature)


def _measure(
    settings: MoreSettings,
    file: Path,
    wanted: References,
    references: Mapping[int, Sequence[str]],
    captions: Mapping[int, str],
    several: Mapping[int, list[str]] | None,
    *,
    images: Path | None,
) -> Measured:
    """Every further metric of the captions that are scored; the embedded data set's `file` tells what images show."""
    from harness.metrics.chair import objects_of_scenes
    from harness.metrics.more.measure import MoreEvaluator, ScoredCaptions

    system = ScoredCaptions(
        {image_id: captions[image_id] for image_id in references},
        references,
        {} if several is None else {image_id: several[image_id] for image_id in references},
        {} if images is None else _files(images, wanted, references),
    )
    objects = None if settings.instances else objects_of_scenes(file)
    return MoreEvaluator(settings, objects).measure(system)


def _print_more(found: Measured) -> None:
    """A line a metric: its value with the interval, and which direction is better; then what it measures, or lacks."""
    from reports.tables.numbers import bounds
    from results.runs.more_metrics import BETTER, MORE_METRICS, base_name, depends_on, more_order

    rows, notes = [], []
    for name in (order := more_order(found.values)):
        quantity, metric = found.values[name], MORE_METRICS[base_name(name)]
        show = "{:.4g}".format if not metric.share else lambda share: f"{100 * share:.2f}"
        value = "-" if quantity.value is None else show(quantity.value)
        rows.append([base_name(name), BETTER[metric.better], value, bounds(quantity.low, quantity.high, show)])
        notes.append(f"{name}: {quantity.reason}" if quantity.reason else f"{base_name(name)}: {metric.meaning}")
    echo(format_table(["metric", "better", "value", "95 % interval"], rows, "table", texts=2))
    for model in dict.fromkeys(filter(None, map(depends_on, order))):
        notes.append(f"{', '.join(base_name(name) for name in order if depends_on(name) == model)} by {model}")
    echo("\n".join([*notes, "fractions x100, words and vocabulary as counted"]))


def _files(folder: Path, wanted: References, images: Mapping[int, object]) -> dict[int, Path]:
    """The files of images below a folder, those that the references name."""
    from harness.data.karpathy import PicturePaths, RefusedPath

    if not folder.is_dir():
        raise BenchError(f"--images {folder} is no folder", "name the folder of the images")
    paths = PicturePaths(folder.resolve())
    named = {image_id: PurePosixPath(wanted.files.get(image_id, "")) for image_id in images}
    try:
        return {
            image_id: paths.root / paths.claim(file.name, str(file.parent), image_id)
            for image_id, file in named.items()
        }
    except RefusedPath as error:
        raise BenchError(f"--images {folder}: {error}", "give references that name a file for each image") from error
