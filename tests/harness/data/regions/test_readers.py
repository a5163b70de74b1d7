"""What users hold is read as it was written, and what cannot be read is named."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.data.dataset import Dataset, Sample
from harness.data.regions import opening
from harness.data.regions.hdf5 import RegionHdf5
from harness.data.regions.opening import RegionFolder, RegionTsv, open_source
from harness.data.regions.regions import RawRegions
from harness.utils.errors import BenchError
from tests.harness.data.regions.conftest import sound_regions, tsv_line, write_folder

EMPTY = Dataset("none", Path("/"), (), "")
IMAGES = Dataset(
    "numbered", Path("/"), tuple(Sample(number, f"photo_{number}.jpg", "test", ()) for number in range(1, 9)), ""
)
numbers = st.floats(allow_nan=True, allow_infinity=True, width=32)


def rows(count: int, width: int) -> st.SearchStrategy[np.ndarray[Any, Any]]:
    return st.lists(numbers, min_size=count * width, max_size=count * width).map(
        lambda values: np.array(values, dtype=np.float32).reshape(count, width)
    )


def told(found: RawRegions | str) -> RawRegions:
    assert not isinstance(found, str), found
    return found


@settings(max_examples=40)
@given(
    images=st.dictionaries(
        st.integers(0, 10**9),
        st.integers(1, 4).flatmap(lambda count: st.tuples(rows(count, 3), rows(count, 4))),
        max_size=4,
    )
)
def test_a_tsv_gives_back_what_was_written(
    images: dict[int, tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("tsv") / "x.tsv"
    path.write_bytes(b"".join(tsv_line(image_id, *arrays) for image_id, arrays in images.items()))
    found = {image_id: told(raw) for image_id, raw in RegionTsv("x", [path]).read(list(images))}
    assert set(found) == set(images)
    for image_id, (features, boxes) in images.items():
        np.testing.assert_array_equal(found[image_id].features, features)
        np.testing.assert_array_equal(found[image_id].boxes, boxes)
        assert found[image_id].size == (40, 30)


def test_several_tsv_files_are_one_source(tmp_path: Path) -> None:
    (tmp_path / "trainval").mkdir()
    written = {image_id: sound_regions(image_id, image_id) for image_id in (3, 1, 2)}
    lines = [tsv_line(image_id, *arrays) for image_id, arrays in written.items()]
    (tmp_path / "trainval" / "a.tsv.0").write_bytes(lines[0] + b"\n" + lines[1].replace(b"\n", b"\r\n"))
    (tmp_path / "trainval" / "a.tsv.1").write_bytes(lines[1] + lines[2].rstrip(b"\n"))
    found = list(open_source(tmp_path / "trainval", EMPTY).read((1, 2)))
    assert [image_id for image_id, _ in found] == [1, 2]
    np.testing.assert_array_equal(told(found[1][1]).features, written[2][0])


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        (b"7\t40\t30\t2\tAAAA\n", "5 columns instead of 6"),
        (b"7\t40\t0\t1\tAAAAAAAAAAAAAAAAAAAAAA==\tAAAAAA==\n", "40 x 0 pixels"),
        (b"7\t40\t30\tmany\tAAAA\tAAAA\n", "b'many' as num_boxes"),
        (b"7\t40\t30\t0\t\t\n", "has 0 regions"),
        (b"7\t40\t30\t2\tAAAAAAAAAAAAAAAAAAAAAA==\tAAAAAA==\n", "1 boxes instead of 2"),
        (b"7\t40\t30\t1\tAAAAAAAAAAAAAAAAAAAAAA==\tAAAA\n", "3 bytes, which is not an array"),
        (b"7\t40\t30\t1\tAAA*AAAAAAAAAAAAAAAAAA==\tAAAAAA==\n", "boxes that are not base64"),
    ],
)
def test_a_bad_line_names_its_image(tmp_path: Path, line: bytes, complaint: str) -> None:
    path = tmp_path / "x.tsv"
    path.write_bytes(tsv_line(5, *sound_regions(5, 1)) + line)
    found = dict(RegionTsv("x", [path]).read((5, 7)))
    assert isinstance(found[5], RawRegions)
    assert isinstance(found[7], str)
    assert complaint in found[7]
    assert "line 2 of x.tsv" in found[7]


def test_a_line_without_an_id_or_without_end_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.tsv"
    path.write_bytes(b"image_id\timage_w\n")
    with pytest.raises(BenchError, match=r"line 1 of .*x\.tsv"):
        list(RegionTsv("x", [path]).read((5,)))
    path.write_bytes(tsv_line(5, *sound_regions(5, 9)))
    monkeypatch.setattr(opening, "MAX_BYTES", 100)
    with pytest.raises(BenchError, match=r"line 1 of .* is longer than"):
        list(RegionTsv("x", [path]).read((5,)))


def test_a_folder_is_found_by_any_of_its_names(tmp_path: Path) -> None:
    features, boxes = sound_regions(7, 3)
    att = write_folder(tmp_path / "data", [(7, features, boxes)])
    for named in (att, tmp_path / "data" / "bu", tmp_path / "data"):
        [(image_id, found)] = open_source(named, IMAGES).read((7, 8))
        assert image_id == 7
        np.testing.assert_array_equal(told(found).features, features)
        np.testing.assert_array_equal(told(found).boxes, boxes)


def test_keys_suffixes_and_grids_of_a_folder(tmp_path: Path) -> None:
    features, _ = sound_regions(1, 6)
    np.savez(tmp_path / "1.npz", z=features, feat_extra=1)
    np.save(tmp_path / "2.npy", features)
    np.savez(tmp_path / "3.npz", feat=features.reshape(2, 3, -1))
    (tmp_path / "readme.txt").touch()
    found = dict(RegionFolder(tmp_path, IMAGES).read((1, 2, 3)))
    for each in found.values():
        np.testing.assert_array_equal(told(each).features, features)
        assert told(each).boxes is None


def test_arrays_are_named_by_ids_or_by_the_pictures(tmp_path: Path) -> None:
    features = {number: sound_regions(number, 2)[0] for number in (1, 2, 3)}
    for number, array in features.items():
        np.save(tmp_path / f"photo_{number}.npy", array)
    found = dict(RegionFolder(tmp_path, IMAGES).read((1, 2, 3)))
    for number, array in features.items():
        np.testing.assert_array_equal(told(found[number]).features, array)
    with pytest.raises(BenchError) as refused:
        RegionFolder(tmp_path, replace(IMAGES, samples=(Sample(77, "other.jpg", "test", ()),)))
    for name in ("photo_1", "77", "other"):
        assert name in str(refused.value)


def test_two_files_of_an_image_are_refused(tmp_path: Path) -> None:
    for name in ("1.npy", "01.npy"):
        np.save(tmp_path / name, np.ones((1, 4), np.float32))
    with pytest.raises(BenchError, match=r"two files of image 1: 01.npy, 1.npy"):
        RegionFolder(tmp_path, IMAGES)


def test_damaged_arrays_are_named_and_nothing_in_them_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    features, boxes = sound_regions(1, 2)
    att = write_folder(tmp_path, [(number, features, boxes) for number in range(1, 9)])
    box = tmp_path / "bu_box"
    np.savez(att / "1.npz", other=features)
    (att / "2.npz").write_bytes((att / "2.npz").read_bytes()[:-30])
    np.save(box / "3.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    (box / "4.npy").write_bytes(b"")
    (box / "5.npy").unlink()
    np.save(box / "6.npy", np.array([[1, 2, 3, 4]]))
    np.savez(att / "7.npz", feat=features[0])
    monkeypatch.setattr(opening, "MAX_BYTES", 1000)
    np.savez(att / "8.npz", feat=np.zeros((100, 4), np.float32))
    found = dict(RegionFolder(att, IMAGES).read(range(1, 9)))
    patterns = (
        "1.npz holds no array named feat or z",
        "2.npz cannot be read",
        "3.npy cannot be read",
        "4.npy cannot be read",
        "features but no box file",
        "6.npy holds int64",
        "shape (4,)",
        "more than",
    )
    for number, pattern in enumerate(patterns, 1):
        complaint = found[number]
        assert isinstance(complaint, str), number
        assert pattern in complaint


def test_hdf5_in_both_namings(tmp_path: Path) -> None:
    features, boxes = sound_regions(7, 3)
    with h5py.File(tmp_path / "plain.h5", "w") as file:
        file["7"] = features
    with h5py.File(tmp_path / "named.hdf5", "w") as file:
        file["7_features"], file["7_boxes"] = features, boxes
        file["8_features"] = features
        file["9_features"] = h5py.ExternalLink("plain.h5", "7")
        file["9_boxes"] = boxes
        file["10_features"], file["10_boxes"] = "text", boxes
    [(_, plain)] = open_source(tmp_path / "plain.h5", EMPTY).read((7, 8))
    np.testing.assert_array_equal(told(plain).features, features)
    assert told(plain).boxes is None
    found = dict(open_source(tmp_path / "named.hdf5", EMPTY).read((7, 8, 9, 10)))
    np.testing.assert_array_equal(told(found[7]).boxes, boxes)
    assert "8_boxes" in str(found[8])
    assert "9_features" in str(found[9])
    assert "10_features holds" in str(found[10])
    (tmp_path / "text.h5").write_text("not HDF5")
    with pytest.raises(BenchError, match=r"text\.h5 cannot be read as HDF5"):
        list(RegionHdf5(tmp_path / "text.h5").read((1,)))


def test_what_is_no_source_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").touch()
    for name, what in (("notes.txt", "unknown file format"), ("absent", "does not exist"), ("", "holds no ID")):
        with pytest.raises(BenchError, match=what):
            open_source(tmp_path / name, EMPTY)
    for name in ("a_att", "b_att"):
        (tmp_path / name).mkdir()
    with pytest.raises(BenchError, match="several folders"):
        open_source(tmp_path, EMPTY)
    write_folder(tmp_path, [(1, *sound_regions(1, 2))])
    with pytest.raises(BenchError, match="bu_box is a folder of boxes"):
        open_source(tmp_path / "bu_box", EMPTY)
    with pytest.raises(BenchError, match="no boxes of its own"):
        open_source("boxes", EMPTY)


def test_a_fingerprint_changes_with_any_file(tmp_path: Path) -> None:
    features, boxes = sound_regions(7, 3)
    att = write_folder(tmp_path, [(7, features, boxes)])
    before = RegionFolder(att, IMAGES).fingerprint
    assert RegionFolder(att, IMAGES).fingerprint == before
    np.save(tmp_path / "bu_box" / "7.npy", boxes[:2])
    assert RegionFolder(att, IMAGES).fingerprint != before
