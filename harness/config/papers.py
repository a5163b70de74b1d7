"""The page of the paper track, docs/papers.md: what a paper or its code does, what the preset does, what still differs.

`python -m harness.config.papers docs` writes it anew from the presets and from docs/papers.yaml; a test holds that it
is current.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import yaml

from harness.config.load import list_presets, load_preset
from harness.config.preset import Preset
from harness.config.schedule import Stage
from harness.utils.atomic import write_text
from harness.utils.errors import BenchError

SOURCE, PAGE = "papers.yaml", "papers.md"
_DATA: Final = "--data coco/dataset_coco.json --images coco/images"
_FEATURES: Final = (
    "what its models see, `--backbone swin_large_patch4_window12_384` (ExpansionNet v2), `--regions trainval` "
    "(ExpansionNet v1, Image Transformer) or `--backbone resnet50` (cGRU)"
)
_DIFFERENTIATED: Final = {
    "second-pass": "captions in a second pass",
    "steps": "pass that drew the captions",
    "prefixes": "pass that drew the captions, over whole prefixes",
}
_HEAD: Final = """\
# The papers

To reproduce a paper, fetch COCO and its features once. Then type the command of its preset, below:

```bash
bench data download coco
bench plan --preset aoanet-paper --models aoanet --data coco
```

- **Disk and time.** COCO takes 20 GB, and 34 GB on the way. `bench plan` with the options of the command says what
  the features and checkpoints take, and about how long it trains on this machine. Before the data are here it knows
  their sizes alone: as above, with `--cells` and `--channels` in place of `--backbone` or `--regions`.
- **Bottom-up features** (`--regions trainval`) come from https://github.com/peteranderson80/bottom-up-attention: the
  archive of 10 to 100 regions an image, `trainval.zip`, or that of 36, `trainval_36.zip`. Unpack it; the folder of
  TSV files is what `--regions` takes. Features of other authors (`coco_all_align.hdf5`, `X101_grid_feats_coco.hdf5`)
  come from repositories that [the models' page](models.md) links.
- **A backbone** (`--backbone`) of timm is downloaded. A model that ends with `/end-to-end` trains it too, on the
  pictures.
- **Tables after cross-entropy.** Add `--set 'stages=[xe]'`, with the name of the preset's first stage, and the
  table's beam, as `--set decoding.beam_size=3`. The whole command later goes on from these weights.
- **nocaps.** `bench data download nocaps` and `bench data nocaps` make `coco/dataset_coco_nocaps.json` ([Data of your
  own](own_data.md#public-data-sets)); name it in `--data`.

A preset with a recipe trains and decodes the models of one paper as its authors did: this is the **paper track**. For
each, this page says what the paper or its code does, what the preset does, and what still differs and why. What the
preset does is read from it; the page is written by `python -m harness.config.papers docs`, from what
`docs/papers.yaml` says of the papers.

Where paper and released code disagree, the code counts, unless it is known to train another model than the printed
one. A generated unknown word is shown (`<unk>`, or UNK where a paper's vocabulary calls it so), unless
`decoding.banned` names it. The rules of Luo's code for last words and repeated trigrams are `decoding.bad_endings`
and `decoding.trigram_penalty`. Both are off by default in that code and in what builds on it, and so in the presets;
its trigram rule is for greedy decoding and sampling alone, here it works in beam search.

When a preset that ends with `-ablation` has run, `bench run` prints the paper's table beside the measured scores.
"""


def page(folder: Path) -> str:
    """The page's text, from `papers.yaml` in `folder`.

    Raises:
        BenchError: a preset of the paper track, or a topic of one, has no entry there, or an entry no preset.
    """
    stated = yaml.safe_load((folder / SOURCE).read_text(encoding="utf-8"))
    tables = stated.pop("tables")
    presets = [preset for preset in map(load_preset, list_presets()) if preset.recipe is not None]
    if unlike := {preset.name for preset in presets} ^ stated.keys():
        raise BenchError(f"{SOURCE} and the presets differ in {', '.join(sorted(unlike))}", "add or remove entries")
    return _HEAD + _tables(tables) + "".join(_section(preset, stated[preset.name]) for preset in presets)


def _tables(stated: Mapping[str, Sequence[Mapping[str, str]]]) -> str:
    """Every table of the papers, and what makes it."""
    lines = ["\n## The tables of five papers, each by its command\n"]
    lines += [f"Add to each `bench run` {_FEATURES}, and `{_DATA}` where it names no data.\n"]
    for paper, rows in stated.items():
        lines += [f"**{paper}**\n", "| | What | Command |", "|---|---|---|"]
        lines += [f"| {row['where']} | {row['what']} | {row['how']} |" for row in rows]
        lines.append("")
    return "\n".join(lines)


def _section(preset: Preset, stated: Mapping[str, Any]) -> str:
    assert preset.recipe is not None
    if stated.keys() != {"run", *_TOPICS}:
        raise BenchError(f"{SOURCE}: {preset.name} needs the topics run, {', '.join(_TOPICS)}", "add or remove topics")
    models = ", ".join(f"`{each}`" for each in preset.recipe.models)
    lines = [f"\n## {preset.name}\n"]
    lines += ["```sh", f"bench run --preset {preset.name} {stated['run']} {_DATA}", "```\n"]
    lines += ["| | Paper or code | Preset | Still differs |", "|---|---|---|---|", f"| models | | {models} | |"]
    for topic, describe in _TOPICS.items():
        said = stated[topic]
        cells = (topic, said["source"], describe(preset), said["differs"])
        lines.append("| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def _captions(preset: Preset) -> str:
    recipe, vocabulary = preset.recipe, preset.vocabulary
    assert recipe is not None
    merges = f", BPE of {vocabulary.merges:,} merges" if vocabulary.kind == "bpe" else ""
    text = f"`captions: {recipe.captions}`{merges}, at least {vocabulary.min_count} times, {vocabulary.max_len} tokens"
    return f"{text}; restval: {recipe.restval}; images not in RGB: {recipe.non_rgb}"


def _decoding(preset: Preset) -> str:
    decoding = preset.decoding
    named = [f"beam {decoding.beam_size}", f"{decoding.max_len} tokens", f"length penalty {decoding.length_penalty:g}"]
    return ", ".join([*named, *(f"`{name}`" for name in decoding.paper_deviations())])


def _training(preset: Preset) -> str:
    return "; ".join(f"{stage.name}: {', '.join(_stage(stage))}" for stage in preset.schedule.stages)


def _stage(stage: Stage) -> Iterator[str]:
    rate = stage.learning_rate
    yield f"{stage.epochs} epochs of {stage.objective.replace('_', '-')}"
    yield f"batches of {stage.batch_size} {stage.batch_of}"
    yield f"{stage.optimiser.name} at {rate.peak:g} ({rate.annealing}, warm-up {rate.warmup_steps:,})"
    if stage.accumulation.parts > 1:
        yield f"{stage.accumulation.parts} gradients {stage.accumulation.gradients}"
    if stage.label_smoothing:
        yield f"smoothing {stage.label_smoothing:g}"
    if stage.scheduled_sampling is not None:
        yield f"scheduled sampling to {stage.scheduled_sampling.most:g}"
    if reward := stage.reward_signature():
        yield f"`{reward}`"
    if stage.objective == "self_critical":
        yield f"gradient of the {_DIFFERENTIATED[stage.self_critical.gradient]}"
    if stage.clip_norm is not None:
        yield f"clipped at a norm of {stage.clip_norm:g}"
    if stage.clip_value is not None:
        yield f"clipped to ±{stage.clip_value:g}"
    yield "dropout as built" if stage.dropout is None else f"dropout {stage.dropout:g}"


_TOPICS: Final[Mapping[str, Callable[[Preset], str]]] = {
    "captions": _captions,
    "decoding": _decoding,
    "training": _training,
}


def main(arguments: list[str]) -> None:
    """Write the page into the folder that is named."""
    folder = Path(arguments[0]) if arguments else Path("docs")
    write_text(folder / PAGE, page(folder))


if __name__ == "__main__":
    main(sys.argv[1:])
