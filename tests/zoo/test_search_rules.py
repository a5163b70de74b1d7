"""Rules for the next token, against captions that are known to break them without."""

from __future__ import annotations

import math

import pytest
import torch

from tests.zoo.test_decoding import BOS, EOS, SEARCH, Bigram
from zoo import Visual, ZooError
from zoo.decoding import SearchRules, beam_search

A, B, C = 3, 4, 5


def said(logits: dict[tuple[int, int], float], max_len: int = 8, **settings: object) -> list[int]:
    """The best caption of a model whose words follow each other with these logits, all others with -9."""
    table = torch.full((1, 6, 6), -9.0)
    for (first, second), logit in logits.items():
        table[0, first, second] = logit
    model = Bigram(6, max_len)
    model.eval()
    found = beam_search(model, model.encode(Visual(table)), max_len=max_len, **SEARCH, **settings)  # type: ignore[arg-type]
    return found.tokens[0, 0, : int(found.lengths[0, 0])].tolist()


ROUND = {(BOS, A): 5.0, (A, B): 5.0, (B, C): 5.0, (C, A): 5.0, (C, EOS): 4.0}
ENDS_ON_A = {(BOS, B): 5.0, (B, A): 5.0, (A, EOS): 5.0, (A, C): 3.0, (C, EOS): 5.0}


@pytest.mark.parametrize("beam_size", [1, 2])
def test_a_caption_does_not_end_on_a_bad_ending(beam_size: int) -> None:
    settings = {"beam_size": beam_size, "length_penalty": 0.0}
    assert said(ENDS_ON_A, **settings) == [B, A, EOS]
    assert said(ENDS_ON_A, **settings, rules=SearchRules(bad_endings=(A,))) == [B, A, C, EOS]
    assert said(ENDS_ON_A, **settings, release_finished=True, rules=SearchRules(bad_endings=(A,))) == [B, A, C, EOS]


def test_a_trigram_comes_once_where_that_is_dear_enough() -> None:
    assert said(ROUND, beam_size=1) == [A, B, C, A, B, C, A, B]
    blocked = said(ROUND, beam_size=1, rules=SearchRules(trigram_penalty=100.0))
    trigrams = [tuple(blocked[at : at + 3]) for at in range(len(blocked) - 2)]
    assert blocked[:5] == [A, B, C, A, B]
    assert len(set(trigrams)) == len(trigrams)
    # The second A B C costs 2 ln 2, less than any other word; a second B C A costs more than the end.
    assert said(ROUND, beam_size=1, rules=SearchRules(trigram_penalty=2 * math.log(2))) == [A, B, C, A, B, C, EOS]


def test_every_earlier_trigram_counts() -> None:
    rules = SearchRules(trigram_penalty=1.0)
    prefixes = [torch.tensor([word, 0]) for word in (A, B, C, A, B, C, A, B)]
    changed = rules.apply(torch.zeros(2, 6), prefixes, EOS)
    assert changed[0].tolist() == [0, 0, 0, 0, 0, -2]
    assert changed[1].tolist() == [-6, 0, 0, 0, 0, 0]


def test_rows_of_a_beam_have_their_own_prefixes() -> None:
    rules = SearchRules(bad_endings=(A,), trigram_penalty=1.0)
    prefixes = [torch.tensor(pair) for pair in ([A, B], [B, B], [C, A], [A, B], [B, A])]
    changed = rules.apply(torch.zeros(2, 6), prefixes, EOS)
    assert changed[0].tolist() == [0, 0, 0, 0, 0, -1]
    assert changed[1].tolist() == [0, 0, -math.inf, 0, -1, 0]


@pytest.mark.parametrize(
    ("rules", "message"),
    [(SearchRules(bad_endings=(6,)), "bad_endings"), (SearchRules(trigram_penalty=-1.0), "trigram_penalty")],
)
def test_impossible_rules_are_refused(rules: SearchRules, message: str) -> None:
    with pytest.raises(ZooError, match=message):
        said(ROUND, beam_size=1, rules=rules)
