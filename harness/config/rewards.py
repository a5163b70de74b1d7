"""Settings of the objectives that learn from rewards: self-critical training and REINFORCE."""

from __future__ import annotations

from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from harness.config.limits import MAX_BEAM, MAX_TOKENS
from harness.config.strict import Strict


class SelfCritical(Strict):
    """Self-critical sequence training (Rennie et al. 2017) with CIDEr-D as reward.

    `captions`: they are `sampled` from the model, or all `beams` of a search (Cornia et al. 2020, M2). `baseline`:
    `others` is the mean reward of the image's other captions (Luo 2020), `mean` that of all of them (M2), `greedy` the
    reward of the greedy caption. `average`: the loss is a mean over `captions` (of their summed log-probabilities),
    over all `tokens`, or over `max_len` steps of each caption, also those after its end, which add nothing (M2).

    `end_in_reward`: the end token counts as a word in captions, references and document frequencies; without it
    truncated captions get the same reward as complete ones. `documents`: document frequencies count the `images` in
    whose references an n-gram occurs, or the `captions` (M2's code).

    `gradient`: whose log-probabilities are differentiated. `second-pass` are those of a teacher-forced pass over the
    captions, which has the stage's dropout with masks of its own. `steps` are those that the captions were drawn by,
    under the same masks; `prefixes` too, and every word follows from a pass over the whole prefix. `sampling_dropout`
    leaves dropout on while captions are drawn; with `steps` and `prefixes` it must be, since it is the pass that is
    differentiated. So `second-pass` is off-policy wherever the stage has dropout, with `sampling_dropout` or without.
    Greedy captions are always decoded without dropout.
    """

    omit_if_default: ClassVar[frozenset[str]] = frozenset(
        {"captions", "documents", "end_in_reward", "gradient", "sampling_dropout"}
    )
    captions: Literal["sampled", "beams"] = "sampled"
    samples: int = Field(5, gt=1, le=MAX_BEAM, description="captions of an image, sampled ones or beams")
    max_len: int = Field(20, gt=0, le=MAX_TOKENS, description="most sampled tokens, the end token included")
    baseline: Literal["others", "greedy", "mean"] = "others"
    average: Literal["captions", "tokens", "steps"] = "captions"
    end_in_reward: bool = True
    documents: Literal["images", "captions"] = "images"
    gradient: Literal["second-pass", "steps", "prefixes"] = "second-pass"
    sampling_dropout: bool = False

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.gradient != "second-pass" and not self.sampling_dropout:
            raise ValueError(
                f"gradient {self.gradient} differentiates the pass that draws the captions, which has the stage's "
                "dropout: it needs sampling_dropout true"
            )
        return self

    def signature(self) -> str:
        """How the reward treats the end token, in the notation of SacreEOS (Hu et al. 2023)."""
        baseline = {"others": "average", "greedy": "greedy", "mean": "mean"}[self.baseline]
        drawn = f"{self.samples},beams" if self.captions == "beams" else str(self.samples)
        return _reward_signature(self.end_in_reward, baseline, drawn, self.documents)


class Reinforce(Strict):
    """REINFORCE with CIDEr-D as reward, one caption sampled per image, and a baseline linear in the decoder's state.

    For recurrent models. `end_in_reward` as of `SelfCritical`.
    """

    max_len: int = Field(20, gt=0, le=MAX_TOKENS, description="most sampled tokens, the end token included")
    end_in_reward: bool = True

    def signature(self) -> str:
        """How the reward treats the end token, in the notation of SacreEOS."""
        return _reward_signature(self.end_in_reward, "linear", "1")


def _reward_signature(end_in_reward: bool, baseline: str, drawn: str, documents: str = "images") -> str:
    mode = "STANDARD_wInit" if end_in_reward else "NO<EOS>"
    frequencies = "" if documents == "images" else f",df={documents}"
    return f"{mode}+Cider-D[n4,s6.0{frequencies}]+{baseline}[nspi{drawn}]"
