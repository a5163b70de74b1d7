"""Small faults, each in a copy of the tree: does `bench regress` fail, which layer sees it, and does it say where?

    uv run python benchmarks/regress_mutations.py --out mutations.md [--only NAME] [--untouched 20]

Set `ATEN_CPU_CAPABILITY=default ONEDNN_MAX_CPU_ISA=SSE41 MKL_CBWR=COMPATIBLE` for another instruction set than the
baseline's. A fault whose text is no longer there exactly once is an error. Libraries are imported once, then a process
is forked for each fault, which takes some ten CPU seconds.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("zoo", "harness", "results", "reports")
BASELINE = Path("baselines/gate")


@dataclass(frozen=True)
class Mutation:
    """One text of one file replaced, and a model that has the part."""

    name: str
    path: str
    old: str
    new: str
    model: str = "transformer_base"


M = Mutation
MUTATIONS = (
    # The model.
    M("causal mask left out", "zoo/layers/attention.py", "is_causal=True)", "is_causal=False)"),
    M("first image cell hidden", "zoo/layers/attention.py",
      "hidden = mask[:, None, None] != sees_something",
      "hidden = mask[:, None, None] != sees_something\n    hidden[..., :1] = True"),
    M("positions shifted by one", "zoo/layers/embedding.py",
      "self.at_position(tokens, self.positions(positions))",
      "self.at_position(tokens, self.positions((positions - 1).clamp(min=0)))"),
    M("positions of steps shifted by one", "zoo/stacked.py", 'shared["positions"][0])', 'shared["positions"][1])'),
    M("words scaled by D^0.25", "zoo/layers/embedding.py", "d_model**0.5 if scale", "d_model**0.25 if scale"),
    M("last norm left out", "zoo/layers/residual.py", "normed: Tensor = self.norm(x)\n        return normed",
      "normed: Tensor = x\n        return normed"),
    M("weights begin 2 % larger", "zoo/stacked.py",
      "xavier_uniform_(parameter)", "xavier_uniform_(parameter, 1.02)"),
    M("scores by d^-0.4", "zoo/layers/attention.py", "keys, values, mask, dropout)\n\n\ndef mask_to_bias",
      "keys, values, mask, dropout, scale=queries.shape[-1] ** -0.4)\n\n\ndef mask_to_bias"),
    M("expansion not normalised by all", "zoo/layers/expansion.py",
      "weights.sum(dim, keepdim=True) +", "1.1 * weights.sum(dim, keepdim=True) +", "expansionnet_v2"),
    M("LSTM's gates swapped", "zoo/fast/lstm.py",
      "torch.mul(output_gate, torch.tanh(cell, out", "torch.mul(input_gate, torch.tanh(cell, out", "updown"),
    M("attention's scores halved", "zoo/fast/updown.py",
      "score.view(-1), alpha=2)", "score.view(-1), alpha=1)", "updown"),
    M("cells of features in columns", "harness/data/backbones/scenesnet.py",
      "cells.flatten(2).transpose(1, 2)", "cells.transpose(2, 3).flatten(2).transpose(1, 2)"),
    # Decoding.
    M("dropout left on in captioning", "harness/inference/generate.py",
      "    with eval_mode(model), autocast", "    model.train()\n    with autocast"),
    M("beam one narrower", "harness/inference/generate.py",
      "beam_size=decoding.beam_size", "beam_size=decoding.beam_size - 1"),
    M("wrong token begins", "harness/inference/generate.py", "bos=vocabulary.bos", "bos=vocabulary.unk"),
    M("length penalty left out", "harness/inference/generate.py",
      "length_penalty=decoding.length_penalty", "length_penalty=0.0"),
    M("captions cut at 10 words", "harness/inference/generate.py", "max_len=decoding.max_len", "max_len=10"),
    M("worst beam first", "zoo/decoding.py",
      "self.scores.sort(dim=1, descending=True", "self.scores.sort(dim=1, descending=False"),
    M("finished beams lose 1", "zoo/decoding.py",
      "device=device) == 0, 0.0, -torch.inf)", "device=device) == 0, -1.0, -torch.inf)"),
    M("beams not reordered", "zoo/decoding.py",
      "state.reorder(origin.flatten())", "state.reorder(origin.flatten().sort()[0])"),
    M("samples at temperature 1.1", "zoo/decoding.py", "log_probs.exp(), 1)", "(log_probs / 1.1).exp(), 1)"),
    M("captions said backwards", "harness/data/vocabulary.py",
      "return [self._words_by_id.get(number) for number in self._before_end(ids)]",
      "return [self._words_by_id.get(number) for number in self._before_end(ids)][::-1]"),
    # Training.
    M("label smoothing left out", "harness/training/objectives.py",
      "self.stage.label_smoothing, self.pad)", "0.0, self.pad)"),
    M("label smoothing 0.1 larger", "harness/training/objectives.py",
      "label_smoothing=label_smoothing\n", "label_smoothing=label_smoothing + 0.1\n"),
    M("padding is learned too", "harness/training/objectives.py", "ignore_index=pad,", "ignore_index=-100,"),
    M("learning rate x 1.1", "harness/training/trainer.py",
      "set_rate(optimiser, rate)", "set_rate(optimiser, 1.1 * rate)"),
    M("learning rate one step late", "harness/training/trainer.py",
      "learning_rate.at(state.step, batches", "learning_rate.at(max(state.step - 1, 0), batches"),
    M("cosine falls 10 % lower", "harness/config/schedule.py", "0.5 * (1 + math.cos", "0.45 * (1 + math.cos"),
    M("weight decay left out", "harness/training/optimisers.py",
      "weight_decay=settings.weight_decay, **fused)", "weight_decay=0.0, **fused)"),
    M("torch's betas", "harness/training/optimisers.py",
      "lr=0.0, betas=settings.betas,", "lr=0.0, betas=(0.9, 0.999),"),
    M("Muon's momentum 0.9", "harness/training/optimisers.py", "MOMENTUM = 0.95", "MOMENTUM = 0.9"),
    M("Muon's updates 25 % larger", "harness/training/optimisers.py", "RMS = 0.2\n", "RMS = 0.25\n"),
    M("Muon with one step fewer", "harness/training/optimisers.py", ", (2.6613, -1.9772, 0.4526))", ")"),
    M("gradients not clipped", "harness/training/trainer.py",
      "max_norm = stage.clip_norm if stage.clip_norm and will_step else math.inf", "max_norm = math.inf"),
    M("gradients of steps add up", "harness/training/trainer.py",
      "optimiser.zero_grad(set_to_none=True)\n\n        # Count", "pass\n\n        # Count"),
    M("dropout never set", "harness/training/stage.py", "set_dropout(stage.dropout)", "set_dropout(0.0)"),
    M("another seed in training", "harness/training/trainer.py",
      "torch.manual_seed(self._seed + state.stage", "torch.manual_seed(self._seed + 1 + state.stage"),
    M("scheduled sampling left out", "harness/training/objectives.py",
      "probability = sampling.probability(epoch)", "probability = 0.0"),
    M("own reward in the baseline", "harness/training/self_critical.py",
      "return (rewards.sum(1, keepdim=True) - rewards) / (rewards.shape[1] - 1)",
      "return rewards.mean(1, keepdim=True)"),
    M("end earns nothing", "harness/training/self_critical.py",
      "self._with_end and self._vocabulary.eos in tokens", "False"),
    M("one sample fewer", "harness/training/self_critical.py",
      "memory, n=settings.samples, gradients", "memory, n=settings.samples - 1, gradients"),
    # Data.
    M("batches in the data's order", "harness/data/batches.py",
      "random.permutation(len(self._ids)).tolist()", "list(range(len(self._ids)))"),
    M("last batch left out", "harness/data/batches.py", "if drop_last else len(self._ids)", "if batch_size else 0"),
    M("first caption alone", "harness/data/batches.py",
      "np.take_along_axis(ranked, ranks, axis=1)", "np.zeros_like(np.take_along_axis(ranked, ranks, axis=1))"),
    M("pixels x 0.98", "harness/data/images.py",
      "dtype=np.float32) / np.float32(255)", "dtype=np.float32) / np.float32(260)"),
    M("always bilinear", "harness/data/images.py",
      "_RESAMPLING[self.interpolation]", '_RESAMPLING["bilinear"]'),
    M("pixels not centred", "harness/data/images.py", "np.float32(255) - mean)", "np.float32(255) - np.float32(0.4))"),
    M("capitals kept in training", "harness/data/vocabulary.py", "caption).lower()).translate", "caption)).translate"),
    M("rare words first", "harness/data/vocabulary.py",
      "key=lambda word: (-counts[word], word)", "key=lambda word: (counts[word], word)"),
    # Metrics.
    M("capitals kept in scoring", "harness/metrics/ptb.py", "    token = token.lower()\n", ""),
    M("a reference left out", "harness/benchmark/scoring.py",
      "sample.image_id: sample.captions for", "sample.image_id: sample.captions[1:] for"),
    M("CIDEr-D's sigma 5", "harness/metrics/cider.py", "SIGMA: Final = 6.0", "SIGMA: Final = 5.0"),
    M("CIDEr-D of one more image", "harness/metrics/ngrams.py",
      "np.log(float(self.images)) - np.log(counts)", "np.log(float(self.images + 1)) - np.log(counts)"),
    M("BLEU's brevity turned", "harness/metrics/bleu.py", "np.exp(1.0 - 1.0 / ratio)", "np.exp(1.0 - ratio)"),
    M("ROUGE-L's beta 1", "harness/metrics/rouge.py", "BETA: Final = 1.2", "BETA: Final = 1.0"),
    # Settings.
    M("beam 3 to 2 in the preset", "harness/config/presets/first-steps.yaml", "beam_size: 3", "beam_size: 2"),
)  # fmt: skip


def copy_tree(folder: Path) -> None:
    """What a run needs, with compiled files, which stay valid as times are kept."""
    for name in PACKAGES:
        shutil.copytree(ROOT / name, folder / name)


def write_baseline(folder: Path, model: str) -> None:
    """The committed baseline for one model alone, which takes a third of the time."""
    from results.comparison.recording import FILE, Recording

    whole, place = Recording.read(ROOT / BASELINE), folder / BASELINE
    others = tuple(f"{name}." for name in whole.request.models if name != model)
    kept = []
    for recorded in whole.series:
        if recorded.model not in ("", model):
            continue
        if recorded.layer == "settings":
            values = {name: value for name, value in recorded.by_position().items() if not name.startswith(others)}
            recorded = recorded.model_copy(update={"positions": tuple(values), "values": tuple(values.values())})
        kept.append(recorded)
    request = whole.request.model_copy(update={"models": (model,)})
    place.mkdir(parents=True, exist_ok=True)
    baseline = whole.model_copy(update={"request": request, "series": tuple(kept)})
    (place / FILE).write_text(baseline.text(), encoding="utf-8")
    shutil.copyfile(ROOT / BASELINE / f"{model}.safetensors", place / f"{model}.safetensors")


def apply(mutation: Mutation, folder: Path) -> Callable[[], object]:
    """Change the file; gives what puts it back."""
    path = folder / mutation.path
    text = path.read_text(encoding="utf-8")
    if text.count(mutation.old) != 1:
        raise SystemExit(f"{mutation.name}: {mutation.path} has its text {text.count(mutation.old)} times")
    path.write_text(text.replace(mutation.old, mutation.new), encoding="utf-8")
    shutil.rmtree(path.parent / "__pycache__", ignore_errors=True)
    return partial(shutil.copy2, ROOT / mutation.path, path)


def preload() -> None:
    """Import what is heavy and not the project's, once for all forks."""
    import importlib

    heavy = "torch torch._dynamo torchvision timm scipy.stats pandas sqlalchemy pydantic PIL.Image typer"
    for name in heavy.split():
        with contextlib.suppress(ImportError, RuntimeError):  # a torchvision of another torch
            importlib.import_module(name)


def regress(folder: Path) -> dict[str, Any]:
    """`bench regress` of a tree, in a forked process: its findings, with the exit code."""
    out = folder / "findings" / "findings.json"
    out.unlink(missing_ok=True)
    child = os.fork()
    if child == 0:
        code = 99
        try:
            os.chdir(folder)
            sys.path[:] = [
                str(folder),
                *(each for each in sys.path if Path(each).resolve() not in (ROOT, ROOT / "benchmarks")),
            ]
            for name in [name for name in sys.modules if name.partition(".")[0] in PACKAGES]:
                del sys.modules[name]
            with (folder / "log.txt").open("w") as log:
                os.dup2(log.fileno(), 1), os.dup2(log.fileno(), 2)
                from harness.cli.__main__ import main

                sys.argv = ["bench", "regress", "--findings", str(folder / "findings")]
                main()
            code = 0
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else 98
        except BaseException as error:
            print(repr(error), flush=True)
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    found = json.loads(out.read_text(encoding="utf-8")) if out.exists() else {"recording": None}
    return {"exit": os.waitstatus_to_exitcode(status), "log": (folder / "log.txt").read_text(), **found}


@dataclass(frozen=True)
class Seen:
    """What the gate said of a fault: the layers that see it, the first finding, and whether that names the place."""

    fault: str
    layers: str
    first: str
    named: bool

    @classmethod
    def of(cls, mutation: Mutation, result: dict[str, Any]) -> Seen:
        """From the findings of a run."""
        findings = (result["recording"] or {"findings": []})["findings"]
        if not findings:
            return cls(mutation.name, "refused" if result["exit"] else "nothing", result["log"].strip()[-80:], False)
        top = findings[0]
        named = mutation.path.startswith(tuple(top["likely"]))
        layers = ", ".join(dict.fromkeys(each["layer"] for each in findings))
        return cls(mutation.name, layers, f"{top['what']}, {top['each']} {top['place']}", named)


def table(found: Sequence[Seen]) -> str:
    """Faults by the layers that see them, each with what is found first."""
    lines = ["| Seen by | Faults, each with the first finding |", "|---|---|"]
    for layers in sorted({each.layers for each in found}, key=lambda name: [each.layers for each in found].index(name)):
        faults = (f"{each.fault} ({each.first.partition(',')[0]})" for each in found if each.layers == layers)
        lines.append(f"| {layers} | {'; '.join(faults).replace('|', '/')} |")
    return "\n".join([*lines, ""])


def main() -> None:
    """Run them, and write the table."""
    options = argparse.ArgumentParser()
    options.add_argument("--out", type=Path)
    options.add_argument("--only", action="append", default=[])
    options.add_argument("--untouched", type=int, default=0, help="runs of the untouched code instead")
    options.add_argument("--check", action="store_true", help="only see that every text is there once")
    given = options.parse_args()
    chosen = [each for each in MUTATIONS if not given.only or any(part in each.name for part in given.only)]
    found: list[Seen] = []
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        copy_tree(folder)
        if given.check:
            for each in chosen:
                apply(each, folder)()
            return
        preload()
        failed = 0
        for number in range(given.untouched):
            shutil.copytree(ROOT / BASELINE, folder / BASELINE, dirs_exist_ok=True)
            result = regress(folder)
            failed += result["exit"] != 0
            print(
                f"untouched {number + 1}: exit {result['exit']}: {result.get('conclusion', result['log'][-300:])}",
                flush=True,
            )
        for each in chosen if not given.untouched else ():
            shutil.rmtree(folder / BASELINE, ignore_errors=True)
            write_baseline(folder, each.model)
            restore = apply(each, folder)
            result = regress(folder)
            restore()
            failed += result["exit"] != 0
            found.append(Seen.of(each, result))
            print(f"{result['exit']}: {found[-1]}", flush=True)
    print(f"{failed} of {given.untouched or len(chosen)} failed")
    if given.out:
        given.out.write_text(table(found), encoding="utf-8")


if __name__ == "__main__":
    main()
