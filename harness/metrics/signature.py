"""Evaluation signatures, as in sacreBLEU: everything besides the captions that a score depends on.

Post, "A Call for Clarity in Reporting BLEU Scores", WMT 2018. A test holds that no option is left out.
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
    """Every choice of an evaluation that may change a score; each field appears in the signature.

    `tokenizer`: PTB's in Python or the Java original, or one for a language without spaces. `domain_df`: document
    frequencies of a domain's CIDEr-D, over all images, as the nocaps server does, or over the domain's alone, as many
    papers did. `meteor` and `spice`: whether they were requested, which changes no other score. `language`: METEOR's;
    None: English, or the tokenizer's.
    """

    tokenizer: TokenizerName = "python"
    domain_df: DomainFrequencies = "all"
    meteor: bool = True
    spice: bool = False
    language: str | None = None

    @property
    def meteor_language(self) -> MeteorLanguage | None:
        """METEOR's settings for the captions' language; None where it has none."""
        return METEOR_LANGUAGES.get(language_of(self.tokenizer, self.language) or "")

    @property
    def is_english(self) -> bool:
        """Whether captions are English, or taken to be."""
        return language_of(self.tokenizer, self.language) == "en"

    @property
    def lacking(self) -> dict[str, str]:
        """Why metrics are not there in the captions' language, by metric."""
        return missing_in_language(self.tokenizer, self.language)

    @property
    def wanted(self) -> set[str]:
        """METEOR and SPICE, as far as they were requested and are there in the language."""
        requested = {"METEOR": self.meteor, "SPICE": self.spice}
        return {metric for metric, asked in requested.items() if asked and metric not in self.lacking}


DEFAULT_SETTINGS: Final = EvaluationSettings()
_SAFE: Final = " #,=-_.()"


def evaluation_signature(
    settings: EvaluationSettings,
    references: Mapping[int, Sequence[str]],
    *,
    name: str,
    of: int,
    domains: Mapping[str, Sequence[int]],
    by_position: bool = False,
    limit: int | None = None,
) -> str:
    """The signature of an evaluation, as printed beside a score: `nrefs:5|refs:coco#1f3a09bc|n:5000|...`.

    Its fields are in the order of display; scores with different ones are not comparable. `of` is the number of images
    that were to be scored, of which a subset may be; `by_position`: captions named no images; `limit`: only the first
    images of the reference file were to be scored.
    """
    counts = {len(texts) for texts in references.values()}
    signed = {
        "nrefs": str(min(counts)) if len(counts) == 1 else f"{min(counts, default=0)}-{max(counts, default=0)}",
        "refs": f"{name}#{digest([[image_id, list(references[image_id])] for image_id in sorted(references)], 8)}",
        "n": str(len(references)),
    }
    if of != len(references):
        signed["of"] = str(of)
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
        "spice": "1.0" if "SPICE" in settings.wanted else "none",
        "v": harness.__version__,
    }
    return format_signature({name: quote(value, safe=_SAFE) for name, value in signed.items()})


def run_fields(settings: EvaluationSettings) -> dict[str, str]:
    """The fields of a run's signature of settings that change scores; those that only add a metric are left out.

    METEOR's is there where a language is named in which METEOR is another, or none.
    """
    frequencies = {"all": "split", "subset": "domain"}
    signed = {"tok": _tokenizer_field(settings.tokenizer), "df": frequencies[settings.domain_df]}
    if settings.language is not None and settings.language != language_of(settings.tokenizer, None):
        signed["meteor"] = _meteor_field(settings)
    return signed


def _tokenizer_field(name: TokenizerName) -> str:
    """With the versions of what segments: scores depend on its dictionary."""
    if name == "python" or name == "java":
        return f"ptb-{name}"
    return tokenizer_label(name)


def _meteor_field(settings: EvaluationSettings) -> str:
    language = settings.meteor_language
    return "none" if language is None else language.label
