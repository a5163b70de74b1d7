"""`bench data`: what there is to train on, and whether its images can be read."""

import json
import shlex
import textwrap
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from harness.cli import options
from harness.cli.inputs import doing, warn
from harness.cli.output import ForceOption, Out, check_folder, check_out, deliver, echo, write_errors
from harness.config.experiment import DEFAULT_PRESET
from harness.utils.errors import BenchError
from harness.utils.files import shortened
from harness.utils.workspace import DEFAULT, Workspace

if TYPE_CHECKING:
    from harness.config.features import RegionConfig
    from harness.data.dataset import Dataset
    from harness.data.formats.prediction_formats import PredictionFormat
    from harness.data.formats.registry import Format

FEW_TO_TEST = 100
_SHOWN = 8
_WIDTH = 79
_EXAMPLES = 10

EXAMPLES = {
    "list": """
bench data list
bench data list --workspace /scratch/bench
""",
    "download": """
bench data download coco
bench data download coco --what annotations --to /data/coco
bench data download nocaps --to /data/coco
bench data download flickr8k
bench data download coco --mirror https://example.org/coco
""",
    "verify": r"""
bench data verify scenes
bench data verify flickr8k/
bench data verify annotations/dataset_coco.json --images coco/
bench data verify annotations/dataset_coco.json --images coco/ \
    --regions cocobu_att
bench data verify scenes --regions boxes --graphs scenes
bench data verify dataset_coco_nocaps.json --images pictures/
""",
    "convert": r"""
bench data convert captions_train2017.json captions_val2017.json \
    --instances instances_train2017.json \
    --instances instances_val2017.json --images coco/ \
    --split-by hash:90/5/5 --out dataset_coco2017.json
bench data convert photos/ --out photos/dataset.json
bench data convert captions.csv --images photos/ --split-by hash:80/10/10 \
    --out dataset_photos.json
bench data convert hub_folder/ --caption-column prompt \
    --out hub_folder/dataset.json
""",
    "formats": """
bench data formats
""",
    "nocaps": r"""
bench data nocaps dataset_coco.json nocaps_val_4500_captions.json \
    --out dataset_coco_nocaps.json
bench data nocaps dataset_coco.json nocaps_val_4500_captions.json \
    --domains server.json --out dataset_coco_nocaps.json
""",
    "features": r"""
bench data features scenes --regions boxes
bench data features dataset_coco.json --regions cocobu_att \
    --region-count fixed:36
bench data features dataset_coco.json --images coco/ \
    --regions trainval_36.tsv
bench data features dataset_coco.json --images coco/ --backbone resnet101
""",
}
_OWN_DATA = """\
FOLDER       your own: COCO, Flickr8k or Flickr30k in Karpathy's format.
             FOLDER/dataset*.json or .json.gz, and FOLDER/images/ (or the
             pictures beside it, also under the folders that "filepath" names).
             restval counts as train.
FILE         such an annotation file itself; --images DIR names the
             folder of the pictures, if it is not beside it.
             bench data convert makes one of COCO's captions, of a CSV,
             or of a folder with metadata.jsonl;
             bench data download fetches coco, flickr8k, flickr30k, nocaps."""


def list_data(workspace: options.WorkspaceOption = DEFAULT) -> None:
    """List what can follow --data."""
    from harness.data.scenes.dataset import CAPTIONS, SCENES, scenes_folder

    cache = Workspace(workspace).cache
    for name, config in SCENES.items():
        drawn = scenes_folder(cache, config).is_dir()
        echo(
            f"{name:<13}embedded: drawn objects in relations, with boxes; no download.\n"
            f"             train {config.train}, val {config.val}, test {config.test}, "
            f"nocaps 3 x {config.nocaps_per_domain} images, {CAPTIONS} captions each;\n"
            f"             {'drawn already' if drawn else 'drawn on first use, in seconds'}."
        )
    echo(_OWN_DATA)
    echo("\nNext: bench data verify FOLDER, then bench run --data FOLDER --backbone NAME")


def download(
    data: Annotated[str, typer.Argument(metavar="DATA", help="coco, flickr8k, flickr30k or nocaps.")],
    what: Annotated[
        str | None,
        typer.Option(help="annotations, images, or both with a comma.", show_default="both, annotations of Flickr"),
    ] = None,
    to: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Where to.", show_default="./DATA, of nocaps ./coco"),
    ] = None,
    mirror: Annotated[
        str | None, typer.Option(metavar="URL", help="A folder with the same files, in place of their own.")
    ] = None,
) -> None:
    """Fetch a data set: Karpathy's splits, COCO's or nocaps's pictures; what is there is not fetched again.

    COCO takes 20 GB, and 34 GB on the way. Flickr's pictures need a form, which the command names.
    """
    from harness.data.download import PARTS
    from harness.data.download import download as fetch_all
    from harness.data.sources import find_source
    from harness.utils.files import expanded
    from harness.utils.progress import Reporter

    source = find_source(data)
    names = what.split(",") if what is not None else PARTS if source.form is None else PARTS[:1]
    parts = [part.strip() for part in names]
    if unknown := [part for part in parts if part not in PARTS]:
        raise BenchError(f"--what {shortened(unknown[0])!a} is no part of a data set", f"choose of: {', '.join(PARTS)}")
    source = source if mirror is None else source.mirrored(mirror)
    folder = expanded(to or source.folder or data)
    check_folder(folder, "--to")
    with Reporter() as reporter:
        fetch_all(data, source, folder, parts, reporter)
    if source.form is not None:
        echo(f"pictures: fill in the form at {source.form}, and put them into {folder / 'images'}/")
    annotations = folder / source.annotations.file
    if data != "nocaps":
        _say_next(["--images", str(folder / "images")], annotations)
        return
    if not (folder / "dataset_coco.json").is_file():
        echo(f"first: bench data download coco --to {shlex.quote(str(folder))}")
    joined = folder / "dataset_coco_nocaps.json"
    words = ["nocaps", str(folder / "dataset_coco.json"), str(annotations), "--out", str(joined)]
    _say_next(["--images", str(folder / "images")], joined, words)


def _say_next(
    where: Sequence[str], annotations: Path, first: Sequence[str] | None = None, *, people: bool = True
) -> None:
    """Print what to type next of `bench data`, to verify the data unless `first` says what, and then to train.

    `people`: whether pictures have several captions, so that people can be scored against each other.
    """
    data = [str(annotations), *where]
    echo(f"next: bench data {shlex.join(first or ['verify', *data])}")
    models = "transformer_base,blind,human" if people else "transformer_base,blind,majority"
    echo(f"then: bench run --data {shlex.join(data)} --backbone resnet50 --models {models}")


def _describe_splits(splits: Iterable[str]) -> str:
    """The splits of some images, as `train 80, val 20`."""
    return ", ".join(f"{split} {count}" for split, count in Counter(splits).items())


def verify(
    data: options.DataArgument,
    images: options.ImagesOption = None,
    regions: Annotated[str | None, typer.Option(help="Check these regions too, as for bench run.")] = None,
    graphs: options.GraphsOption = None,
    workspace: options.WorkspaceOption = DEFAULT,
) -> None:
    """Decode every image and list those that cannot be used; also check --regions and --graphs.

    Exit code 0: all can be used; 1: some cannot, or have no box; 2: the data set cannot be opened.
    """
    from harness.config.features import graph_config, region_config
    from harness.data.opening import open_dataset
    from harness.data.regions.opening import needs_backbone
    from harness.data.verify import find_bad_images, has_pictures
    from harness.utils.progress import Reporter

    cache = Workspace(workspace).cache
    Workspace(workspace).create()
    with doing(f"Reading {data}"):
        dataset = open_dataset(data, cache_dir=cache, images=images, any_format=False)
    region_settings = region_config(regions)
    graph_settings = graph_config(graphs, region_settings)
    if region_settings is None or needs_backbone(region_settings.source) or has_pictures(dataset):
        with Reporter() as reporter:
            bad = find_bad_images(dataset, cache_dir=cache, reporter=reporter, reuse=False)
    else:  # files of region features do not need the images
        echo(f"no image is in {dataset.root} (--images DIR): only the regions are checked", err=True)
        bad = dict(dataset.faults)
    counts: dict[int, int] = {}
    without_box: list[int] = []
    if region_settings is not None:
        counts, without_box = _verify_regions(region_settings, dataset, bad)
    if graph_settings is not None:
        from harness.data.graph_source import verify_graphs  # imports torch

        unusable, lines = verify_graphs(graph_settings, dataset, counts.keys() - bad.keys(), counts.get)
        for image_id, reason in sorted(unusable.items()):
            bad[image_id] = reason.removeprefix(f"image {image_id}: ")
        for line in lines:
            echo(line)
    for warning in (*dataset.notes, *_doubts_about_captions(dataset)):
        echo(warning, err=True)
    _print_unusable(dataset, bad, without_box, regions)
    if bad or without_box:
        raise typer.Exit(1)
    from harness.benchmark.signature import data_field

    split_sizes = _describe_splits(sample.split for sample in dataset.samples)
    echo(f"all {len(dataset.samples)} images can be used ({split_sizes})")
    echo(f"in signatures: data:{data_field(dataset, ())}")


def _verify_regions(
    regions: "RegionConfig", dataset: "Dataset", bad: dict[int, str]
) -> tuple[dict[int, int], list[int]]:
    """Check the regions of all images but the `bad` ones, and add those without usable regions to `bad`.

    Gives the number of regions by image, and the images without a box, whose one region is the whole image.
    """
    from harness.data.regions.opening import open_source
    from harness.data.regions.regions import read_regions
    from harness.utils.progress import Reporter

    counts: dict[int, int] = {}
    without_box: list[int] = []
    with Reporter() as reporter:
        with reporter.step(f"Opening {regions.source}"):
            source = open_source(regions.source, dataset)
        with reporter.task("Checking regions", len(dataset.samples) - len(bad)) as task:
            for image_id, image_regions in read_regions(source, dataset, skip=set(bad)):
                task.advance()
                if isinstance(image_regions, str):
                    bad[image_id] = image_regions.removeprefix(f"image {image_id}: ")
                    continue
                counts[image_id] = image_regions.count
                if image_regions.whole:
                    without_box.append(image_id)
    return counts, without_box


def _print_unusable(dataset: "Dataset", bad: dict[int, str], without_box: Sequence[int], regions: str | None) -> None:
    """Print the images that cannot be used, with reasons, and those without a box."""
    splits = {sample.image_id: sample.split for sample in dataset.samples}
    for image_id, reason in bad.items():
        echo(f"image {image_id} ({splits[image_id]}): {reason}")
    if without_box:
        names = ", ".join(map(str, without_box[:_SHOWN]))
        if len(without_box) > _SHOWN:
            names += ", ..."
        described = _describe_splits(splits[image_id] for image_id in without_box)
        echo(f"{len(without_box)} of {len(splits)} images have no box in {regions} ({described}): {names}")
        echo("bench run uses the whole image as their one region; add their boxes if you have them", err=True)
    if bad:
        described = _describe_splits(splits[image_id] for image_id in bad)
        echo(f"{len(bad)} of {len(splits)} images cannot be used ({described})")
        echo("repair them, or run with --skip-bad-images, which records what was skipped", err=True)


def _doubts_about_captions(dataset: "Dataset") -> list[str]:
    """What is odd about the captions, which tokenizer they need, and how many bench run cuts."""
    from harness.config.load import load_preset
    from harness.data.formats.look import cut_references, odd_captions, unspaced
    from harness.data.vocabulary import tokenize

    captions = [caption for sample in dataset.samples for caption in sample.captions]
    doubts = [f"check the captions: {doubt}" for doubt in odd_captions(dict(enumerate(captions)), _EXAMPLES)]
    if (script := unspaced(captions, dataset.name)) is not None:
        return [*doubts, f"{script.sentence}: bench run, bench plan and bench tune take them with {script.options}"]
    trained = [caption for sample in dataset.splits.get("train", ()) for caption in sample.captions]
    preset = load_preset(DEFAULT_PRESET)
    if cut := cut_references(trained, [len(tokenize(caption)) for caption in trained], preset):
        doubts.append(f"bench run --preset {preset.name}: {cut}")
    return doubts


def convert(
    source: Annotated[
        list[Path],
        typer.Argument(
            metavar="SOURCE...",
            help="Captions in any form that bench data formats lists, or a folder with them; COCO's may be several.",
        ),
    ],
    out: Annotated[Path, Out(help="The annotation file to write.")],
    force: ForceOption = False,
    images: options.ImagesOption = None,
    instances: Annotated[
        list[Path] | None, typer.Option(help="COCO's instances_*.json of the same images, for their boxes.")
    ] = None,
    split_by: Annotated[
        str | None,
        typer.Option(
            help="source, or hash:TRAIN/VAL/TEST in per cent, by file name.  [default: source if it has splits, "
            "else hash:80/10/10]"
        ),
    ] = None,
    file_column: Annotated[str | None, typer.Option(help="Of a CSV: the column of the pictures' files.")] = None,
    caption_column: Annotated[
        str | None, typer.Option(help="The column, or key in metadata.jsonl, of the captions.")
    ] = None,
    skip_bad_images: options.SkipBadImagesOption = False,
    format_name: Annotated[
        str | None, typer.Option("--format", help="The format, if the content does not tell it: bench data formats.")
    ] = None,
) -> None:
    """Write data of one's own in Karpathy's format: every picture looked for, every caption checked, and split.

    Missing pictures, those that are given twice, and empty captions are named. Boxes become corners. bench data formats
    lists what is read.
    """
    from harness.data.convert import LEAST_VALIDATED, describe, read_source, source_files, working_rule
    from harness.data.convert import convert as convert_source
    from harness.data.formats.annotations import ReadOptions

    check_out(out, force=force, inputs=[*source_files(source), *(instances or ())])
    options_of_file = ReadOptions(file_column, caption_column)
    with doing(f"Reading {source[0]}"):
        annotations, title, folder = read_source(
            source, instances=instances or (), images=images, options=options_of_file, format_name=format_name
        )
    echo(describe(annotations, title), err=True)
    if annotations.write_pictures is not None:
        folder = images or out.absolute().parent / "images"
        with doing(f"Writing pictures to {folder}"), write_errors(folder, "--images"):
            written = annotations.write_pictures(folder)
        echo(f"{written:,} pictures written to {folder}", err=True)
    name = out.name.partition(".")[0].removeprefix("dataset").lstrip("_-") or folder.absolute().name
    with doing(f"Looking for {len(annotations.images):,} pictures"):
        content, notes = convert_source(annotations, folder, name=name, rule=split_by, leave_out=skip_bad_images)
    deliver(json.dumps(content), out)
    for left in content["left_out"]:
        warn(f"left out: {left}", f'{out} names it under "left_out"')
    for note in notes:
        echo(note, err=True)
    splits = Counter(image["split"] for image in content["images"])
    echo(f"{out}: {_describe_splits(sorted(splits.elements()))}; split by {content['split_by']}")
    files = ["/".join(filter(None, (image.get("filepath"), image["filename"]))) for image in content["images"]]
    runs = all(splits[split] for split in ("train", "val", "test")) and splits["val"] >= LEAST_VALIDATED
    if not runs:
        rule = working_rule(files)
        warn(
            f"bench run needs pictures in train, val and test, and at least {LEAST_VALIDATED} in val",
            f"--split-by {rule} splits all anew" if rule else "add pictures",
        )
    elif splits["test"] < FEW_TO_TEST:
        rule = working_rule(files, tested=splits["test"])
        more = f"--split-by {rule} tests on more of them; " if rule else ""
        hint = f"{more}after a bench run with --seeds 3, bench plan --detect 1 says how many a difference takes"
        warn(f"{splits['test']} images to test on: hardly any difference between models will show", hint)
    place = out.absolute().parent
    where = ["--images", str(folder)] if folder.absolute() != place or (place / "images").is_dir() else []
    several = all(len(image["sentences"]) > 1 for image in content["images"])
    if runs:
        _say_next(where, out, people=several)
    else:
        echo(f"next: bench data verify {shlex.join([str(out), *where])}")


def formats() -> None:
    """List the formats of annotations and of predictions: their names, what they are of, and an entry of each."""
    from harness.data.formats.prediction_formats import PREDICTION_FORMATS
    from harness.data.formats.registry import ANNOTATION_FORMATS

    echo("Annotations, for bench data convert and --references")
    for annotation_format in ANNOTATION_FORMATS:
        _print_format(annotation_format)
    echo("\nPredictions, for bench evaluate and --models captions:FILE")
    for prediction_format in PREDICTION_FORMATS:
        _print_format(prediction_format)
    echo("\nNext: bench data convert FILE --images DIR --out dataset.json")
    echo("  or: bench evaluate CAPTIONS --references FILE")


def _print_format(form: "Format | PredictionFormat") -> None:
    indent = " " * 18
    echo(f"  {form.name:<15} {form.title}")
    echo(textwrap.fill(form.example, width=_WIDTH, initial_indent=indent, subsequent_indent=indent))


def nocaps(
    annotations: Annotated[Path, typer.Argument(help="Karpathy's JSON of the images to train on.")],
    captions: Annotated[Path, typer.Argument(help="nocaps's validation captions, with a domain of each image.")],
    out: Annotated[Path, Out(help="The annotation file to write.")],
    force: ForceOption = False,
    folder: Annotated[str, typer.Option(help="Folder of nocaps's pictures, below that of --images.")] = "nocaps",
    domains: Annotated[
        Path | None, typer.Option(help="Domains to take instead, such as the server's: JSON of image and domain.")
    ] = None,
) -> None:
    """Write an annotation file that has nocaps's images too, to be scored by domain and never trained on."""
    from harness.data.nocaps import describe_domains, join_nocaps

    check_out(out, force=force, inputs=[annotations, captions, domains])
    content, added, raised = join_nocaps(annotations, captions, folder=folder, domains=domains)
    deliver(json.dumps(content), out)
    echo(f"{out}: nocaps {len(added.captions)}; image N of nocaps's own file is {raised} + N here")
    echo(describe_domains(Counter(added.domains.values())))
    echo(f"Next: bench data verify {out} --images DIR, where DIR/{folder} holds nocaps's pictures")


def features(
    data: options.DataArgument,
    images: options.ImagesOption = None,
    regions: Annotated[str | None, typer.Option(help="As for bench run; grid cells without it.")] = None,
    region_count: options.RegionCountOption = "all",
    backbone: Annotated[str, typer.Option(help="'filterbank', 'scenesnet' or a timm model.")] = "filterbank",
    backbone_weights: options.BackboneWeightsOption = None,
    backbone_option: options.BackboneSettingOption = None,
    image_size: options.ImageSizeOption = None,
    normalisation: options.NormalisationOption = None,
    device: options.DeviceOption = "auto",
    skip_bad_images: options.SkipBadImagesOption = False,
    workspace: options.WorkspaceOption = DEFAULT,
) -> None:
    """Convert region features, or extract grid cells, into the cache that `bench run` with the same options uses.

    Region files are streamed, whatever their size. Exit code 2 names every image whose regions cannot be used.
    """
    with doing("Loading torch"):
        from harness.benchmark.plan import choose_device
        from harness.config.features import feature_config, region_config
        from harness.data.backbones.opening import open_backbone
        from harness.data.opening import open_dataset
        from harness.data.prepare_features import prepare_features, warn_of_preprocessing
    from harness.utils.progress import Reporter

    region_settings = region_config(regions, region_count)
    settings = tuple(backbone_option or ())
    config = feature_config(backbone, backbone_weights, settings, image_size, normalisation, region_settings)
    target = Workspace(workspace)
    torch_device = choose_device(device)
    started = time.monotonic()
    target.create()
    with Reporter() as reporter:
        dataset = open_dataset(data, cache_dir=target.cache, images=images, reporter=reporter)
        warn_of_preprocessing(config, ["grid"], reporter)
        prepared = prepare_features(
            dataset,
            config,
            open_backbone(config),
            sees=["grid"],
            cache_dir=target.cache,
            may_skip=skip_bad_images,
            device=torch_device,
            reporter=reporter,
        )
        ready = len(dataset.samples) - len(prepared.skipped)
        seconds = time.monotonic() - started
        reporter.note(f"{prepared.described}: {ready} images ready in {target.cache}, {seconds:.1f} s")


COMMANDS = {
    "list": list_data,
    "download": download,
    "verify": verify,
    "convert": convert,
    "formats": formats,
    "nocaps": nocaps,
    "features": features,
}
