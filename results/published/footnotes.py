"""Footnotes of printed numbers, most of all where papers disagree; both numbers are kept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from results.published.scores import PublishedScore


@dataclass(frozen=True, slots=True)
class Footnote:
    """What a reader should know of some printed numbers: those of the named papers' tables, models and metrics.

    `where` are "paper, table" as `PublishedScore.source` writes them; empty fields stand for every one.
    """

    text: str
    where: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    variants: tuple[str, ...] = ()
    metrics: tuple[str, ...] = ()
    objective: str = ""

    def concerns(self, score: PublishedScore) -> bool:
        """Whether it belongs to a printed number."""
        return (
            (not self.where or score.source in self.where)
            and (not self.models or score.model in self.models)
            and (not self.variants or score.variant in self.variants)
            and (not self.metrics or score.metric in self.metrics)
            and self.objective in {"", score.objective}
        )


def footnotes(score: PublishedScore) -> list[Footnote]:
    """Every footnote of a printed number."""
    return [footnote for footnote in FOOTNOTES if footnote.concerns(score)]


def domain_footnote(images: Mapping[str, int]) -> Footnote | None:
    """The footnote of scores of nocaps by domain where the domains are other images than the printed ones'.

    The server's validation domains and those that copies of the annotations state are not the same.

    Args:
        images: how many each domain has here, by name ("in-domain", "near-domain", "out-domain"); 0: not known.
    """
    if images == _SERVER_DOMAINS:
        return None
    here, there = (
        ", ".join(f"{count:,} {name}" for name, count in counts.items()) for counts in (images, _SERVER_DOMAINS)
    )
    told = f"are of other images here: {here}, as the annotations say" if all(images.values()) else "may differ here"
    return Footnote(
        f"Domains {told}; printed scores by domain are of the nocaps server's {there}, but for ExpansionNet v2's, "
        "which fit the annotations' (docs/evaluation.md)."
    )


_SERVER_DOMAINS = {"in-domain": 648, "near-domain": 2938, "out-domain": 914}

FOOTNOTES = (
    Footnote(
        "Base of the ExpansionNet v2 ablation: the CIDEr-D is 115.8 in both versions, on the test split in one and on "
        "the validation split in the other; all its other scores differ.",
        ("expansionnet_v2_arxiv, Table 2", "expansionnet_v2, Table I"),
        ("transformer_base",),
    ),
    Footnote(
        "The two ablations of ExpansionNet v2 are on different splits: the arXiv version's on test, the later one's on "
        "validation.",
        ("expansionnet_v2_arxiv, Table 2", "expansionnet_v2, Table I"),
        ("expansionnet_v2",),
    ),
    Footnote(
        "Uniform groups: the arXiv table lists 128, 384 and 512 but its text 128, 256 and 512; the later table lists "
        "128, 256 and 512 but its text 128, 384 and 512.",
        ("expansionnet_v2_arxiv, Table 2", "expansionnet_v2, Table I"),
        ("expansionnet_v2",),
        (
            "static G={256, 256, 256, 256, 256}; dynamic NE=16",
            "static G={384, 384, 384, 384, 384}; dynamic NE=16",
        ),
    ),
    Footnote(
        "ROUGE-L of the 64/16 ablation model under XE is 56.8 in Tables 2 and 3, 56.9 in Table 4.",
        ("expansionnet_v1, Table 2", "expansionnet_v1, Table 3", "expansionnet_v1, Table 4"),
        ("expansionnet_v1",),
        ("ablation; static NE=64; dynamic NE=16; N=3", "static NE=64; dynamic NE=16"),
        ("ROUGE-L",),
        "XE",
    ),
    Footnote(
        "X-Transformer online: CIDEr-D 129.3 (c5) and 131.4 (c40) with ResNet-101 in expansionnet_v1, 131.1 and 133.5 "
        "in both versions of ExpansionNet v2, which do not state the features.",
        ("expansionnet_v1, Table 5", "expansionnet_v2_arxiv, Table 5", "expansionnet_v2, Table IV"),
        ("x_transformer",),
    ),
    Footnote(
        "AoANet under XE: CIDEr-D 119.8 as other papers quote it, 116.6 as image_transformer ran it again for the "
        "baseline of its ablation.",
        (),
        ("aoanet",),
        (),
        ("CIDEr-D",),
        "XE",
    ),
    Footnote(
        "AoANet online is not marked as a fusion in image_transformer; expansionnet_v1 marks the same numbers as an "
        "ensemble's.",
        ("image_transformer, Table 2", "expansionnet_v1, Table 5"),
        ("aoanet",),
    ),
    Footnote(
        "GCN-LSTM's CIDEr-D of 128.7 in image_transformer is its ensemble's; the single model has 127.6 in "
        "expansionnet_v1.",
        ("image_transformer, Table 1", "expansionnet_v1, Table 4"),
        ("gcn_lstm",),
        (),
        ("CIDEr-D",),
    ),
    Footnote(
        "SGAE's printed scores are of a dictionary that was trained on scene graphs of sentences first; here it learns "
        "with the captions alone.",
        (),
        ("sgae",),
    ),
    Footnote(
        "GCN-LSTM's BLEU-1 online is printed in image_transformer alone; the other papers leave it out.",
        ("image_transformer, Table 2",),
        ("gcn_lstm",),
        (),
        ("BLEU-1",),
    ),
    Footnote(
        "Standard training on one A100 takes 15 days, 6 times the authors' own, in the arXiv version, but 7 days, 2.8 "
        "times, in the later one; the authors' own takes 2.5 days in both.",
        ("expansionnet_v2_arxiv, Table 1", "expansionnet_v2, Table VII"),
        (),
        (),
        ("train_time_days", "speedup", "train_time_ratio"),
    ),
    Footnote(
        "The nocaps text claims 1.4 SPICE over Up-Down; the table gives 11.4 - 10.1 = 1.3.",
        ("expansionnet_v2_arxiv, Table 6", "expansionnet_v2, Table V"),
        ("expansionnet_v2", "updown"),
        (),
        ("SPICE",),
    ),
    Footnote(
        "The table prints a change of +63 thousandths of CIDEr-D; 1.071 - 1.018 is +53.",
        ("light_cgru, Table 3",),
        ("cgru",),
        (),
        ("CIDEr-D",),
    ),
    Footnote(
        "The visual vector has 2,048 dimensions in the paper's Section 2.3 and Table 1, 1,024 in its Section 3.",
        ("light_cgru, Table 1", "light_cgru, Table 2", "light_cgru, Table 3"),
        ("cgru",),
    ),
    Footnote(
        "Top-down stands twice in the table, with 204 K and with 920 K attention features; the second equals Up-Down's "
        "XE row elsewhere.",
        ("light_cgru, Table 1",),
        ("updown",),
    ),
    Footnote(
        "38 M parameters are printed; 38,604,560 are counted without the backbone.",
        ("expansionnet_v2, Table VII",),
        ("expansionnet_v2",),
        (),
        ("params_M",),
    ),
    Footnote(
        "The English text lost one cell of the column of parameters and shifted two; its seven values are assigned to "
        "the seven models in order.",
        ("expansionnet_v2, Table VII",),
        (),
        (),
        ("params_M", "params_ratio"),
    ),
    Footnote(
        "The online tables print no objective.",
        (
            "expansionnet_v2_arxiv, Table 5",
            "expansionnet_v2, Table IV",
            "expansionnet_v1, Table 5",
            "image_transformer, Table 2",
        ),
    ),
    Footnote(
        "Very likely made on the graph of the released code (image_transformer/official-graph), which takes for parent "
        "and child many boxes that are not so by the paper's definition.",
        ("image_transformer, Table 1", "image_transformer, Table 2", "image_transformer, Table 3"),
        ("image_transformer",),
        (
            "M=3",
            "baseline + spatial encoding layer 1",
            "baseline + spatial encoding layer 2",
            "baseline + spatial encoding layer 3",
            "baseline + spatial encoding layers 1,2,3",
            "baseline + spatial encoding layers 1,2,3; M=2",
            "baseline + spatial encoding layers 1,2,3; M=3",
            "baseline + spatial encoding layers 1,2,3; M=4",
        ),
    ),
    Footnote(
        "Of REINFORCE the paper states loss, reward and baseline; its rate, batch and end are not the paper's in the "
        "preset cgru-paper.",
        ("light_cgru, Table 3", "light_cgru, Table 1"),
        ("cgru",),
        (),
        (),
        "RL",
    ),
    Footnote(
        "Trained on 82,783 images, without restval, which is a part of training here.",
        ("light_cgru, Table 1", "light_cgru, Table 2", "light_cgru, Table 3"),
        ("cgru",),
    ),
)
