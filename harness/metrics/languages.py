"""The languages of METEOR 1.5, and the metrics that support a language.

METEOR has function words, stemmers and tuned parameters for some languages, and one set of parameters for others
(Denkowski and Lavie, "Meteor Universal", WMT 2014). Its tables of paraphrases are separate files, of which
pycocoevalcap has only the English one: in other languages, METEOR matches words and stems here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from harness.config.evaluation import TokenizerName

_SHARED: Final = (0.75, 1.4, 0.7, 0.5)


@dataclass(frozen=True, slots=True)
class MeteorLanguage:
    """METEOR's settings for a language.

    Attributes:
        code: the jar's name of the language.
        parameters: alpha, beta, gamma and delta.
        weights: of the matching stages in the jar's order; 0 for stages that the language lacks.
        normalises: whether the jar has rules of punctuation for the language.
        paraphrases: whether a table of paraphrases belongs to it.
    """

    code: str
    parameters: tuple[float, float, float, float] = _SHARED
    weights: tuple[float, float, float, float] = (1.0, 0.5, 0.0, 0.0)
    normalises: bool = False
    paraphrases: bool = False

    @property
    def label(self) -> str:
        """Its name in signatures."""
        if self.code == "en":
            return "1.5"
        return f"1.5-{self.code}-without-paraphrases" if self.paraphrases else f"1.5-{self.code}"


def _tuned(
    code: str, parameters: tuple[float, float, float, float], weights: tuple[float, float, float, float]
) -> MeteorLanguage:
    return MeteorLanguage(code, parameters, weights, normalises=True, paraphrases=True)


ENGLISH: Final = _tuned("en", (0.85, 0.2, 0.6, 0.75), (1.0, 0.6, 0.8, 0.6))
METEOR_LANGUAGES: Final = {
    language.code: language
    for language in (
        ENGLISH,
        _tuned("cz", (0.95, 0.2, 0.6, 0.8), (1.0, 0.4, 0.0, 0.0)),
        _tuned("de", (0.95, 1.0, 0.55, 0.55), (1.0, 0.8, 0.2, 0.0)),
        _tuned("es", (0.65, 1.3, 0.5, 0.8), (1.0, 0.8, 0.6, 0.0)),
        _tuned("fr", (0.9, 1.4, 0.6, 0.65), (1.0, 0.2, 0.4, 0.0)),
        _tuned("ru", _SHARED, (1.0, 0.5, 0.5, 0.0)),
        *map(MeteorLanguage, ("da", "fi", "hu", "it", "nl", "no", "pt", "ro", "se", "tr")),
    )
}
_NAMES: Final = {"ja": "Japanese", "ko": "Korean", "th": "Thai", "vi": "Vietnamese", "zh": "Chinese"}


def language_of(tokenizer: TokenizerName, language: str | None) -> str | None:
    """The language of captions: `language` if given, else the tokenizer's; None for the tokenizer of characters."""
    if language is not None or tokenizer == "characters":
        return language
    return "en" if tokenizer in {"python", "java"} else tokenizer


def missing_in_language(tokenizer: TokenizerName, language: str | None) -> dict[str, str]:
    """The metrics that do not support the captions' language, with the reason."""
    code = language_of(tokenizer, language)
    if code == "en":
        return {}
    if code is None:
        no_language = "METEOR needs words of a language that it supports, not characters: give it with --language"
        return {"METEOR": no_language, "SPICE": "SPICE supports English captions only"}
    name = _NAMES.get(code, f"the language {code}")
    reasons = {"SPICE": "SPICE supports English captions only"}
    if code not in METEOR_LANGUAGES:
        languages = ", ".join(sorted(METEOR_LANGUAGES))
        reasons["METEOR"] = f"METEOR 1.5 does not support {name}; it supports {languages}"
    return reasons
