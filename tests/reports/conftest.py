"""A made-up store with everything that a report must cope with."""

import random
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageDraw

from reports.html.report import write_report
from results.records import (
    AttentionRecord,
    CodeRecord,
    DatasetRecord,
    EpochRecord,
    ImageRecord,
    Outcome,
    Quantity,
    Role,
    RunSpec,
    SplitResult,
)
from results.runs.facts import FACT_METRICS, KINDS, PARSED, fact_counts, fact_scores, packed
from results.store.store import Store

FINGERPRINT = "1f3a09bc" * 4
HOSTILE = "<script>document.title = 'hacked'</script> & \"quoted\" 'words' \x00\x1b[31m \u202egnp.exe"
LONG = "word" * 2500
SIGNATURE = {
    "data": "scenes#1f3a09bc",
    "nrefs": "5",
    "tok": "ptb-3.4.1",
    "df": "split",
    "beam": "3",
    "maxlen": "20",
    "feat": "filterbank#9c1e04aa",
    "schedule": "xe#12ab9f",
    "track": "controlled",
    "v": "0.1.0",
}
QUALITY = {"blind": 0.31, "transformer_base": 0.972, "expansionnet_v2": 1.0421, "show_tell_lstm": 0.64}
SIZE = {"blind": 1.02e6, "transformer_base": 1.61e6, "expansionnet_v2": 2.3e6, "show_tell_lstm": 0.83e6}
FAMILIES = {"transformer_base": "transformer", "expansionnet_v2": "transformer"}
WORK = {"blind": 0.021, "transformer_base": 0.088, "expansionnet_v2": 0.131, "show_tell_lstm": 0.034}
MORE = range(101, 107)  # test images enough for tests of significance
DOMAINS = ("in-domain", "near-domain", "out-domain")


def dataset(root: Path) -> DatasetRecord:
    """Twelve test images and six of a split with domains; some pictures are missing or lead out of the root."""
    random.seed(7)
    images = []
    for number in (*range(1, 13), *MORE):
        split = "nocaps" if number in range(7, 13) else "test"
        file = {3: "test/gone.png", 4: "../outside.png"}.get(number, f"{split}/{number:06d}.png")
        if number not in {3, 4}:
            draw_scene(root / file)
        images.append(
            ImageRecord(
                number,
                file,
                split,
                ("a large red ball left of a blue cube", "a red ball by a cube", HOSTILE if number == 2 else "ball"),
                DOMAINS[number % 3] if split == "nocaps" else None,
            )
        )
    Image.new("RGB", (8, 8), "red").save(root.parent / "outside.png")
    sizes = {"train": 800, "val": 100, "test": 12, "nocaps": 6}
    return DatasetRecord(
        "scenes", FINGERPRINT, str(root), sizes, tuple(images), {"train/<b>9</b>.jpg": "truncated after 12 bytes"}
    )


def draw_scene(path: Path) -> None:
    """A small picture of coloured shapes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    picture = Image.new("RGB", (160, 120), random.choice(["#dfe8ee", "#f1ece0", "#e4efe4"]))
    pen = ImageDraw.Draw(picture)
    for _ in range(3):
        x, y, size = random.randrange(120), random.randrange(80), random.randrange(16, 48)
        colour = random.choice(["#c0392b", "#2c6fb2", "#2e8b57", "#d9a514"])
        random.choice([pen.ellipse, pen.rectangle])((x, y, x + size, y + size), fill=colour)
    picture.save(path)


def spec(model: str, seed: int = 1, role: Role = "model", **signature: str) -> RunSpec:
    """A planned run; signature fields may be changed."""
    return RunSpec(
        key=f"{model}-s{seed}-{'-'.join(signature.values()) or 'plain'}",
        model=model,
        role=role,
        seed=seed,
        track="controlled",
        dataset=FINGERPRINT,
        record={
            "model": model,
            "seed": seed,
            "decoding": {"beam_size": 3},
            "note": HOSTILE if model == "blind" else None,
            "card": {"family": FAMILIES.get(model, model)},
        },
        signature=SIGNATURE | signature,
        code_version="0.3.0+g1234567",
        code=CodeRecord("0a1b2c3d", "4e5f6a7b", "1", {"zoo/models/m2.py": "8c9d0e1f"}),
    )


def scores(cider: float, meteor: bool) -> dict[str, Quantity]:
    """All metrics from one number; METEOR can be missing."""
    found = {f"BLEU-{n}": Quantity(min(1.0, 0.35 + 0.42 * cider) ** (0.8 + 0.45 * n)) for n in range(1, 5)}
    found["METEOR"] = Quantity(0.14 + 0.14 * cider) if meteor else Quantity(None, "METEOR took longer than 300 s")
    return found | {"ROUGE-L": Quantity(0.3 + 0.27 * cider), "CIDEr-D": Quantity(cider)}


def fact_counts_of(ids: Iterable[int]) -> np.ndarray:
    """Of each image and kind: facts stated, true ones of these, facts of the picture, told ones of these."""
    return np.array([[[2, 1 + (i + kind) % 2, 3, i % 2] for kind in range(len(KINDS))] for i in ids], np.float64)


def fact_quantities(ids: Iterable[int]) -> dict[str, Quantity]:
    measured = fact_scores(fact_counts_of(ids).sum(axis=0)).ravel().tolist()
    return {PARSED: Quantity(1.0)} | dict(zip(FACT_METRICS, map(Quantity, measured), strict=True))


def outcome(
    model: str, seed: int, cider: float, meteor: bool = True, costs: bool = True, maps: tuple[AttentionRecord, ...] = ()
) -> Outcome:
    """Results of both splits; the attention `maps` are of the first."""
    said = {1: HOSTILE, 2: LONG, 3: "", 4: "a green cone above a table"}
    splits = []
    for split, ids in (("test", (*range(1, 7), *MORE)), ("nocaps", range(7, 13))):
        quality = cider if split == "test" else 0.8 * cider
        captions = {i: said.get(i, "a large red ball left of a yellow cube") for i in ids}
        if model != "blind":
            captions |= {i: f"a red ball beside a blue cube number {i}" for i in ids if i > 2}
        weights = {i: 0.5 + (i if i <= 12 else i - 94) / 8 for i in ids}
        if split == "nocaps" and model in {"blind", "retrieval"}:  # right by chance once: no model is surely above
            weights = dict.fromkeys(ids, 0.05) | {7: 10.0}
        mean = sum(weights.values()) / len(weights)
        by_domain = {
            domain: scores(quality * factor, meteor) for domain, factor in zip(DOMAINS, (1.1, 0.9, 0.5), strict=True)
        }
        overall = scores(quality, meteor) | fact_quantities(ids)
        for domain, members in zip(DOMAINS, ((7, 8), (9, 10), (11, 12)), strict=True):
            by_domain[domain] |= fact_quantities(members)
        counts = packed(fact_counts_of(ids)).T.tolist()
        splits.append(
            SplitResult(
                split,
                captions,
                {"overall": overall} | (by_domain if split == "nocaps" else {}),
                {fact_counts(kind): dict(zip(ids, of, strict=True)) for kind, of in zip(KINDS, counts, strict=True)}
                | {
                    metric: {i: level * weight / mean for i, weight in weights.items()}
                    for metric, level in (("ROUGE-L", 0.3 + 0.27 * quality), ("CIDEr-D", quality))
                },
                attention=maps if split == "test" else (),
                held_out=scores(0.9 * quality, meteor) if split == "test" else {},
            )
        )
    operators = {
        "encoder": {"macs": 2.1e7, "by_operator": {"linear": 2e7, "matmul": 1e6}, "uncounted": {"add": 9, "relu": 3}}
    }
    measured = {
        "parameters": Quantity(SIZE.get(model, 1e6)),
        "gmac_encoder": Quantity(0.4 * WORK.get(model, 0.1), unit="GMAC"),
        "gmac_step": Quantity(0.02 * WORK.get(model, 0.1), unit="GMAC"),
        "gmac_beam": Quantity(WORK.get(model, 0.1), unit="GMAC"),
        "caption_length_mean": Quantity(9.4, unit="tokens"),
        "gmac_beam_mean_length": Quantity(0.6 * WORK.get(model, 0.1), unit="GMAC"),
        "train_seconds": Quantity(83.0 + seed, unit="s"),
        "latency_median": Quantity(0.0123, unit="s"),
        "train_throughput": Quantity(412.7, unit="images/s"),
        "peak_memory_host": Quantity(1412.0, unit="MiB"),
        "peak_memory_device": Quantity(None, "no CUDA device", "MiB"),
    }
    return Outcome(
        tuple(splits),
        measured if costs else {},
        {"device": "cpu", "versions": {"python": "3.11.9", "torch": "2.15.0"}, "threads": 2, "gpu": None},
        f"runs/{model}/best.safetensors",
        operators if costs else {},
    )


def attention(model: str) -> tuple[AttentionRecord, ...]:
    """Maps of two images: one model looks at cells, another at regions, and the others do not attend."""
    words = ("a", HOSTILE, "ball")
    if model == "expansionnet_v2":
        weights = tuple(tuple(float(place == 5 * word) for place in range(12)) for word in range(3))
        return tuple(AttentionRecord(image, words, weights, grid=(3, 4)) for image in (2, 5))
    if model == "transformer_base":
        boxes = ((0.0, 0.0, 0.5, 1.0), (0.5, -0.25, 1.5, 0.5), (0.75, 0.75, 0.7, 0.7))
        return (AttentionRecord(5, words, ((0.5, 0.48, 0.02), (0.0, 1.0, 0.0), (0.0, 0.0, 0.0)), boxes=boxes),)
    return ()


def populate(store: Store, root: Path) -> None:
    """Four models (two with two seeds), two references, another group, and runs that failed, were skipped or wait."""
    store.record_dataset(dataset(root))
    finished = [
        spec(model, seed) for model in QUALITY for seed in ((1, 2) if "_v2" in model or "base" in model else (1,))
    ]
    greedy = spec("transformer_base", 1, beam="1")
    references = [spec("human", 1, "reference", nrefs="4"), spec("retrieval", 1, "reference", beam="none")]
    broken, skipped, waiting = spec("aoanet"), spec("updown"), spec("image_transformer")
    store.plan([*finished, greedy, *references, broken, skipped, waiting])
    for planned in finished:
        store.begin(planned.key, {"device": "cpu"})
        cider = QUALITY[planned.model] + 0.013 * (planned.seed - 1)
        left = 0.75 if planned.model == "show_tell_lstm" else 0.2  # of these alone one is still learning at the end
        for epoch in range(1, 9):
            best = cider * (1 - left**epoch)
            store.record_epoch(
                planned.key,
                EpochRecord(
                    0, "warm-up", "xe", epoch, 50 * epoch, 3e-4, 4.6 * 0.8**epoch + 1.2 / (1 + cider),
                    best if epoch % 2 == 0 else None, 10.4, 78.2,
                ),
            )  # fmt: skip
        model, meteor = planned.model, planned.model != "blind"
        store.finish(planned.key, outcome(model, planned.seed, cider, meteor, maps=attention(model)))
    for planned, cider in ((greedy, 0.91), (references[0], 1.3), (references[1], 0.55)):
        store.begin(planned.key, {})
        store.finish(planned.key, outcome(planned.model, 1, cider, costs=planned.role == "model"))
    store.begin(broken.key, {"device": "cpu"})
    store.fail(broken.key, "FloatingPointError", "the loss is NaN at step 312 <b>", f"epoch 1\nTraceback {HOSTILE}\n")
    store.skip(skipped.key, "needs region boxes, which the data set lacks")


@pytest.fixture(scope="session")
def populated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The populated store and, in `data`, its pictures, for reading alone."""
    folder = tmp_path_factory.mktemp("made")
    (folder / "data").mkdir()
    with Store(folder / "bench.sqlite") as opened:
        populate(opened, folder / "data")
    return folder


@pytest.fixture
def store(populated: Path, tmp_path: Path) -> Iterator[Store]:
    """A copy of the populated store, in `tmp_path`."""
    shutil.copy(populated / "bench.sqlite", tmp_path)
    with Store(tmp_path / "bench.sqlite") as opened:
        yield opened


@pytest.fixture(scope="session")
def report(populated: Path) -> Path:
    """The folder of a report of the populated store, for reading alone."""
    with Store(populated / "bench.sqlite", read_only=True) as opened:
        return write_report(opened, populated / "report").parent
