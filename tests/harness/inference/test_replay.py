"""Searches as graphs: their operators in a row, without the Python between them, find the same in other images."""

import random
import threading
import warnings
from collections.abc import Callable
from dataclasses import fields
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from harness.config.schedule import Stage
from harness.data.batches import Batch
from harness.data.dataset import Sample
from harness.data.vocabulary import Vocabulary
from harness.inference import replay
from harness.inference.replay import Replayed, Search, synchronisation_points
from harness.training.stage import make_objective
from tests.conftest import distinct_architectures
from tests.zoo.test_laws import BOS, CHANNELS, EOS, IMAGES, look, tiny
from zoo import Visual, create_model, model_card
from zoo.decoding import Hypotheses, SearchRules, beam_search, greedy, sample

WORDS = 3
RULES = SearchRules(bad_endings=(3, 4), trigram_penalty=1.0)
SEARCHES: dict[str, Callable[..., Hypotheses]] = {
    "beams": partial(beam_search, beam_size=2, banned=(5, 6)),
    "beams by rules": partial(beam_search, beam_size=2, release_finished=True, rules=RULES),
    "greedy": greedy,
    "samples": partial(sample, n=2),
}


def traced(search: Search, visual: Visual) -> Search:
    """What a GPU's graph is, on a processor: torch refuses to trace what reads a tensor's numbers."""
    names, width = list(visual.parts()), len(fields(Hypotheses))

    def flat(*tensors: Tensor) -> list[Tensor]:
        found = search(Visual(**dict(zip(names, tensors, strict=True))))
        return [getattr(each, part.name) for each in found for part in fields(Hypotheses)]

    with torch.random.fork_rng(devices=[]):  # capturing draws nothing
        operators = make_fx(flat)(*visual.parts().values())

    def again(visual: Visual) -> tuple[Hypotheses, ...]:
        found = operators(*visual.parts().values())
        return tuple(Hypotheses(*found[at : at + width]) for at in range(0, len(found), width))

    return again


@pytest.fixture(autouse=True)
def _as_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Masks are not asked whether they are full, which a GPU would have to be waited for."""
    monkeypatch.setattr("zoo.captioner._known_all_valid", lambda _: False)
    monkeypatch.setattr(replay, "synchronisation_points", lambda work: work() and [])
    monkeypatch.setattr(replay, "memory_suffices", lambda: True)
    monkeypatch.setattr(replay, "cpu_generator_states", random.getstate)  # torch's are those of the GPU here
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: None)
    monkeypatch.setattr(torch.cuda, "set_stream", lambda _: None)


def same(found: Hypotheses, wanted: Hypotheses) -> None:
    for part in fields(Hypotheses):
        torch.testing.assert_close(getattr(found, part.name), getattr(wanted, part.name), atol=1e-10, rtol=1e-10)


@torch.no_grad()
def follows(name: str, kind: str, words: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A replayed search finds what the search does, in images and with weights that the graph has not seen."""
    model = tiny(name)

    def found(visual: Visual, *, early_stop: bool = False) -> tuple[Hypotheses]:
        memory = model.eval().encode(visual)
        return (SEARCHES[kind](model, memory, max_len=words, bos=BOS, eos=EOS, early_stop=early_stop),)

    traces = list[object]()
    monkeypatch.setattr(replay, "captured", lambda *given: traces.append(given) or traced(*given))
    replayed = Replayed(found, pytest.fail)
    for seed in range(3):
        visual = look(model)
        torch.manual_seed(seed)
        (wanted,) = found(visual, early_stop=kind != "samples")
        torch.manual_seed(seed)
        same(replayed(visual)[0], wanted)
        for weight in model.parameters():
            weight.mul_(1.1)
    assert len(traces) == 1


@pytest.mark.parametrize("name", [name for name in distinct_architectures() if "/" not in name])
def test_beams_of_every_family_are_replayed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    follows(name, "beams", 2, monkeypatch)  # the second word reads states that beams have swapped


@pytest.mark.parametrize("kind", list(SEARCHES)[1:])
@pytest.mark.parametrize("name", ["transformer_base", "updown", "expansionnet_v2"])
def test_every_search_is_replayed(name: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    follows(name, kind, WORDS, monkeypatch)


def test_other_shapes_are_other_graphs_and_few_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    made = list[int]()
    monkeypatch.setattr(replay, "MOST", 2)
    monkeypatch.setattr(replay, "captured", lambda search, visual: made.append(visual.batch_size) or search)
    search = Replayed(lambda _: (), pytest.fail)
    for _ in range(3):
        for images in (1, 2, 3):
            search(Visual(torch.zeros(images, 1)))
    assert made == [1, 2]


def finds(_: Visual) -> tuple[()]:
    return ()


def draws(_: Visual) -> tuple[()]:
    random.random()
    return ()


def fails(_: object, __: object) -> Search:
    raise RuntimeError("CUDA error: operation not permitted\nCompile with ...")


@pytest.mark.parametrize(
    ("search", "name", "changed", "said"),
    [
        (finds, "synchronisation_points", lambda work: work() or ["own.py:7"], "own.py:7"),
        (draws, "MOST", 8, "random numbers"),
        (finds, "captured", fails, "not permitted"),
    ],
)
def test_what_a_graph_cannot_hold_is_searched_without(
    search: Search, name: str, changed: object, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, told = list[object](), list[str]()
    monkeypatch.setattr(replay, "captured", lambda search, _: made.append(search) or search)
    monkeypatch.setattr(replay, name, changed)
    replayed = Replayed(search, told.append)
    for _ in range(4):
        assert replayed(Visual(torch.zeros(1, 1))) == ()
    assert not made
    assert len(told) == 1
    assert said in told[0]


def test_waits_of_other_threads_are_not_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    modes = list[str]()
    monkeypatch.setattr(torch.cuda, "set_sync_debug_mode", modes.append)

    def waits() -> None:
        warnings.warn("called a synchronizing CUDA operation", stacklevel=1)

    def work() -> None:
        warnings.warn("of something else", stacklevel=1)
        thread = threading.Thread(target=waits)
        thread.start()
        thread.join()

    assert synchronisation_points(work) == []
    [place] = synchronisation_points(waits)
    assert place.startswith(__file__)
    with pytest.raises(ZeroDivisionError):
        synchronisation_points(lambda: 1 / 0)
    assert modes == ["warn", "default"] * 3


@pytest.mark.parametrize("baseline", ["others", "greedy"])
@pytest.mark.parametrize("dropout", [False, True])
def test_replayed_captions_train_as_drawn_ones(baseline: str, dropout: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    vocabulary = Vocabulary(["ball", "blue", "red"])
    settings: dict[str, Any] = {"max_len": WORDS, "samples": 5, "sampling_dropout": dropout, "baseline": baseline}
    stage = Stage.model_validate(
        {"name": "s", "epochs": 1, "batch_size": 3, "learning_rate": {"peak": 0.1}, "objective": "self_critical"}
        | {"self_critical": settings}
    )
    said = ("red", "blue ball", "red red ball")
    samples = [Sample(number, f"{number}.png", "train", (said[number],)) for number in range(IMAGES)]
    losses: dict[bool, list[float]] = {}
    for graph in (False, True):
        torch.manual_seed(0)
        sizes = model_card("transformer_base").tiny | {"dropout": 0.3}
        model = create_model("transformer_base", vocab_size=len(vocabulary), visual_dim=CHANNELS, **sizes)
        objective = make_objective(stage, model.train(), samples, vocabulary, widths=(WORDS,))
        monkeypatch.setattr(replay, "captured", traced if graph else lambda search, _: search)
        for _ in range(4):
            batch = Batch(look(model, dtype=torch.float32), torch.empty(0), tuple(range(IMAGES)))
            loss = objective(model, batch)
            loss.backward()
            assert model.training
            with torch.no_grad():
                for weight in model.parameters():
                    weight.sub_(weight.grad if weight.grad is not None else 0.0)
                    weight.grad = None
            losses.setdefault(graph, []).append(loss.item())
    assert losses[True] == pytest.approx(losses[False], abs=1e-6)
    assert len(set(losses[True])) > 1
