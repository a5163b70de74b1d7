"""What is known of the authors' released checkpoints: their vocabulary, their search, and what they were trained on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor

from harness.config.limits import MAX_TOKENS
from harness.config.preset import Decoding
from harness.data.images import Interpolation
from harness.data.vocabulary import Vocabulary
from harness.utils.errors import BenchError
from zoo import Pretraining
from zoo.weights.official import converter_of

_COCO = "COCO: Karpathy's training split with restval"
_CAPTIONS = "Five to seven human captions of each of 113,287 images of COCO."
_SWIN = "ImageNet-22k with labels (Swin-L, its backbone)"
_DETECTOR = "ImageNet and Visual Genome with labels (the detector that gives its features)"
_OVERLAP = {
    "coco": "Visual Genome, whose labels the detector saw, holds 51,208 of COCO's images, some of its evaluation "
    "splits among them. Whether the detector saw the latter depends on whose features the model is given."
}
_MESHED = ("<pad>", "<bos>", "<eos>", "<unk>")


@dataclass(frozen=True, slots=True)
class Released:
    """A family of checkpoints.

    Attributes:
        pretraining: what the weights saw; Karpathy's validation and test splits were left out.
        decoding: of the authors' evaluation.
        specials: names of padding, begin, end and unknown word in the vocabulary, a preparation that has such names,
            or None if the first three are the number 0, which the vocabulary leaves out.
        backbone_tensors: beginning of the names of a backbone's tensors; None if no checkpoint holds one.
        interpolation: of the pixels that such a backbone sees.
    """

    pretraining: Pretraining
    decoding: Decoding
    specials: tuple[str, str, str, str] | str | None
    backbone_tensors: str | None = None
    interpolation: Interpolation = "bicubic"

    def holds_backbone(self, state: Mapping[str, Tensor]) -> bool:
        """Whether the checkpoint has the tensors of a backbone; names may begin as several devices wrote them."""
        start = self.backbone_tensors
        return start is not None and any(key.removeprefix("module.").startswith(start) for key in state)

    def search(self, longest: int, beam_size: int | None) -> Decoding:
        """The authors' search, for a model of captions of up to `longest` tokens with the begin token."""
        return self.decoding.model_copy(
            update={
                "beam_size": beam_size or self.decoding.beam_size,
                "max_len": min(self.decoding.max_len, longest - 1),
            }
        )

    def read(
        self, family: str, state: Mapping[str, Tensor], entries: Sequence[str]
    ) -> tuple[Mapping[str, Tensor], Vocabulary]:
        """The checkpoint with a row for each word and special token of the vocabulary, and this vocabulary.

        Raises:
            BenchError, ZooError: the vocabulary lacks special tokens, or is not the checkpoint's.
        """
        if self.specials is None:
            state, words = converter_of(family).separate_specials(state, entries)
            return state, Vocabulary(tuple(words))
        if isinstance(self.specials, str):
            return state, Vocabulary.of_entries(entries, self.specials)
        if missing := [name for name in self.specials if name not in entries]:
            raise BenchError(
                f"the vocabulary lacks {', '.join(missing)}", f"it must hold {', '.join(self.specials)} and all words"
            )
        pad, bos, eos, unk = map(entries.index, self.specials)
        return state, Vocabulary(tuple(word for word in entries if word not in self.specials), pad, bos, eos, unk)


def _trained(visual: str, source: str, overlap: Mapping[str, str]) -> Pretraining:
    return Pretraining((visual, _COCO), _CAPTIONS, ("COCO",), overlap, source)


RELEASED = {
    "dlct": Released(
        _trained(_DETECTOR, "Luo et al., AAAI 2021; the repository luo3300612/image-captioning-DLCT", _OVERLAP),
        Decoding(beam_size=5, max_len=20, length_penalty=0.0),
        _MESHED,
    ),
    "expansionnet_v2": Released(
        _trained(
            _SWIN,
            "Hu et al., IEEE Big Data 2023, Section IV-A; the authors' repository jchenghu/ExpansionNet_v2",
            {},
        ),
        Decoding(beam_size=5, max_len=MAX_TOKENS, count_bos=True, cut_unfinished=True),
        "expansionnet",
        backbone_tensors="swin_transf.",
        interpolation="bilinear",
    ),
    "puret": Released(
        _trained(_SWIN, "Wang et al., AAAI 2022; the authors' repository 232525/PureT", {}),
        Decoding(beam_size=5, max_len=17, length_penalty=0.0),
        None,
        backbone_tensors="backbone.",
    ),
    "rstnet": Released(
        _trained(_DETECTOR, "Zhang et al., CVPR 2021; the authors' repository zhangxuying1004/RSTNet", _OVERLAP),
        Decoding(beam_size=5, max_len=20, length_penalty=0.0),
        _MESHED,
    ),
    "x_lan": Released(
        _trained(_DETECTOR, "Pan et al., CVPR 2020; the repository JDAI-CV/image-captioning", _OVERLAP),
        Decoding(beam_size=3, max_len=17, length_penalty=0.0),
        None,
    ),
    "x_transformer": Released(
        _trained(_DETECTOR, "Pan et al., CVPR 2020; the repository JDAI-CV/image-captioning", _OVERLAP),
        Decoding(beam_size=2, max_len=17, length_penalty=0.0),
        None,
    ),
}
"""By family. GET has no released weights."""
