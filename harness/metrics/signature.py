"""Evaluation signatures, as in sacreBLEU: everything besides the captions that a score depends on.

Post, "A Call for Clarity in Reporting BLEU Scores", WMT 2018. A test holds that no option is left out.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal
from urllib.parse import quote

import harness
from harness.utils.hashing import digest
from results.signature import format_signature

TokenizerName = Literal["python", "java"]
DomainFrequencies = Literal["all", "subset"]
TOKENIZERS: Final[dict[TokenizerName, str]] = {"python": "ptb-python", "java": "ptb-java"}


@dataclass(frozen=True, slots=True)
class EvaluationSettings:
    """Every choice of an evaluation that may change a score; each field appears in the signature.

    `tokenizer`: the Python tokenizer or the Java original. `domain_df`: document frequencies of a domain's CIDEr-D,
    over all images, as the nocaps server does, or over the domain's alone, as many papers did. `meteor` and `spice`:
    whether they were requested, which changes no other score.
    """

    tokenizer: TokenizerName = "python"
    domain_df: DomainFrequencies = "all"
    meteor: bool = True
    spice: bool = False


_SAFE: Final = " #,=-_.()"


def evaluation_signature(
    settings: EvaluationSettings,
    references: Mapping[int, Sequence[str]],
    *,
    name: str,
    of: int,
    domains: Mapping[str, Sequence[int]],
    by_position: bool = False,
) -> str:
    """The signature of an evaluation, as printed beside a score: `nrefs:5|refs:coco#1f3a09bc|n:5000|...`.

    Its fields are in the order of display; scores with different ones are not comparable. `of` is the number of images
    in the reference file, of which a subset may be scored; `by_position`: captions named no images.
    """
    counts = {len(texts) for texts in references.values()}
    signed = {
        "nrefs": str(min(counts)) if len(counts) == 1 else f"{min(counts, default=0)}-{max(counts, default=0)}",
        "refs": f"{name}#{digest([[image_id, list(references[image_id])] for image_id in sorted(references)], 8)}",
        "n": str(len(references)),
    }
    if of != len(references):
        signed["of"] = str(of)
    if by_position:
        signed["ids"] = "position"
    if domains:
        signed["domains"] = ",".join(f"{domain}={len(members)}" for domain, members in domains.items())
    signed |= {
        "tok": TOKENIZERS[settings.tokenizer],
        "df": settings.domain_df,
        "meteor": "1.5" if settings.meteor else "none",
        "spice": "1.0" if settings.spice else "none",
        "v": harness.__version__,
    }
    return format_signature({name: quote(value, safe=_SAFE) for name, value in signed.items()})


def run_fields(settings: EvaluationSettings) -> dict[str, str]:
    """The fields of a run's signature of settings that change scores; those that only add a metric are left out."""
    frequencies = {"all": "split", "subset": "domain"}
    return {"tok": TOKENIZERS[settings.tokenizer], "df": frequencies[settings.domain_df]}
