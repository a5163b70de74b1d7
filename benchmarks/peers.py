"""Processor seconds of this project and of others that do the same, in turn, on one thread of this machine.

    python benchmarks/peers.py                                       # every peer that is installed
    python benchmarks/peers.py generate torchvision
    uv run --with aac-metrics python benchmarks/peers.py aac-metrics

Prints a line for each comparison: seconds there, seconds here, and their ratio, of the fastest of `--rounds` rounds,
child processes (Java) included. Both sides must give the same scores. Captions are of COCO val2014, as pycocoevalcap's
own files hold them, with candidates spliced from two references; weights and features are random; pictures are noise.
"""

import argparse
import importlib.util
import json
import os
import resource
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import nn

import zoo
from harness.data.images import ImagePreprocessing, load_image
from harness.metrics.contract import OVERALL
from harness.metrics.evaluator import Evaluator, Round, round_statistics
from harness.metrics.java import bundled_java
from harness.metrics.ptb import tokenize_by_image, tokenize_ptb
from harness.metrics.spice import SPICE_JAR, packaged_spice
from zoo.decoding import beam_search

REFERENCES = 5
VOCABULARY, REGIONS, CHANNELS, WIDTH, BEAMS, WORDS = 10_000, 36, 2_048, 512, 5, 20
PICTURES, PICTURE, SIZE = 100, (640, 480), 224

Texts = tuple[dict[int, Sequence[str]], dict[int, str]]


@dataclass(frozen=True)
class Comparison:
    """The same work by a peer and by this project; what they give must be equal where `tolerance` is given."""

    title: str
    peer: Callable[[], Any]
    ours: Callable[[], Any]
    tolerance: float | None = None


def read_texts(images: int) -> Texts:
    """References and one candidate an image."""
    with (
        zipfile.ZipFile(packaged_spice() / SPICE_JAR) as jar,
        jar.open("coco/annotations/captions_val2014.json") as file,
    ):
        annotations = json.load(file)["annotations"]
    captions: dict[int, list[str]] = {}
    for annotation in annotations:
        captions.setdefault(annotation["image_id"], []).append(annotation["caption"])
    references: dict[int, Sequence[str]] = {}
    for image_id in sorted(captions)[:images]:
        references[image_id] = captions[image_id][:REFERENCES]
    candidates = {}
    for image_id, (first, second, *_) in references.items():
        start, end = first.split(), second.split()
        candidates[image_id] = " ".join([*start[: (len(start) + 1) // 2], *end[len(end) // 2 :]])
    return references, candidates


def evaluate_here(texts: Texts, metrics: Sequence[str]) -> dict[str, float | None]:
    with Evaluator() as evaluator:
        scores = evaluator.evaluate(*texts).scores[OVERALL]
    return {metric: scores[metric].value for metric in metrics}


def pycocoevalcap(images: int) -> Iterator[Comparison]:
    """All seven metrics with tokenisation by Java there, then the metrics that need no Java, of the same tokens."""
    from pycocoevalcap.bleu.bleu import Bleu
    from pycocoevalcap.cider.cider import Cider
    from pycocoevalcap.meteor.meteor import Meteor
    from pycocoevalcap.rouge.rouge import Rouge
    from pycocoevalcap.tokenizer.ptbtokenizer import PTBTokenizer

    texts = read_texts(images)
    without_java = [*(f"BLEU-{order}" for order in range(1, 5)), "ROUGE-L", "CIDEr-D"]

    def score_tokens(wanted: Mapping[int, Sequence[str]], given: Mapping[int, Sequence[str]]) -> dict[str, float]:
        bleu = Bleu(4).compute_score(wanted, given, verbose=0)[0]
        scores = {f"BLEU-{order}": value for order, value in enumerate(bleu, 1)}
        return scores | {
            "ROUGE-L": Rouge().compute_score(wanted, given)[0],
            "CIDEr-D": Cider().compute_score(wanted, given)[0],
        }

    def score_texts() -> dict[str, float]:
        tokenizer = PTBTokenizer()
        references, candidates = texts
        wanted = tokenizer.tokenize({i: [{"caption": text} for text in image] for i, image in references.items()})
        given = tokenizer.tokenize({i: [{"caption": text}] for i, text in candidates.items()})
        return score_tokens(wanted, given) | {"METEOR": Meteor().compute_score(wanted, given)[0]}

    yield Comparison(
        f"seven metrics of {images} images",
        score_texts,
        lambda: evaluate_here(texts, [*without_java, "METEOR"]),
        tolerance=1e-12,
    )
    wanted, given = tokenised(texts)
    yield Comparison(
        f"BLEU, ROUGE-L and CIDEr-D of {images} tokenised images",
        lambda: score_tokens(wanted, {image_id: [text] for image_id, text in given.items()}),
        lambda: score_tokens_here(wanted, given),
        tolerance=1e-12,
    )


def aac_metrics(images: int) -> Iterator[Comparison]:
    """The metrics of aac-metrics that need no Java."""
    from aac_metrics.functional import bleu, cider_d, rouge_l  # type: ignore[import-not-found]

    wanted, given = tokenised(read_texts(images))
    references, candidates = list(wanted.values()), [given[image_id] for image_id in wanted]

    def score() -> dict[str, float]:
        scores = {f"BLEU-{n}": bleu(candidates, references, n=n)[0][f"bleu_{n}"] for n in range(1, 5)}
        scores["ROUGE-L"] = rouge_l(candidates, references)[0]["rouge_l"]
        scores["CIDEr-D"] = cider_d(candidates, references)[0]["cider_d"]
        return {metric: float(value) for metric, value in scores.items()}

    # Its scores are 32-bit numbers.
    title = f"BLEU, ROUGE-L and CIDEr-D of {images} tokenised images"
    yield Comparison(title, score, lambda: score_tokens_here(wanted, given), tolerance=1e-4)


def tokenised(texts: Texts) -> tuple[dict[int, list[str]], dict[int, str]]:
    references, candidates = texts
    given = tokenize_by_image({image_id: [text] for image_id, text in candidates.items()}, tokenize_ptb)
    return tokenize_by_image(references, tokenize_ptb), {image_id: text for image_id, [text] in given.items()}


def score_tokens_here(references: dict[int, list[str]], candidates: dict[int, str]) -> dict[str, float]:
    scores: dict[str, float] = {}
    for statistics in round_statistics(Round(references, candidates)):
        scores |= statistics.corpus()
    return scores


def generate(_: int) -> Iterator[Comparison]:
    """Beam search of `transformer_base` and of a BART with as many layers of the same width, to the last word."""
    from transformers import BartConfig, BartForConditionalGeneration
    from transformers.modeling_outputs import BaseModelOutput
    from transformers.utils import logging

    logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    torch.manual_seed(0)
    ours = zoo.create_model("transformer_base", vocab_size=VOCABULARY, visual_dim=CHANNELS).eval()
    layers = len(ours.cross_attention_modules())
    config = BartConfig(
        vocab_size=VOCABULARY, d_model=WIDTH, max_position_embeddings=64,
        encoder_layers=layers, encoder_ffn_dim=4 * WIDTH, encoder_attention_heads=8,
        decoder_layers=layers, decoder_ffn_dim=4 * WIDTH, decoder_attention_heads=8,
        pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=1, forced_eos_token_id=None,
        tie_word_embeddings=False,
    )  # fmt: skip
    bart: Any = BartForConditionalGeneration(config)  # whose methods are not typed
    bart.eval()
    embed = nn.Linear(CHANNELS, WIDTH)
    millions = [sum(weight.numel() for weight in model.parameters()) / 1e6 for model in (bart, ours)]
    for batch in (8, 32):
        features = torch.randn(batch, REGIONS, CHANNELS, generator=torch.Generator().manual_seed(batch))

        def search(features: torch.Tensor = features) -> Any:
            encoded = bart.get_encoder()(inputs_embeds=embed(features)).last_hidden_state
            # The start and WORDS words; none of them ends the caption.
            return bart.generate(
                encoder_outputs=BaseModelOutput(encoded),
                num_beams=BEAMS,
                do_sample=False,
                max_length=WORDS + 1,
                min_length=WORDS + 1,
            )

        def search_here(features: torch.Tensor = features) -> Any:
            memory = ours.encode(zoo.Visual(features))
            return beam_search(ours, memory, beam_size=BEAMS, max_len=WORDS, bos=1, eos=2, banned=[2])

        sizes = f"{millions[0]:.0f} and {millions[1]:.0f} million parameters, {layers} + {layers} layers"
        yield Comparison(f"beam {BEAMS}, {batch} images, {WORDS} words ({sizes})", search, search_here)


def torchvision(_: int) -> Iterator[Comparison]:
    """JPEG files to resized pixels: 8-bit there, in 8 bits and as normalised floats here."""
    from torchvision.io import ImageReadMode, decode_jpeg, read_file
    from torchvision.transforms.v2.functional import resize

    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / f"{number}.jpg" for number in range(PICTURES)]
        generator = np.random.default_rng(0)
        for path in paths:
            coarse = Image.fromarray(generator.integers(0, 256, (24, 32, 3), np.uint8))
            coarse.resize(PICTURE, Image.Resampling.BICUBIC).save(path, quality=90)
        preprocessing = ImagePreprocessing(SIZE)

        def decode() -> None:
            for path in paths:
                resize(decode_jpeg(read_file(str(path)), ImageReadMode.RGB), [SIZE, SIZE], antialias=True)

        def decode_here(preprocess: Callable[[Image.Image], Any]) -> None:
            for path in paths:
                preprocess(load_image(path))

        pictures = f"{PICTURES} pictures of {PICTURE[0]} x {PICTURE[1]} to {SIZE} x {SIZE}"
        yield Comparison(f"{pictures}, 8 bits", decode, lambda: decode_here(preprocessing.eight_bits))
        yield Comparison(f"{pictures}, floats", decode, lambda: decode_here(preprocessing))


@dataclass(frozen=True)
class Peer:
    """`module` must be there; `package` is what to install otherwise."""

    module: str
    package: str
    compare: Callable[[int], Iterator[Comparison]]


PEERS = {
    "pycocoevalcap": Peer("pycocoevalcap", "pycocoevalcap", pycocoevalcap),
    "aac-metrics": Peer("aac_metrics", "aac-metrics", aac_metrics),
    "generate": Peer("transformers", "transformers", generate),
    "torchvision": Peer("torchvision", "torchvision", torchvision),
}


def processor_seconds() -> float:
    """Of this process and of its ended children."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


def measure(comparison: Comparison, rounds: int) -> tuple[float, float]:
    """The fewest seconds of either side; the first round, in which results are compared, counts as any other."""
    seconds: tuple[list[float], list[float]] = ([], [])
    for _ in range(rounds):
        results = []
        for work, taken in zip((comparison.peer, comparison.ours), seconds, strict=True):
            started = processor_seconds()
            results.append(work())
            taken.append(processor_seconds() - started)
        if comparison.tolerance is not None:
            theirs, ours = results
            for metric, score in theirs.items():
                if abs(score - ours[metric]) > comparison.tolerance:
                    raise SystemExit(f"{comparison.title}: {metric} is {score} there and {ours[metric]} here")
    return min(seconds[0]), min(seconds[1])


@torch.inference_mode()
def main() -> None:
    """Measure the peers that are named, or all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("peers", nargs="*", metavar="PEER", help=f"{', '.join(PEERS)}; all if none is named")
    parser.add_argument("--images", type=int, default=5_000, help="images whose captions are scored")
    parser.add_argument("--rounds", type=int, default=2)
    options = parser.parse_args()
    if unknown := set(options.peers) - PEERS.keys():
        parser.error(f"no such peer: {', '.join(sorted(unknown))}")
    torch.set_num_threads(1)
    # Both sides on the same Java.
    os.environ["PATH"] = f"{bundled_java().parent}{os.pathsep}{os.environ['PATH']}"
    os.environ["BENCH_JAVA"] = str(bundled_java())
    for name in options.peers or PEERS:
        peer = PEERS[name]
        if importlib.util.find_spec(peer.module) is None:
            print(f"{name}: not installed: uv run --with {peer.package} python benchmarks/peers.py {name}", flush=True)
            continue
        for comparison in peer.compare(options.images):
            theirs, ours = measure(comparison, options.rounds)
            print(
                f"{name}: {comparison.title}: {theirs:.2f} s, here {ours:.2f} s: {theirs / ours:.1f} times faster",
                flush=True,
            )


if __name__ == "__main__":
    main()
