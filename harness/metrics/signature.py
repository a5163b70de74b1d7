"""Evaluation signatures, as in sacreBLEU: everything besides the captions that a score depends on.

Post, "A Call for Clarity in Reporting BLEU Scores", WMT 2018. A signature is built field by field from the settings of
the evaluation, so that no option can be left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Final, Literal
from urllib.parse import quote

import harness
from harness.utils.hashing import digest

TokenizerName = Literal["python", "java"]
DomainFrequencies = Literal["all", "subset"]
TOKENIZERS: Final[dict[TokenizerName, str]] = {"python": "ptb-python", "java": "ptb-java"}
"""Names of the tokenizers in signatures."""


@dataclass(frozen=True, slots=True)
class EvaluationSettings:
    """Every choice of an evaluation that may change a score; each field appears in the signature.

    `tokenizer`: the Python tokenizer or the Java original. `domain_df`: document frequencies of a domain's CIDEr-D,
    over all images, as the nocaps server does, or over the domain's alone, as many papers did. `meteor` and `spice`:
    whether they were requested, which changes no other score.
    """

    tokenizer: TokenizerName = "python"
    domain_df: DomainFrequencies = "all"
    meteor: bool = field(default=True, metadata={"only_adds": True})
    spice: bool = field(default=False, metadata={"only_adds": True})


_SHORT: Final = {"tokenizer": "tok", "domain_df": "df", "meteor": "meteor", "spice": "spice"}
"""Names of the settings in signatures."""
_SAFE: Final = " #,=-_.()"


@dataclass(frozen=True, slots=True)
class Signature:
    """Fields by short name, in the order of display. Scores with different fields are not comparable."""

    fields: dict[str, str]

    def short(self) -> str:
        """As printed beside a score: `nrefs:5|refs:coco#1f3a09bc|n:5000|...`."""
        return "|".join(f"{name}:{quote(value, safe=_SAFE)}" for name, value in self.fields.items())


def evaluation_signature(
    settings: EvaluationSettings,
    references: Mapping[int, Sequence[str]],
    *,
    name: str,
    of: int | None = None,
    domains: Mapping[str, Sequence[int]] | None = None,
) -> Signature:
    """The signature of an evaluation.

    Args:
        of: number of images in the reference file, if only a subset was scored.
    """
    counts = {len(texts) for texts in references.values()}
    signed = {
        "nrefs": str(min(counts)) if len(counts) == 1 else f"{min(counts, default=0)}-{max(counts, default=0)}",
        "refs": f"{name}#{digest([[image_id, list(references[image_id])] for image_id in sorted(references)], 8)}",
        "n": str(len(references)),
    }
    if of is not None and of != len(references):
        signed["of"] = str(of)
    if domains:
        signed["domains"] = ",".join(f"{domain}={len(members)}" for domain, members in domains.items())
    for option in fields(settings):
        signed[_SHORT[option.name]] = _shown(option.name, getattr(settings, option.name))
    signed["v"] = harness.__version__
    return Signature(signed)


def run_fields(settings: EvaluationSettings) -> dict[str, str]:
    """The fields of a benchmark run's signature that come from settings which change scores.

    Settings that only add a metric are left out: adding a metric does not change the run.
    """
    changing = [option.name for option in fields(settings) if not option.metadata.get("only_adds")]
    signed = {_SHORT[name]: _shown(name, getattr(settings, name)) for name in changing}
    return signed | {"df": {"all": "split", "subset": "domain"}[settings.domain_df]}


def _shown(name: str, value: Any) -> str:
    if name == "tokenizer":
        return TOKENIZERS[value]
    if isinstance(value, bool):
        return {"meteor": "1.5", "spice": "1.0"}[name] if value else "none"
    return str(value)
