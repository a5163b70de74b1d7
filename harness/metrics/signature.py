"""Evaluation signatures, as in sacreBLEU: everything besides the captions that a score depends on.

Post, "A Call for Clarity in Reporting BLEU Scores", WMT 2018. A test checks that no option is left out.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal
from urllib.parse import quote

import harness
from harness.config.evaluation import TokenizerName
from harness.data.word_tokenizers import tokenizer_label
from harness.metrics.languages import METEOR_LANGUAGES, MeteorLanguage, language_of, missing_in_language
from harness.utils.hashing import digest
from results.signature import format_signature

DomainFrequencies = Literal["all", "subset"]


@dataclass(frozen=True, slots=True)
class EvaluationSettings:
    """The choices of an evaluation that may change a score; each field appears in the signature.

    Attributes:
        tokenizer: PTB's in Python, its Java original, or one for a language without spaces.
        domain_df: document frequencies of a domain's CIDEr-D: of all images, as on the nocaps server, or of the
            domain's subset, as in many papers.
        meteor, spice: whether they were requested; other scores do not depend on them.
        language: METEOR's; None for English, or the tokenizer's language.
    """

    tokenizer: TokenizerName = "python"
    domain_df: DomainFrequencies = "all"
    meteor: bool = True
    spice: bool = False
    language: str | None = None

    @property
    def meteor_language(self) -> MeteorLanguage | None:
        """METEOR's settings for the captions' language; None where METEOR does not support it."""
        return METEOR_LANGUAGES.get(language_of(self.tokenizer, self.language) or "")

    @property
    def is_english(self) -> bool:
        """Whether the captions' language is English, which is the default."""
        return language_of(self.tokenizer, self.language) == "en"

    @property
    def unavailable(self) -> dict[str, str]:
        """Metrics that do not support the captions' language, with the reason."""
        return missing_in_language(self.tokenizer, self.language)

    @property
    def java_metrics(self) -> set[str]:
        """METEOR and SPICE, if they were requested and support the language."""
        requested = {"METEOR": self.meteor, "SPICE": self.spice}
        return {metric for metric, is_requested in requested.items() if is_requested} - self.unavailable.keys()


DEFAULT_SETTINGS: Final = EvaluationSettings()
_SAFE: Final = " #,=-_.()"


def evaluation_signature(
    settings: EvaluationSettings,
    references: Mapping[int, Sequence[str]],
    *,
    name: str,
    n_requested: int,
    domains: Mapping[str, Sequence[int]],
    by_position: bool = False,
    limit: int | None = None,
) -> str:
    """The signature of an evaluation, such as `nrefs:5|refs:coco#1f3a09bc|n:5000|...`.

    Scores with different signatures are not comparable.

    Args:
        references: of the images that were scored.
        name: of the references.
        n_requested: number of images that were to be scored.
        domains: the images of each domain.
        by_position: whether captions were matched to images by their order.
        limit: number of first images of the reference file to which scoring was limited.
    """
    counts = {len(texts) for texts in references.values()}
    content = [[image_id, list(references[image_id])] for image_id in sorted(references)]
    signed = {
        "nrefs": str(min(counts)) if len(counts) == 1 else f"{min(counts, default=0)}-{max(counts, default=0)}",
        "refs": f"{name}#{digest(content, 8)}",
        "n": str(len(references)),
    }
    if n_requested != len(references):
        signed["of"] = str(n_requested)
    if limit is not None:
        signed["limit"] = str(limit)
    if by_position:
        signed["ids"] = "position"
    if domains:
        signed["domains"] = ",".join(f"{domain}={len(members)}" for domain, members in domains.items())
    signed |= {
        "tok": _tokenizer_field(settings.tokenizer),
        "df": settings.domain_df,
        "meteor": _meteor_field(settings) if settings.meteor else "none",
        "spice": "1.0" if "SPICE" in settings.java_metrics else "none",
        "v": harness.__version__,
    }
    return format_signature({name: quote(value, safe=_SAFE) for name, value in signed.items()})


def run_fields(settings: EvaluationSettings) -> dict[str, str]:
    """The fields that evaluation settings add to a run's signature.

    Settings that only add a metric are left out. METEOR's field is there if a language is set that differs from the
    tokenizer's.
    """
    frequencies = {"all": "split", "subset": "domain"}
    signed = {"tok": _tokenizer_field(settings.tokenizer), "df": frequencies[settings.domain_df]}
    if settings.language is not None and settings.language != language_of(settings.tokenizer, None):
        signed["meteor"] = _meteor_field(settings)
    return signed


def _tokenizer_field(name: TokenizerName) -> str:
    """The tokenizer's name, with the version of a word segmenter, since scores depend on its dictionary."""
    if name == "python" or name == "java":
        return f"ptb-{name}"
    return tokenizer_label(name)


def _meteor_field(settings: EvaluationSettings) -> str:
    language = settings.meteor_language
    return "none" if language is None else language.label
