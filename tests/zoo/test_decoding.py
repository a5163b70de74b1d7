"""The searches, against a captioner whose probabilities are known; for every model their gradient is that of words."""

import itertools
import math

import pytest
import torch

from tests.zoo.test_laws import close, look, tiny
from zoo import Captioner, DecodingState, Memory, Visual, VisualSpec, ZooError
from zoo.decoding import Ensemble, SearchRules, beam_search, greedy, sample

BOS, EOS = 1, 2
SEARCH = {"bos": BOS, "eos": EOS}


class Bigram(Captioner):
    """Word after word from a table (B, V, V) of logits, which is what its `encode` gets as features."""

    def __init__(self, vocab_size, max_len=10):
        super().__init__()
        self.visual, self.vocab_size, self.max_len = VisualSpec("grid", vocab_size), vocab_size, max_len
        self.steps = 0

    def encode(self, visual):
        return Memory(visual.features, torch.ones(visual.features.shape[:2], dtype=torch.bool))

    def decode(self, memory, tokens):
        table = memory.features.repeat_interleave(len(tokens) // memory.batch_size, 0)
        return table.gather(1, tokens[..., None].expand(-1, -1, self.vocab_size))

    def start(self, memory):
        return DecodingState({"table": memory.features}, {"said": torch.zeros(memory.batch_size, 0)})

    def step(self, tokens, state):
        self.steps += 1
        table = state.images["table"]
        rows = tokens.view(len(table), -1, 1).expand(-1, -1, self.vocab_size)
        said = torch.cat((state.rows["said"], tokens[:, None]), 1)
        return table.gather(1, rows).flatten(0, 1), DecodingState(state.images, {"said": said})


def bigram(images=2, vocab_size=5, seed=0, max_len=10):
    table = torch.randn(images, vocab_size, vocab_size, generator=torch.Generator().manual_seed(seed)).double() * 2
    model = Bigram(vocab_size, max_len)
    return model, model.encode(Visual(table)), table.log_softmax(-1)


def every_caption(log_probs, max_len):
    """All captions of one image's table with the sum of their log-probabilities."""
    vocab_size = len(log_probs)
    for length in range(1, max_len + 1):
        for words in itertools.product(range(vocab_size), repeat=length):
            ended = words[-1] == EOS
            if EOS in words[:-1] or not (ended or length == max_len):
                continue
            yield words, sum(float(log_probs[a, b]) for a, b in itertools.pairwise((BOS, *words)))


@pytest.mark.parametrize("penalty", [0.0, 0.7, 1.0])
@pytest.mark.parametrize("count_bos", [False, True])
def test_a_wide_beam_finds_the_best_captions(penalty, count_bos):
    """Two positions of four words: four beams hold every first word, so that nothing can be missed."""
    model, memory, log_probs = bigram(vocab_size=4, seed=5)
    found = beam_search(model, memory, beam_size=4, max_len=2, length_penalty=penalty, count_bos=count_bos, **SEARCH)
    for image in range(2):
        captions = sorted(every_caption(log_probs[image], 2), key=lambda entry: -entry[1])[:4]
        ranked = sorted(captions, key=lambda entry: -entry[1] / (len(entry[0]) + count_bos) ** penalty)
        for beam, (words, total) in enumerate(ranked):
            length = int(found.lengths[image, beam])
            assert tuple(found.tokens[image, beam, :length].tolist()) == words
            assert not found.tokens[image, beam, length:].any()
            assert float(found.log_probs[image, beam].sum()) == pytest.approx(total)
            assert float(found.scores[image, beam]) == pytest.approx(total / (length + count_bos) ** penalty)


def test_beam_beats_greedy_where_the_first_word_misleads():
    table = torch.full((1, 5, 5), -20.0)
    table[0, BOS, 3], table[0, BOS, 4] = math.log(0.6), math.log(0.4)
    table[0, 3, :] = math.log(0.2)
    table[0, 4, EOS] = 0.0
    model = Bigram(5)
    memory = model.encode(Visual(table))
    assert greedy(model, memory, max_len=2, **SEARCH).tokens[0, 0, 0] == 3
    assert beam_search(model, memory, beam_size=2, max_len=2, **SEARCH).tokens[0, 0].tolist() == [4, EOS]


def test_the_search_stops_when_all_that_it_keeps_is_finished():
    table = torch.zeros(1, 5, 5)
    table[..., EOS] = 50.0
    model = Bigram(5)
    memory = model.encode(Visual(table))
    found = beam_search(model, memory, beam_size=1, max_len=10, **SEARCH)
    assert (model.steps, found.lengths.tolist(), found.tokens.shape) == (1, [[1]], (1, 1, 10))
    model.steps = 0
    greedy(model, memory, max_len=10, **SEARCH)
    assert model.steps == 1


@pytest.mark.parametrize("method", ["beam", "greedy"])
def test_an_image_does_not_notice_its_neighbours(method):
    """One image that ends at once beside one that never does: either is found as if it stood alone."""
    short, long = torch.zeros(5, 5), torch.zeros(5, 5)
    short[:, EOS], long[:, EOS] = 5.0, -5.0
    tables = torch.stack((short, long)) + torch.randn(2, 5, 5, generator=torch.Generator().manual_seed(1))
    model = Bigram(5)

    def search(memory):
        if method == "greedy":
            return greedy(model, memory, max_len=9, **SEARCH)
        return beam_search(model, memory, beam_size=3, max_len=9, **SEARCH)

    together = search(model.encode(Visual(tables)))
    for image in range(2):
        alone = search(model.encode(Visual(tables[image : image + 1])))
        assert torch.equal(alone.tokens[0], together.tokens[image])
        torch.testing.assert_close(alone.scores[0], together.scores[image])


def test_hypotheses_are_distinct_and_in_order():
    model, memory, _ = bigram(images=4, vocab_size=6, seed=2)
    found = beam_search(model, memory, beam_size=6, max_len=8, **SEARCH)
    assert (found.scores.diff(dim=1) <= 0).all()
    for beams in found.tokens.tolist():
        assert len({tuple(words) for words in beams}) == 6


def released(log_probs, width, max_len, banned):
    """Length and sum of all that a search ends with which sets what is finished aside, on one image's table."""
    live, ended = [((), 0.0)], []
    for length in range(1, max_len + 1):
        longer = [
            ((*words, word), total + float(log_probs[words[-1] if words else BOS, word]))
            for words, total in live
            for word in range(len(log_probs))
            if word not in banned
        ]
        best = sorted(longer, key=lambda entry: -entry[1])[:width]
        ended += [(length, total) for words, total in best if words[-1] == EOS or length == max_len]
        live = [entry for entry in best if entry[0][-1] != EOS]
    return ended


@pytest.mark.parametrize("penalty", [0.0, 1.0])
@pytest.mark.parametrize("banned", [(), (4,)])
@pytest.mark.parametrize("max_len", [1, 3, 9])
def test_finished_hypotheses_may_leave_their_places(penalty, banned, max_len):
    model, memory, log_probs = bigram(images=6, vocab_size=6, seed=7)
    options = {"length_penalty": penalty, "banned": banned, "release_finished": True}
    found = beam_search(model, memory, beam_size=3, max_len=max_len, **options, **SEARCH)
    for image in range(6):
        ended = released(log_probs[image], 3, max_len, banned)
        best = sorted((total / length**penalty for length, total in ended), reverse=True)[:3]
        assert found.scores[image].tolist() == pytest.approx(best)
        beams = [
            words[:length]
            for words, length in zip(found.tokens[image].tolist(), found.lengths[image].tolist(), strict=True)
        ]
        assert len(set(map(tuple, beams))) == 3
        for beam, words in enumerate(beams):
            total = sum(float(log_probs[image, a, b]) for a, b in itertools.pairwise((BOS, *words)))
            assert float(found.scores[image, beam]) == pytest.approx(total / len(words) ** penalty)
            assert float(found.log_probs[image, beam].sum()) == pytest.approx(total)


@pytest.mark.parametrize(("penalty", "seed"), [(-0.5, 81), (-1.0, 14)])
def test_a_search_for_short_captions_waits_for_a_better_beam(penalty, seed):
    table = 6 * torch.randn(1, 6, 6, generator=torch.Generator().manual_seed(seed))
    settings = {"beam_size": 3, "max_len": 9, "length_penalty": penalty, "release_finished": True, **SEARCH}
    model, log_probs = Bigram(6), table.log_softmax(-1)
    found = beam_search(model, model.encode(Visual(table)), **settings).scores[0].tolist()
    best = sorted((total / length**penalty for length, total in released(log_probs[0], 3, 9, ())), reverse=True)
    assert found == pytest.approx(best[:3], abs=1e-4)


def test_a_banned_token_is_never_generated():
    table = torch.zeros(2, 5, 5)
    table[..., 4], table[..., 3] = 9.0, 5.0
    model = Bigram(5)
    memory, expected = model.encode(Visual(table)), float(table[0, 0].log_softmax(-1)[3])
    settings = {"beam_size": 3, "max_len": 6, **SEARCH}
    found = beam_search(model, memory, banned=(4,), **settings)
    assert not (found.tokens == 4).any()
    said = found.log_probs[found.tokens == 3]
    torch.testing.assert_close(said, torch.full_like(said, expected))
    with pytest.raises(ZooError, match=r"banned \[5\]"):
        beam_search(model, memory, banned=(5,), **settings)


def test_a_certain_word_leaves_no_room_and_no_nan():
    table = torch.full((1, 4, 4), -math.inf)
    table[:, BOS, 3] = table[:, 3, EOS] = table[:, EOS, EOS] = table[:, 0, EOS] = 0.0
    model = Bigram(4)
    found = beam_search(model, model.encode(Visual(table)), beam_size=2, max_len=5, **SEARCH)
    assert found.tokens[0, 0].tolist() == [3, EOS, 0, 0, 0]
    assert not found.scores.isnan().any()


def test_samples_follow_the_distribution():
    model, memory, log_probs = bigram(images=2, seed=3)
    torch.manual_seed(0)
    drawn = sample(model, memory, n=4000, max_len=1, **SEARCH)
    for image in range(2):
        counted = drawn.tokens[image, :, 0].bincount(minlength=5) / 4000
        torch.testing.assert_close(counted.double(), log_probs[image, BOS].exp(), atol=0.03, rtol=0)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"beam_size": 0}, "beam_size"),
        ({"beam_size": 6}, "vocabulary's 5, not 6"),
        ({"max_len": 0}, "max_len"),
        ({"max_len": 11}, "the model's 10, not 11"),
        ({"eos": 5}, "eos 5"),
        ({"bos": -1}, "bos -1"),
    ],
)
def test_impossible_settings_are_refused(wrong, message):
    model, memory, _ = bigram()
    with pytest.raises(ZooError, match=message):
        beam_search(model, memory, **{"beam_size": 2, "max_len": 4, **SEARCH, **wrong})


class Halved(Bigram):
    """The same table with every logit halved."""

    def encode(self, visual):
        return super().encode(Visual(visual.features / 2))


def test_an_ensemble_means_probabilities():
    plain, halved = Bigram(5), Halved(5, max_len=8)
    ensemble = Ensemble([plain, halved])
    table = torch.randn(2, 5, 5, generator=torch.Generator().manual_seed(4))
    mean = ((table.softmax(-1) + (table / 2).softmax(-1)) / 2).log()
    memory = ensemble.encode(Visual(table))
    expected = beam_search(plain, plain.encode(Visual(mean)), beam_size=3, max_len=4, **SEARCH)
    found = beam_search(ensemble, memory, beam_size=3, max_len=4, **SEARCH)
    assert torch.equal(found.tokens, expected.tokens)
    torch.testing.assert_close(found.scores, expected.scores)
    tokens = torch.tensor([[BOS, 3], [BOS, 4]])
    torch.testing.assert_close(ensemble.decode(memory, tokens), plain.decode(plain.encode(Visual(mean)), tokens))
    assert ensemble.max_len == 8


def test_an_ensemble_needs_a_common_ground():
    for members in ([], [Bigram(5), Bigram(6)]):
        with pytest.raises(ZooError, match="share one vocabulary"):
            Ensemble(members)


A, B, C = 3, 4, 5


def said(logits: dict[tuple[int, int], float], max_len: int = 8, **settings: object) -> list[int]:
    """The best caption of a model whose words follow each other with these logits, all others with -9."""
    table = torch.full((1, 6, 6), -9.0)
    for (first, second), logit in logits.items():
        table[0, first, second] = logit
    model = Bigram(6, max_len)
    model.eval()
    found = beam_search(model, model.encode(Visual(table)), max_len=max_len, **SEARCH, **settings)
    return found.tokens[0, 0, : int(found.lengths[0, 0])].tolist()


ROUND = {(BOS, A): 5.0, (A, B): 5.0, (B, C): 5.0, (C, A): 5.0, (C, EOS): 4.0}
ENDS_ON_A = {(BOS, B): 5.0, (B, A): 5.0, (A, EOS): 5.0, (A, C): 3.0, (C, EOS): 5.0}


@pytest.mark.parametrize("beam_size", [1, 2])
def test_a_caption_does_not_end_on_a_bad_ending(beam_size: int):
    settings = {"beam_size": beam_size, "length_penalty": 0.0}
    assert said(ENDS_ON_A, **settings) == [B, A, EOS]
    assert said(ENDS_ON_A, **settings, rules=SearchRules(bad_endings=(A,))) == [B, A, C, EOS]
    assert said(ENDS_ON_A, **settings, release_finished=True, rules=SearchRules(bad_endings=(A,))) == [B, A, C, EOS]


def test_a_trigram_comes_once_where_that_is_dear_enough():
    assert said(ROUND, beam_size=1) == [A, B, C, A, B, C, A, B]
    blocked = said(ROUND, beam_size=1, rules=SearchRules(trigram_penalty=100.0))
    trigrams = [tuple(blocked[at : at + 3]) for at in range(len(blocked) - 2)]
    assert blocked[:5] == [A, B, C, A, B]
    assert len(set(trigrams)) == len(trigrams)
    # The second A B C costs 2 ln 2, less than any other word; a second B C A costs more than the end.
    assert said(ROUND, beam_size=1, rules=SearchRules(trigram_penalty=2 * math.log(2))) == [A, B, C, A, B, C, EOS]


@pytest.mark.parametrize(
    ("rules", "message"),
    [(SearchRules(bad_endings=(6,)), "bad_endings"), (SearchRules(trigram_penalty=-1.0), "trigram_penalty")],
)
def test_impossible_rules_are_refused(rules: SearchRules, message: str):
    with pytest.raises(ZooError, match=message):
        said(ROUND, beam_size=1, rules=rules)


def gradients(model, loss):
    model.zero_grad()
    loss.backward()
    return {name: part.grad for name, part in model.named_parameters() if part.grad is not None}


def forced(model, visual, found):
    """The same captions' log-probabilities (B, W, T) by teacher forcing; zeros after the end."""
    tokens = found.tokens.flatten(0, 1)
    inputs = torch.cat((torch.full_like(tokens[:, :1], BOS), tokens[:, :-1]), 1)
    log_probs = model(visual, inputs).log_softmax(-1).gather(-1, tokens[..., None])[..., 0]
    said = torch.arange(tokens.shape[1]) < found.lengths.flatten()[:, None]
    return torch.where(said, log_probs, 0.0).view(found.tokens.shape)


def test_the_gradient_of_sampling_is_that_of_teacher_forcing(architecture):
    torch.manual_seed(0)
    model = tiny(architecture).train()
    model.set_dropout(0.0)
    visual = look(model)
    samples = sample(model, model.encode(visual), n=2, max_len=model.max_len - 1, bos=BOS, eos=EOS, gradients=True)
    again, weights = forced(model, visual, samples), torch.rand_like(samples.log_probs)
    close(samples.log_probs, again)
    stepped, expected = (gradients(model, (log_probs * weights).sum()) for log_probs in (samples.log_probs, again))
    assert stepped.keys() == expected.keys() != set()
    for name, gradient in expected.items():
        close(stepped[name], gradient)


def test_searches_keep_no_graph_unless_asked():
    torch.manual_seed(0)
    model = tiny("updown")
    memory = model.encode(look(model))
    ends = {"max_len": 4, "bos": BOS, "eos": EOS}
    assert not sample(model, memory, n=2, **ends).log_probs.requires_grad
    assert not beam_search(model, memory, beam_size=2, **ends).log_probs.requires_grad
    with torch.no_grad():  # asked for inside, it is kept all the same
        assert sample(
            model, Memory(memory.features, memory.mask, memory.extra), n=2, **ends, gradients=True
        ).log_probs.requires_grad
    ends |= {"banned": (3,), "rules": SearchRules(bad_endings=(4,))}
    beam_search(model, model.encode(look(model)), beam_size=2, **ends, gradients=True).log_probs.sum().backward()
