"""The page of the paper track, docs/papers.md: what a paper or its code does, and what of it a preset does not do.

`python -m harness.config.papers docs` writes it anew from docs/papers.yaml; a test holds that it is current.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import yaml

from harness.config.load import list_presets, load_preset
from harness.utils.atomic import write_text
from harness.utils.errors import BenchError

SOURCE, PAGE = "papers.yaml", "papers.md"
_DATA: Final = "--data coco/dataset_coco.json --images coco/images"
_FEATURES: Final = (
    "what its models see, `--backbone swin_large_patch4_window12_384` (ExpansionNet v2), `--regions trainval` "
    "(ExpansionNet v1, Image Transformer) or `--backbone resnet50` (cGRU)"
)
_TOPICS: Final = ("captions", "decoding", "training")
_HEAD: Final = """\
# The papers

To reproduce a paper, fetch COCO and its features once. Then type the command of its preset, below:

```bash
bench data download coco
bench plan --preset aoanet-paper --models aoanet --data coco --cells 36 --channels 2048
```

- **Disk and time.** COCO takes 20 GB, and 34 GB on the way. `bench plan` with the options of the command says what
  the features and checkpoints take, and about how long it trains on this machine. Before data and
  features are here: as above, with `--cells` and `--channels` in place of `--backbone` or `--regions`.
- **Bottom-up features** (`--regions trainval`) come from https://github.com/peteranderson80/bottom-up-attention: the
  archive of 10 to 100 regions an image, `trainval.zip`, or that of 36, `trainval_36.zip`. Unpack it; the folder of
  TSV files is what `--regions` takes. Features of other authors (`coco_all_align.hdf5`, `X101_grid_feats_coco.hdf5`)
  come from repositories that [the models' page](models.md) links.
- **A backbone** (`--backbone`) of timm is downloaded. A model that ends with `/end-to-end` trains it too.
- **Tables after cross-entropy.** Add `--set 'stages=[xe]'`, with the name of the preset's first stage, and the
  table's beam, as `--set decoding.beam_size=3`. The whole command later goes on from these weights.
- **nocaps.** `bench data download nocaps` and `bench data nocaps` make `coco/dataset_coco_nocaps.json`
  ([nocaps](evaluation.md#nocaps)); name it in `--data`.

When a preset that ends with `-ablation` has run, `bench run` prints the paper's table beside the measured scores.
"""

_RULES: Final = """\
A preset with a recipe trains and decodes the models of one paper as its authors did: this is the **paper track**.
`bench schedules NAME` prints a preset whole, with the models that it is for. The table says what the paper or its code
does, and what still differs in the preset, and why. Where paper and released code disagree, the code counts, unless it
is known to train another model than the printed one; the commands here name the model of the code, as
`expansionnet_v1/released`, those of the tables that of the paper.

A generated unknown word is shown (`<unk>`), unless `decoding.banned` names it. Luo's rules for last words and repeated
trigrams are `decoding.bad_endings` and `decoding.trigram_penalty`; they are off, as in the released codes.
"""


def page(folder: Path) -> str:
    """The page's text, from `papers.yaml` in `folder`.

    Raises:
        BenchError: a preset of the paper track, or a topic of one, has no entry there, or an entry no preset.
    """
    stated = yaml.safe_load((folder / SOURCE).read_text(encoding="utf-8"))
    tables = stated.pop("tables")
    presets = {name for name in list_presets() if load_preset(name).recipe is not None}
    if unlike := presets ^ stated.keys():
        raise BenchError(f"{SOURCE} and the presets differ in {', '.join(sorted(unlike))}", "add or remove entries")
    return _HEAD + _tables(tables) + _presets({name: stated[name] for name in sorted(stated)})


def _tables(stated: Mapping[str, Sequence[Mapping[str, str]]]) -> str:
    """Every table of the papers, and what makes it."""
    lines = ["\n## The tables of five papers, each by its command\n"]
    lines += [f"Add to each `bench run` {_FEATURES}, and `{_DATA}` where it names no data.\n"]
    for paper, rows in stated.items():
        lines += [f"**{paper}**\n", "| | What | Command |", "|---|---|---|"]
        lines += [f"| {row['where']} | {row['what']} | {row['how']} |" for row in rows]
        lines.append("")
    return "\n".join(lines)


def _presets(stated: Mapping[str, Mapping[str, Any]]) -> str:
    """The command of every preset, and what its paper or the released code does that it does not."""
    lines = ["\n## The presets\n", _RULES, "```sh"]
    lines += [f"bench run --preset {preset} {topics['run']} {_DATA}" for preset, topics in stated.items()]
    lines += ["```\n", "| Preset | | Paper or code | Still differs |", "|---|---|---|---|"]
    for preset, topics in stated.items():
        if topics.keys() != {"run", *_TOPICS}:
            raise BenchError(f"{SOURCE}: {preset} needs the topics run, {', '.join(_TOPICS)}", "add or remove topics")
        for topic in _TOPICS:
            said = topics[topic]
            cells = (f"`{preset}`", topic, said["source"], said["differs"])
            lines.append("| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def main(arguments: list[str]) -> None:
    """Write the page into the folder that is named."""
    folder = Path(arguments[0]) if arguments else Path("docs")
    write_text(folder / PAGE, page(folder))


if __name__ == "__main__":
    main(sys.argv[1:])
