"""Captions of other systems as rows of a benchmark, on references without pictures."""

import json
import random
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

import results
from harness.utils.errors import BenchError
from reports.html.report import write_report
from reports.tables.contents import Contents
from reports.text.markup import as_json
from results.frames import Results
from results.store.store import Store
from tests.harness.conftest import bench, bench_ok, groups_in, run_counts, tables_of

IDS = range(100, 140)
WORDS = ["a", "red", "blue", "green", "ball", "cube", "dog", "cat", "sits", "on", "under", "the", "small", "large"]


def sentence(seed: int) -> str:
    return " ".join(random.Random(seed).choices(WORDS, k=7))


def spoilt(text: str, seed: int, share: float) -> str:
    generator = random.Random(seed)
    return " ".join(generator.choice(WORDS) if generator.random() < share else word for word in text.split())


def captions_of(share: float, *, seed: int = 0) -> dict[str, str]:
    """The first references, of whose words a share is others."""
    return {str(i): spoilt(sentence(i), i + 1000 * seed, share) for i in IDS}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """References of 40 images, and captions of a good and a bad system."""
    annotations = [{"image_id": i, "caption": text} for i in IDS for text in (sentence(i), sentence(i + 500))]
    write(tmp_path / "refs.json", {"images": [{"id": i} for i in IDS], "annotations": annotations})
    write(tmp_path / "good.json", captions_of(0.1))
    write(tmp_path / "bad.json", captions_of(0.7))
    return tmp_path


def write(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content))


def run(folder: Path, models: str, *options: object) -> str:
    words = ("run", "--data", folder / "refs.json", "--workspace", folder / "ws", "--models", models, *options)
    return bench_ok(*words).stdout


def test_two_files_have_places_over_images_and_no_costs(folder: Path) -> None:
    files = ",".join(f"captions:{folder / name}" for name in ("good.json", "bad.json"))
    bench_ok("plan", "--data", folder / "refs.json", "--workspace", folder / "ws", "--models", f"{files},human")
    run(folder, f"{files},human")
    assert "architectures needs several seeds" in " ".join(tables_of(folder / "ws").split())
    [group] = groups_in(folder / "ws")
    assert [(row.model, row.ranks["CIDEr-D"].best, row.seeds) for row in group.rows] == [
        ("good", 1, (0,)),
        ("bad", 2, (0,)),
    ]
    assert [row.model for row in group.references] == ["human"]
    assert group.comparisons is not None
    assert group.comparisons.seeds == ()
    [pair] = group.comparisons.pairs
    assert pair.verdict == "better"
    means = [row.scores["CIDEr-D"].mean or 0.0 for row in group.rows]
    assert pair.estimate.value == pytest.approx(means[0] - means[1])
    for name in ("parameters", "train_seconds", "latency_median"):
        assert group.rows[0].costs[name].value is None
        assert group.rows[0].costs[name].reason
    assert "re-used" in run(folder, files)


def test_files_of_one_name_are_seeds_and_a_card_may_change(folder: Path) -> None:
    write(folder / "again.json", captions_of(0.1, seed=1))
    cards = folder / "cards.yaml"
    card = {"name": "Ours", "trained_on": ["refs"], "printed": {"CIDEr-D": 100.0}, "objective": "RL"}
    write(cards, dict.fromkeys(("good.json", "again.json"), card))
    files = f"captions:{folder / 'good.json'},captions:{folder / 'again.json'}"
    run(folder, f"captions:{folder / 'again.json'}", "--cards", cards)  # which is the second file of the next command
    run(folder, files, "--cards", cards)
    [group] = groups_in(folder / "ws")
    [row] = group.rows
    assert (row.model, row.seeds, row.pretraining) == ("Ours", (0, 1), None)
    write(cards, dict.fromkeys(("good.json", "again.json"), card | {"trained_on": ["refs", "CC3M"]}))
    assert "2 re-used" in run(folder, files, "--cards", cards)
    [row] = groups_in(folder / "ws")[0].rows
    assert row.pretraining is not None
    assert row.pretraining.captions_of == ["refs", "CC3M"]
    with Store(folder / "ws" / "bench.sqlite", read_only=True) as store:
        page = write_report(store, folder / "report").read_text()
        [exported] = json.loads(as_json(Contents.read(store)))[0]["rows"]
        frame = Results(store).leaderboard().set_index("model")
    assert (exported["published"]["value"], frame["CIDEr-D_published_percent"]["Ours"]) == (1.0, 100.0)
    mean = 100 * (row.scores["CIDEr-D"].mean or 0.0)
    assert f"100.0 ({mean - 100:+.1f})".replace("-", "−") in page


@pytest.mark.parametrize("card", ["", "name: Ours\n"])
def test_a_row_is_of_what_its_file_held_when_it_was_asked_for_last(folder: Path, card: str) -> None:
    file, first = folder / "good.json", (folder / "good.json").read_bytes()
    (folder / "good.json.card.yaml").write_text(card or "year: 2026\n")
    scores = []
    for again in (False, True, False):
        write(file, captions_of(0.4)) if again else file.write_bytes(first)
        run(folder, f"captions:{file},captions:{folder / 'bad.json'}")
        rows, name = groups_in(folder / "ws")[0].rows, card[6:-1] or "good"
        assert [(row.model, row.seeds) for row in rows] == [(name, (0,)), ("bad", (0,))]
        scores.append(rows[0].scores["CIDEr-D"].mean or 0.0)
        assert f" {100 * scores[-1]:.2f} " in bench_ok("compare", name, "bad", "-w", folder / "ws").stdout
    assert scores[0] == scores[2] > scores[1]
    with Store(folder / "ws" / "bench.sqlite", read_only=True) as store:
        assert len(store.keys({"finished"})) == 3, "nothing is lost"
    copy = folder / "copy" / "good.json"
    copy.parent.mkdir()
    for content in (captions_of(0.1), captions_of(0.4)):
        write(copy, content)
        run(folder, f"captions:{copy}")
        assert groups_in(folder / "ws")[0].rows[0].scores["CIDEr-D"].mean == scores[0], "the first file is as it was"
    (folder / "good.json.card.yaml").write_text("name: Mine\n")
    run(folder, f"captions:{file}")
    assert [row.model for row in groups_in(folder / "ws")[0].rows] == ["Mine", "good", "bad"]


def test_two_files_are_seeds_by_their_cards_alone_and_none_is_there_twice(folder: Path) -> None:
    output = run(folder, f"captions:{folder / 'good.json'},captions:{folder}/goo*.json,captions:{folder / 'bad.json'}")
    assert [(row.model, row.seeds) for row in groups_in(folder / "ws")[0].rows] == [("good", (0,)), ("bad", (0,))]
    assert run_counts(output)["finished"] == 2
    (folder / "elsewhere").mkdir()
    write(folder / "elsewhere" / "good.json", captions_of(0.3))
    run(folder, f"captions:{folder}/elsewhere/good.json")
    assert [(row.model, len(row.seeds)) for row in groups_in(folder / "ws")[0].rows] == [("good", 1)] * 2 + [("bad", 1)]
    write(folder / "good.beam5.json", captions_of(0.2))
    result = bench("run", "--data", folder / "refs.json", "--models", f"captions:{folder}/good*.json")
    assert isinstance(result.exception, BenchError)
    assert f"would both be called {folder.name}/good" in str(result.exception)
    for word in ("x/**.json", ""):
        result = bench("run", "--data", folder / "refs.json", "--models", f"captions:{word}")
        assert isinstance(result.exception, BenchError)
    for wrong in ('name: Mine\nyear: !!int ""\n', "name: Mine\nname: Yours\n"):
        (folder / "good.json.card.yaml").write_text(wrong)
        result = bench("run", "--data", folder / "refs.json", "--models", f"captions:{folder / 'good.json'}")
        assert isinstance(result.exception, BenchError), "a value that PyYAML cannot construct, a key twice"


def test_a_card_beside_its_file_is_found_and_a_wrong_one_named(folder: Path) -> None:
    (folder / "good.json.card.yaml").write_text("name: Mine\n")
    run(folder, f"captions:{folder}/goo*.json")
    assert groups_in(folder / "ws")[0].rows[0].model == "Mine"
    (folder / "good.json.card.yaml").write_text("nam: Mine\n")
    result = bench("run", "--data", folder / "refs.json", "--models", f"captions:{folder / 'good.json'}")
    assert "the card is wrong at nam" in str(result.exception)


def test_missing_images_are_refused_or_signed(folder: Path) -> None:
    some = captions_of(0.1)
    del some["100"]
    write(folder / "some.json", some | {"7": "of no image"})
    files = f"captions:{folder / 'good.json'},captions:{folder / 'some.json'}"
    result = bench("run", "--data", folder / "refs.json", "--workspace", folder / "ws", "--models", files)
    for part in ("1 image missing (100)", "1 image without references (7)"):
        assert part in str(result.exception)
    run(folder, files, "--allow-subset")
    whole, partial = sorted(groups_in(folder / "ws"), key=lambda group: len(group.signature))
    assert "subset" not in whole.signature
    assert partial.signature["subset"].startswith("test=39/40#")
    assert len(results.open(folder / "ws").captions()) == 40 + 39


def test_references_alone_train_nothing(folder: Path) -> None:
    for models in ("majority", "blind", f"retrieval,captions:{folder / 'good.json'}"):
        result = bench("run", "--data", folder / "refs.json", "--models", models, "--backbone", "filterbank")
        assert "refs has references alone" in str(result.exception)


def test_a_newcomer_compares_two_files_by_one_command(folder: Path) -> None:
    (folder / "images").mkdir()
    Image.new("RGB", (40, 30), "red").save(folder / "images" / "000000000100.jpg")
    files = [folder / "good.json", folder / "bad.json"]
    options = ("--references", folder / "refs.json", "--report", folder / "report", "--images", folder / "images")
    output = bench_ok("evaluate", *files, *options).stdout
    assert "good leads on" in output
    assert "good less bad: +" in output
    assert sorted(path.name for path in (folder / "report" / "gallery").glob("*.jpg")) == ["1-100.jpg"]
    assert sorted(path.name for path in folder.iterdir()) == ["bad.json", "good.json", "images", "refs.json", "report"]
    refused = bench("evaluate", *files, "--references", folder / "refs.json", "--out", folder / "scores.json")
    assert isinstance(refused.exception, BenchError)


def test_what_names_images_and_captions_is_part_of_the_key(folder: Path) -> None:
    good, bad = (list(captions_of(share).values()) for share in (0.1, 0.7))
    rows = [
        {"a": image_id, "b": IDS[-1 - index], "caption": good[index], "prediction": bad[index]}
        for index, image_id in enumerate(IDS)
    ]
    write(folder / "rows.json", rows)
    scores = {}
    for id_field, caption_field in (("a", "caption"), ("b", "caption"), ("a", "prediction")):
        card = f"id_field: {id_field}\ncaption_field: {caption_field}\n"
        (folder / "rows.json.card.yaml").write_text(card)
        run(folder, f"captions:{folder}/rows.json")
        [group] = groups_in(folder / "ws")
        [row] = group.rows
        scores[id_field, caption_field] = row.scores["CIDEr-D"].mean or 0.0
    assert scores["a", "caption"] > scores["a", "prediction"] > scores["b", "caption"]


def test_positions_of_a_card_are_signed_and_refused_where_the_file_names_images(folder: Path) -> None:
    good = json.loads((folder / "good.json").read_text())
    write(folder / "listed.json", [good[str(image_id)] for image_id in IDS])
    words = ("run", "--data", folder / "refs.json", "--workspace", folder / "ws")
    refused = bench(*words, "--models", f"captions:{folder}/listed.json").exception
    assert isinstance(refused, BenchError)
    assert f"by_position: true into {folder}/listed.json.card.yaml" in (refused.hint or "")
    for name in ("listed.json", "good.json"):
        (folder / f"{name}.card.yaml").write_text("by_position: true\n")
    bench_ok(*words, "--models", f"captions:{folder}/listed.json")
    [group] = groups_in(folder / "ws")
    assert [row.differs["ids"] for row in group.rows] == ["position"]
    refused = bench(*words, "--models", f"captions:{folder}/good.json").exception
    assert isinstance(refused, BenchError)
    assert "names the images" in str(refused)
