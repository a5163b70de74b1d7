"""Open the source of regions that `--regions` names."""

from pathlib import Path

from harness.config.features import RegionSourceName
from harness.data.dataset import Dataset
from harness.data.regions import folder, hdf5
from harness.data.regions.box_files import CocoBoxes, DatasetBoxes, Windows
from harness.data.regions.folder import RegionFolder
from harness.data.regions.hdf5 import RegionHdf5
from harness.data.regions.regions import RegionSource
from harness.data.regions.tsv import RegionTsv
from harness.utils.errors import BenchError
from harness.utils.files import require_file

_FORMS = (
    "boxes (the data set's own), windows:4, a COCO JSON of boxes, a folder NAME_att with NAME_box beside it, "
    "a bottom-up .tsv or a folder of them, or an .h5 file"
)


def needs_backbone(source: Path | RegionSourceName) -> bool:
    """Whether the source has only boxes, so that a backbone has to give the features."""
    return not isinstance(source, Path) or source.suffix == ".json"


def open_source(source: Path | RegionSourceName, dataset: Dataset) -> RegionSource:
    """A source of regions: boxes, windows:N, or a file or folder, which may lack its `_att`; BenchError if unknown."""
    if not isinstance(source, Path):
        return DatasetBoxes(dataset) if source == "boxes" else Windows(dataset, int(source.partition(":")[2]))
    if source.is_file():
        if source.suffix == ".json":
            return CocoBoxes(source, dataset)
        if source.suffix in hdf5.SUFFIXES:
            return RegionHdf5(source)
        if _is_tsv(source):
            return RegionTsv(source.name, [source])
        raise BenchError(f"--regions {source}: unknown file format", f"give {_FORMS}")
    check_exists(source)
    if not source.is_dir():
        return RegionFolder(_named(source))
    entries = sorted(source.iterdir())
    if tables := [entry for entry in entries if _is_tsv(entry) and entry.is_file()]:
        return RegionTsv(source.name, tables)
    inner = [entry for entry in entries if entry.name.endswith("_att") and entry.is_dir()]
    if len(inner) == 1 and not any(entry.suffix in folder.SUFFIXES for entry in entries):
        return RegionFolder(inner[0])
    if len(inner) > 1:
        raise BenchError(
            f"--regions {source}: several folders of features, {', '.join(entry.name for entry in inner)}",
            f"name one of them: --regions {inner[0]}",
        )
    return RegionFolder(source)


def check_exists(source: Path) -> None:
    """BenchError where there is no such file or folder, with or without its `_att`."""
    if source.is_file() or source.is_dir() or _named(source).is_dir():
        return
    if source.exists():
        require_file(source, "--regions", f"give {_FORMS}")
    raise BenchError(f"--regions {source} does not exist", f"give {_FORMS}")


def _named(source: Path) -> Path:
    return source.with_name(f"{source.name}_att")


def _is_tsv(path: Path) -> bool:
    """Whether it is a TSV, or a part of a split one: `NAME.tsv.0`."""
    return ".tsv" in path.suffixes[-2:]
