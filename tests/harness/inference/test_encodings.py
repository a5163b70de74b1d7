"""The space of encoder outputs: traces, t-SNE, and the command that writes both from stored runs."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from harness.benchmark.caption_images import encode_dataset
from harness.benchmark.saved_model import SavedModel, save_ensemble
from harness.cli.inputs import open_split
from harness.inference.encodings import Encodings, draw_encodings, encodings, tsne
from harness.utils.errors import BenchError
from harness.utils.workspace import Workspace
from tests.harness.conftest import DrawScenes, MakeRun, bench, bench_ok
from zoo import Visual, create_model, model_card


class Regions:
    """Two, one and three regions of images 0, 1 and 2, padded to three with what must not be counted."""

    def visual(self, image_ids: tuple[int, ...], _spec: object) -> Visual:
        features = torch.arange(9 * 6, dtype=torch.float32).reshape(3, 3, 6) / 10
        mask = torch.tensor([[True, True, False], [True, False, False], [True, True, True]])
        return Visual(features=features, mask=mask, boxes=torch.rand(3, 3, 4)) if len(image_ids) == 3 else Visual()


def test_traces_are_those_of_the_covariance_in_all_and_within_images() -> None:
    vectors, images = np.random.default_rng(0).normal(size=(12, 3)), np.repeat([7, 3, 5], 4)
    space = Encodings(vectors, images)
    assert space.trace == pytest.approx(np.trace(np.cov(vectors.T)))
    of_each = [np.trace(np.cov(vectors[images == image].T)) for image in (7, 3, 5)]
    assert space.trace_within == pytest.approx(np.mean(of_each))
    assert Encodings(vectors[:3], np.arange(3)).trace_within == 0


def test_tsne_keeps_groups_apart_and_neighbours_together_the_same_each_time() -> None:
    random, groups = np.random.default_rng(0), np.repeat(np.arange(4), 40)
    vectors = random.normal(size=(160, 20)) + 8 * random.normal(size=(4, 20))[groups]
    found = tsne(vectors)
    apart = np.linalg.norm(found[:, None] - found, axis=-1) + np.diag(np.full(160, np.inf))
    assert (groups[apart.argmin(1)] == groups).mean() == 1
    assert np.array_equal(tsne(vectors), found)


@pytest.mark.parametrize("vectors", [np.ones((5, 3)), np.array([[0.0], [1.0]]), np.eye(4)])
def test_tsne_of_few_or_equal_vectors_is_finite(vectors: np.ndarray) -> None:
    found = tsne(vectors)
    assert found.shape == (len(vectors), 2)
    assert np.isfinite(found).all()
    assert "nan" not in draw_encodings([("<b>", Encodings(found, np.arange(len(found))))])


def test_padding_is_left_out_and_one_vector_is_refused() -> None:
    torch.manual_seed(0)
    model = create_model("aoanet", vocab_size=7, visual_dim=6, **model_card("aoanet").tiny).eval()
    assert encodings(model, Regions(), [4, 8, 6], device=torch.device("cpu")).images.tolist() == [4, 4, 8, 6, 6, 6]
    with pytest.raises(BenchError, match="fewer than two vectors"):
        encodings(model, Regions(), [], device=torch.device("cpu"))


def test_stored_runs_are_compared_by_one_command(draw_scenes: DrawScenes, make_run: MakeRun, tmp_path: Path) -> None:
    data, runs = draw_scenes(train=24, val=4, test=6), [make_run(key="a-s0"), make_run("show_tell", key="b-s0")]
    words = ("export", "encodings", "a-s0", runs[1], "--data", data, "-w", runs[0].parents[1], "--out", tmp_path / "e")
    done = bench_ok(*words)
    first, second = json.loads((tmp_path / "e" / "encodings.json").read_text(encoding="utf-8"))["runs"]
    assert (first["run"], first["images"], first["vectors"], len(first["points"])) == ("a-s0", 6, 24, 24)
    assert (second["run"], second["vectors"], second["trace_within"]) == ("b-s0", 6, 0)
    assert f"{first['trace']:.2f}" in done.stdout
    space = encode_dataset(open_split(str(data), None, "test", Workspace(tmp_path)), runs[0])
    assert space.trace == pytest.approx(first["trace"], rel=1e-6)
    assert (tmp_path / "e" / "encodings.svg").read_text(encoding="utf-8").count("<circle") == 30
    assert bench(*words).exit_code == 0, "an earlier version is replaced"


def test_an_ensemble_has_no_one_encoder(draw_scenes: DrawScenes, make_run: MakeRun) -> None:
    folder = make_run(key="a-s0")
    save_ensemble(["a-s0", "a-s0"], folder.with_name("both"))
    assert SavedModel.load(folder.with_name("both")).members
    pictures = open_split(str(draw_scenes(train=24, val=4, test=6)), None, "test", Workspace(folder.parents[1]))
    with pytest.raises(BenchError, match="is an ensemble") as caught:
        encode_dataset(pictures, folder.with_name("both"))
    assert "members" in (caught.value.hint or "")
