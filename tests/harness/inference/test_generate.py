"""Captions from batches: settings of the paper track reach the search and the sentence."""

import io

import pytest
import torch
from rich.console import Console

import harness.inference.generate
from harness.config.preset import Decoding
from harness.data.vocabulary import Vocabulary
from harness.inference.generate import Captions, caption_images, in_parts
from harness.utils.errors import BenchError
from harness.utils.progress import Reporter
from zoo import Visual, VisualSpec, create_model, model_card
from zoo.decoding import Hypotheses, SearchRules

WORDS = Vocabulary.of_entries(["EOS", "PAD", "SOS", "UNK", "a", "b", "c"], "expansionnet")


class Blank:
    """Nothing to see."""

    def visual(self, image_ids: list[int], _: VisualSpec) -> Visual:
        return Visual(torch.zeros(len(image_ids), 1, 1), torch.ones(len(image_ids), 1, dtype=torch.bool))


def captions(
    monkeypatch: pytest.MonkeyPatch, precision: str = "fp32", **settings: object
) -> tuple[Captions, dict[str, object]]:
    """Two captions, one of which never ends, as the search would give them; and what it was asked."""
    asked: dict[str, object] = {}

    def search(_model: object, _memory: object, **arguments: object) -> Hypotheses:
        asked.update(arguments, cast=torch.is_autocast_enabled("cpu"))
        tokens = torch.tensor([[[4, 5, 0, 0]], [[6, 5, 4, 6]]])
        return Hypotheses(tokens, torch.zeros(tokens.shape), torch.tensor([[3], [4]]), torch.zeros(2, 1))

    monkeypatch.setattr(harness.inference.generate, "beam_search", search)
    model = create_model("blind", vocab_size=len(WORDS), visual_dim=1, **model_card("blind").tiny)
    found = caption_images(
        model, WORDS, Blank(), [1, 2], Decoding.model_validate({"max_len": 4, **settings}),
        device=torch.device("cpu"), precision=precision, reporter=Reporter(Console(file=io.StringIO())), title="",
    )  # fmt: skip
    return found, asked


def test_a_recipe_may_cut_what_has_no_end_and_count_the_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    found, asked = captions(monkeypatch, cut_unfinished=True, count_bos=True)
    assert list(found.by_image.values()) == ["a b", "c b a"]
    assert asked["count_bos"] is True


def test_rules_of_a_recipe_reach_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    _, asked = captions(monkeypatch)
    assert (asked["banned"], asked["release_finished"], asked["rules"]) == ((), False, SearchRules())
    settings = {"banned": ["<unk>", "b"], "release_finished": True, "bad_endings": ["a", "of"], "trigram_penalty": 1.5}
    _, asked = captions(monkeypatch, **settings)
    assert (asked["banned"], asked["release_finished"], asked["rules"]) == ((3, 5), True, SearchRules((4,), 1.5))


@pytest.mark.parametrize(("precision", "cast"), [("fp32", False), ("bf16", True)])
def test_captions_are_made_in_the_precision_asked_for(
    monkeypatch: pytest.MonkeyPatch, precision: str, cast: bool
) -> None:
    assert captions(monkeypatch, precision)[1]["cast"] is cast
    assert not torch.is_autocast_enabled("cpu")


def test_where_memory_runs_out_a_batch_is_captioned_in_parts() -> None:
    asked: list[int] = []

    def search(visual: Visual) -> Hypotheses:
        asked.append(visual.batch_size)
        if visual.batch_size > most:
            raise torch.OutOfMemoryError
        return Hypotheses(visual.features[:, :1, :1].long(), *[torch.zeros(visual.batch_size, 1)] * 3)

    most, visual = 2, Visual(torch.arange(5.0).view(5, 1, 1))
    assert torch.cat([each.tokens for each in in_parts(search, visual)]).flatten().tolist() == [0, 1, 2, 3, 4]
    assert asked == [5, 2, 3, 1, 2]
    most = 0
    with pytest.raises(BenchError, match="a single image"):
        in_parts(search, visual)
