"""`bench judgements`, and `--scores`: published forms of judgements, and metrics that others computed."""

import json
from pathlib import Path
from typing import Any

import pytest

from harness.utils.errors import BenchError
from results.runs.leaderboard import leaderboard
from results.store.store import Store
from tests.harness.conftest import bench_ok, bench_or_raise

SAID = {"a": ["a red ball", "a red cube", "dogs"], "b": ["two cats asleep", "two dogs", "a kite"]}
REFERENCES = {"a": ["a red ball lies here", "red ball"], "b": ["two cats asleep", "cats sleep"]}
RATINGS = [4, 2, 1]


def rated() -> Any:
    return {
        image: {
            "human_judgement": [
                {"caption": said, "rating": float(rating + more)}
                for said, rating in zip(captions, RATINGS, strict=True)
                for more in (0, 1)
            ],
            "ground_truth": REFERENCES[image],
        }
        for image, captions in SAID.items()
    }


def pairs() -> Any:
    entries = [
        {"image": image, "captions": said[:2][::order], "label": int(order < 0), "references": REFERENCES[image]}
        for image, said in SAID.items()
        for order in (1, -1)
    ]
    return {"HC": entries[:2], "MM": entries[2:]}


def write(path: Path, content: Any) -> Path:
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def judge(folder: Path, content: Any, *options: object) -> Any:
    file, out = write(folder / "judged.json", content), folder / "out.json"
    bench_ok("judgements", file, "--no-meteor", "--out", out, *options)
    return json.loads(out.read_text())


def test_ratings_of_captions(tmp_path: Path) -> None:
    own = write(tmp_path / "own.json", [1.0, 0.5, 0.1, 0.9, 0.4, 0.2])
    each = write(tmp_path / "each.json", "\n".join(map(str, [-1, -1, -2, -2, -3, -3] * 2)))
    found = judge(tmp_path, rated(), "--scores", f"Own={own}", "--scores", f"Each={each}", "--by-position")
    assert (found["n"], found["images"], found["ratings"]) == (6, 2, 12)
    agreement = found["agreement"]
    assert agreement["Own"]["accuracy"] == [1.0, 1.0, 1.0] == agreement["Each"]["accuracy"]
    assert list(agreement["CIDEr-D"]) == ["accuracy", "tau-b", "tau-c"]


def test_what_cannot_be_told_is_null(tmp_path: Path) -> None:
    alike = {
        image: {"human_judgement": [{"caption": said[0], "rating": 1}], "ground_truth": REFERENCES[image]}
        for image, said in SAID.items()
    }
    found = judge(tmp_path, alike)
    assert found["agreement"]["CIDEr-D"] == {"tau-c": None, "tau-b": None, "accuracy": None}
    assert found["differences"]["tau-c"] == []


def test_pairs_of_captions(tmp_path: Path) -> None:
    found = judge(tmp_path, pairs())
    assert found["agreement"]["ROUGE-L"]["HC"][0] == found["agreement"]["ROUGE-L"]["accuracy"][0] == 1.0
    assert found["n"] == 4


def test_lines_whose_references_lie_beside(tmp_path: Path) -> None:
    lines = [
        json.dumps({"seg_id": image, "hyp": said, "human_score": score})
        for image, captions in SAID.items()
        for said, score in zip((*captions, *"xyz"), (5.0, 3.5, 1.0, None, float("nan"), "-inf"), strict=True)
    ]
    beside = "\n".join(json.dumps({"seg_id": image, "refs": texts}) for image, texts in REFERENCES.items())
    found = judge(tmp_path, "\n".join(lines), "--references", write(tmp_path / "refs.jsonl", beside))
    assert (found["n"], found["ratings"]) == (6, 6)


@pytest.mark.parametrize(
    ("content", "options", "named"),
    [
        ({"a": {"human_judgement": [{"caption": "", "rating": 1}], "ground_truth": ["b"]}}, (), "no judgements"),
        ({"x": 1}, (), "no judgements"),
        (rated(), ("--references", "judged.json"), "its own"),
        (rated(), ("--scores", "Own=judged.json"), "entry 0"),
        (rated(), ("--scores", "CIDEr-D=judged.json"), "CIDEr-D"),
        (rated(), ("--scores", "short.json"), "short.json"),
        (rated(), ("--scores", "Own=short.json"), "2 numbers for 6 captions"),
        (rated(), ("--scores", "Own=turned.json"), "in another order"),
        (rated(), ("--scores", "Own=none.json"), "none.json: entry 0 has no number Own"),
    ],
)
def test_what_cannot_be_judged_is_one_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: Any, options: tuple[str, ...], named: str
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "short.json", [1, 2])
    write(tmp_path / "turned.json", [{"image_id": image, "Own": 1.0} for image in reversed(SAID) for _ in range(3)])
    write(tmp_path / "none.json", {"per_item": {"Own": 10**400}})
    words = ("judgements", write(tmp_path / "judged.json", content), "--no-meteor", *options)
    with pytest.raises(BenchError, match=named):
        bench_or_raise(*words)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """References of four images, captions of two systems, and what capevalkit says of them."""
    ids = range(1, 5)
    annotations = [{"image_id": i, "caption": f"a {word} thing {i}"} for i in ids for word in ("red", "small")]
    write(tmp_path / "refs.json", {"images": [{"id": i} for i in ids], "annotations": annotations})
    for name, value in (("ours", 0.75), ("theirs", 0.25)):
        write(tmp_path / f"{name}.json", {str(i): f"a red thing {i}" for i in ids})
        per_item = {str(i): {"Polos": value + i / 100, "Other": 0.0} for i in ids}
        write(tmp_path / f"{name}.clip.json", {"Polos": value, "per_item": per_item})
        write(tmp_path / f"{name}.json.card.yaml", f"name: {name}\nscores: {{Polos: {name}.clip.json}}\n")
    return tmp_path


def test_scores_of_others_have_intervals_beside_the_usual_ones(folder: Path) -> None:
    out = folder / "scores.json"
    words = (
        "evaluate",
        folder / "ours.json",
        "--references",
        folder / "refs.json",
        "--no-meteor",
        "--force",
        "--out",
        out,
    )
    bench_ok(*words, "--scores", f"Polos={folder / 'ours.clip.json'}")
    found = json.loads(out.read_text())
    assert found["scores"]["Polos"] == pytest.approx(0.775)
    assert found["intervals"]["Polos"][0] < 0.775 < found["intervals"]["Polos"][1]
    assert found["per_image"]["Polos"]["2"] == pytest.approx(0.77)
    with pytest.raises(BenchError, match="no number CLIPScore"):
        bench_or_raise(*words, "--scores", f"CLIPScore={folder / 'ours.clip.json'}")


def test_scores_on_cards_place_systems(folder: Path) -> None:
    models = ",".join(f"captions:{folder / name}.json" for name in ("ours", "theirs"))
    words = ("run", "--models", models, "--data", folder / "refs.json", "--workspace", folder / "ws")
    bench_ok(*words)
    with Store(folder / "ws" / "bench.sqlite", read_only=True) as store:
        [group] = leaderboard(store, "Polos")
    assert [row.model for row in group.rows] == ["ours", "theirs"]
    assert group.comparisons is not None
    assert group.comparisons.pairs[0].estimate.value == pytest.approx(0.5)
    write(folder / "ours.json.card.yaml", "scores: {Polos: ../ours.clip.json}\n")
    with pytest.raises(BenchError, match="not in its folder"):
        bench_or_raise(*words)
