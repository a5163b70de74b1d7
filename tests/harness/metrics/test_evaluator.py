"""The evaluator: equal to pycocoevalcap, domains, odd captions, and what is left when Java fails."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from harness.metrics.contract import OVERALL
from harness.metrics.evaluator import Evaluator, held_out_rounds, with_intervals
from harness.metrics.signature import EvaluationSettings
from harness.utils.errors import BenchError
from results.metrics import metric_names

REFERENCES = {
    3: ["A dog runs on grass.", "A brown dog is running."],
    1: ["Two cats sleep on a red sofa.", "Cats asleep on the sofa."],
    2: ["A man rides a horse along the beach.", "Someone is riding a horse by the sea."],
}
COMPUTED = ("BLEU-1", "BLEU-2", "BLEU-3", "BLEU-4", "METEOR", "ROUGE-L", "CIDEr-D")  # by pycocoevalcap without models
CANDIDATES = {1: "Two cats on a sofa.", 2: "A man rides a horse.", 3: "A dog runs."}


def test_equals_pycocoevalcap_on_coco(coco, evaluator):
    started = time.perf_counter()
    found = evaluator.evaluate(coco.references, coco.candidates)
    assert 0 < found.seconds < time.perf_counter() - started, "what runs at the same time counts once"
    assert tuple(found.scores) == (OVERALL,)
    assert tuple(found.scores[OVERALL]) == metric_names()
    assert found.scores[OVERALL]["SPICE"].value is None
    assert "bench prefetch spice" in (found.scores[OVERALL]["SPICE"].reason or "")
    assert tuple(found.per_image) == COMPUTED
    for metric in COMPUTED:
        assert found.scores[OVERALL][metric].value == pytest.approx(coco.corpus[metric], abs=1e-12, rel=0), metric
        assert found.per_image[metric] == pytest.approx(coco.per_image[metric], abs=1e-12, rel=0), metric


def test_threads_score_as_one_after_another_each_with_its_own_meteor_process(coco):
    first = dict(list(coco.candidates.items())[:40])
    references = {i: coco.references[i] for i in first}
    shifted = dict(zip(first, [*list(first.values())[1:], "a t-shirt"], strict=True))
    systems = [first, shifted, dict.fromkeys(first, "a dog"), first]
    with Evaluator() as evaluator:
        expected = [evaluator.evaluate(references, captions) for captions in systems]
    with Evaluator(meteors=2) as evaluator, ThreadPoolExecutor(2) as pool:
        evaluator.expect(caption for captions in systems for caption in captions.values())
        found = list(pool.map(lambda captions: evaluator.evaluate(references, captions), systems))
        processes = {session._process for session in evaluator._meteors}
    assert None not in processes
    assert len(processes) == 2
    assert [(each.scores, each.per_image) for each in found] == [(each.scores, each.per_image) for each in expected]
    assert found[0].scores[OVERALL]["METEOR"].value != found[1].scores[OVERALL]["METEOR"].value


def test_domain_scores_use_frequencies_of_the_split(coco, evaluator):
    ids = sorted(coco.candidates)[:60]
    references = {i: coco.references[i] for i in ids}
    candidates = {i: coco.candidates[i] for i in ids}
    domains = {i: "in-domain" if n % 3 else "out-domain" for n, i in enumerate(ids) if n < 50}
    found = evaluator.evaluate(references, candidates, domains)
    assert tuple(found.scores) == (OVERALL, "in-domain", "out-domain")
    for domain in ("in-domain", "out-domain"):
        members = [i for i in ids if domains.get(i) == domain]
        alone = evaluator.evaluate({i: references[i] for i in members}, {i: candidates[i] for i in members})
        for metric in ("BLEU-1", "BLEU-2", "BLEU-3", "BLEU-4", "METEOR", "ROUGE-L"):
            expected = alone.scores[OVERALL][metric].value
            assert found.scores[domain][metric].value == pytest.approx(expected, abs=1e-12, rel=0), (domain, metric)
        mean = sum(found.per_image["CIDEr-D"][i] for i in members) / len(members)
        assert found.scores[domain]["CIDEr-D"].value == pytest.approx(mean, abs=1e-12)
        assert found.scores[domain]["CIDEr-D"].value != pytest.approx(alone.scores[OVERALL]["CIDEr-D"].value, abs=1e-3)


def test_odd_characters_shift_no_caption(evaluator):
    odd = ["\u2028", "\u2029", "\r", "\r\n", "\n", "\v", "\f", "\x00", "\x85", "\x1c", "\x07"]
    texts = {i: f"{'red ' * i}dog number {i} runs" for i in range(len(odd))}
    references = {i: [text, f"the {text}"] for i, text in texts.items()}
    plain = evaluator.evaluate(references, texts)
    assert min(plain.per_image["BLEU-4"].values()) > 0.99
    found = evaluator.evaluate(
        {i: [text.replace(" ", odd[i], 1) + odd[i] for text in pair] for i, pair in references.items()},
        {i: odd[i] + text.replace(" ", odd[i], 2) for i, text in texts.items()},
    )
    assert found.per_image == plain.per_image


def test_separator_and_broken_unicode_stay_within_their_caption(evaluator):
    plain = evaluator.evaluate(REFERENCES, CANDIDATES)
    odd = evaluator.evaluate(
        REFERENCES | {1: ["Two cats ||| sleep ||| on a sofa.", "|||"]}, CANDIDATES | {1: "Two ||| cats \ud800 |||"}
    )
    for metric in ("BLEU-4", "METEOR", "ROUGE-L"):
        assert {i: odd.per_image[metric][i] for i in (2, 3)} == {i: plain.per_image[metric][i] for i in (2, 3)}
    assert 0 < odd.per_image["METEOR"][1] < 1


def test_empty_caption_scores_zero(evaluator):
    found = evaluator.evaluate(REFERENCES, CANDIDATES | {2: "", 3: " ... "})
    for metric in COMPUTED:
        assert found.per_image[metric][2] == pytest.approx(0, abs=1e-6)
        assert found.per_image[metric][3] == pytest.approx(0, abs=1e-6)
        assert found.per_image[metric][1] > found.per_image[metric][2]


def test_single_image_has_defined_scores(evaluator):
    found = evaluator.evaluate({7: ["a dog runs on grass"]}, {7: "a dog runs on grass"})
    values = {metric: quantity.value for metric, quantity in found.scores[OVERALL].items()}
    assert values["METEOR"] == pytest.approx(1)
    assert values["BLEU-4"] == pytest.approx(1)
    assert values["CIDEr-D"] is None, "nothing tells one image's words from another's"


def test_different_images_are_named(evaluator):
    with pytest.raises(BenchError, match=r"12 images .*\(0, 1, .*, 9, \.\.\.\)"):
        evaluator.evaluate({i: ["a dog"] for i in range(12)}, {})
    with pytest.raises(BenchError, match=r"1 image .*\(4\)"):
        evaluator.evaluate(REFERENCES, CANDIDATES | {4: "a dog"})


@pytest.mark.parametrize(
    ("references", "candidates", "domains", "says"),
    [
        ({}, {}, None, "no caption to score"),
        ({5: []}, {5: "a dog"}, None, r"no reference caption \(5\)"),
        ({5: ["a dog"]}, {5: "a dog"}, {5: "overall"}, "may not be called 'overall'"),
    ],
)
def test_unscorable_input_is_refused(evaluator, references, candidates, domains, says):
    with pytest.raises(BenchError, match=says):
        evaluator.evaluate(references, candidates, domains)


ZEROS = " ".join(["0.0"] * 23)


@pytest.mark.parametrize(
    ("meteor", "reason"),
    [
        (
            r"printf 'out of memory\n\tat a\n\tat b\n\tat c\n\tat d\n\tat e\n' >&2; exit 3",
            "status 3: out of memory",
        ),
        (f"read -r line; echo '{ZEROS}'; exit 7", "status 7"),
        ("exec sleep 30", "METEOR: no answer within 4 s"),
        ("echo Error: specify SCORE; exec sleep 30", "'Error: specify SCORE'"),
    ],
)
def test_meteor_failing_leaves_the_others_standing(
    fake_java: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, meteor: str, reason: str
) -> None:
    monkeypatch.setattr("harness.metrics.evaluator.TIMEOUT_S", 4 if "no answer" in reason else 60)
    monkeypatch.setenv("BENCH_JAVA", str(fake_java(meteor=meteor)))
    with Evaluator() as evaluator:
        found = evaluator.evaluate(REFERENCES, CANDIDATES)
    quantity = found.scores[OVERALL]["METEOR"]
    assert quantity.value is None
    assert reason in (quantity.reason or "")
    assert "METEOR" not in found.per_image
    assert all(found.scores[OVERALL][metric].value > 0 for metric in COMPUTED if metric not in {"METEOR", "BLEU-4"})
    assert found.per_image["ROUGE-L"].keys() == CANDIDATES.keys()


@pytest.mark.parametrize(
    ("tokenizer", "reason"),
    [
        ("echo Could not reserve enough space >&2; exit 1", "status 1: Could not reserve"),
        ("exec sleep 30", "within 2 s"),
        ("echo one; echo line; echo too many", "6 captions went in"),
    ],
)
def test_tokenizer_failing_leaves_no_score(
    fake_java: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, tokenizer: str, reason: str
) -> None:
    settings = EvaluationSettings(tokenizer="java")
    monkeypatch.setattr("harness.metrics.evaluator.TIMEOUT_S", 2 if "within" in reason else 60)
    monkeypatch.setenv("BENCH_JAVA", str(fake_java(tokenizer=tokenizer)))
    with Evaluator(settings=settings) as evaluator:
        found = evaluator.evaluate(REFERENCES, CANDIDATES, {1: "in-domain"})
    assert found.per_image == {}
    assert set(found.scores) == {OVERALL, "in-domain"}
    for quantity in [*found.scores[OVERALL].values(), *found.scores["in-domain"].values()]:
        assert quantity.value is None
        assert "PTB tokenizer" in (quantity.reason or "")
        assert reason in (quantity.reason or "")


@pytest.mark.parametrize("body", [None, "exit 1", "exec sleep 30"])
def test_without_a_working_java_only_meteor_is_missing(tmp_path, coco, monkeypatch, body):
    java = tmp_path / "my-java"
    if body:
        java.write_text(f"#!/bin/sh\n{body}\n")
        java.chmod(0o755)
    monkeypatch.setattr("harness.metrics.java.PROBE_TIMEOUT_S", 0.5)
    monkeypatch.setenv("BENCH_JAVA", str(java))
    monkeypatch.setattr("harness.metrics.evaluator.TIMEOUT_S", 1)
    with Evaluator() as evaluator:
        evaluator.warm_up([], [])
        found = evaluator.evaluate(coco.references, coco.candidates)
    for metric in COMPUTED:
        quantity = found.scores[OVERALL][metric]
        if metric == "METEOR":
            assert quantity.value is None
            assert "my-java" in (quantity.reason or "")
        else:
            assert quantity.value == pytest.approx(coco.corpus[metric], abs=1e-12, rel=0)


def test_both_tokenizers_give_the_same_scores(coco):
    made = []
    for name in ("python", "java"):
        with Evaluator(settings=EvaluationSettings(tokenizer=name, meteor=False)) as evaluator:
            made.append(evaluator.evaluate(coco.references, coco.candidates))
    assert made[0].per_image == made[1].per_image
    assert made[0].scores[OVERALL]["METEOR"].reason == "METEOR was not requested"


@pytest.mark.parametrize(
    "odd", ["", "...", "dog", "dog " * 10_000, "שלום עולם", "\U0001f600 \U0001f600", "\u2028\r\x00|||"]
)
def test_degenerate_captions_have_finite_scores(odd):
    with Evaluator(settings=EvaluationSettings(meteor=False)) as evaluator:
        found = evaluator.evaluate(REFERENCES | {9: [odd]}, CANDIDATES | {9: odd})
    for metric in COMPUTED:
        if metric != "METEOR":
            assert 0 <= found.per_image[metric][9] <= 10
    assert found.per_image["ROUGE-L"][9] == pytest.approx(1)  # as coco-caption: even nothing equals nothing


BY_DOMAIN, BY_SPLIT = "CIDEr-D (df:domain)", "CIDEr-D (df:split)"


@pytest.fixture
def some(coco: Any) -> tuple[dict[int, Any], dict[int, str], dict[int, str]]:
    """Sixty images of two domains, with references and captions."""
    ids = list(coco.references)[:60]
    domains = {image: "in-domain" if number % 3 else "out-domain" for number, image in enumerate(ids)}
    return {i: coco.references[i] for i in ids}, {i: coco.candidates[i] for i in ids}, domains


def with_frequencies(domain_df: Any) -> Evaluator:
    """Without METEOR."""
    return Evaluator(settings=EvaluationSettings(meteor=False, domain_df=domain_df))


def test_each_setting_gives_the_other_s_score_under_a_name_of_its_own(some: Any) -> None:
    with with_frequencies("all") as shared, with_frequencies("subset") as alone:
        one, other = shared.evaluate(*some), alone.evaluate(*some)
        references, captions, domains = some
        for domain in ("in-domain", "out-domain"):
            members = [image for image, name in domains.items() if name == domain]
            separate = shared.evaluate({i: references[i] for i in members}, {i: captions[i] for i in members})
            assert one.scores[domain][BY_DOMAIN].value == pytest.approx(
                separate.scores[OVERALL]["CIDEr-D"].value, abs=1e-12, rel=0
            )
            assert one.scores[domain][BY_DOMAIN] == other.scores[domain]["CIDEr-D"]
            assert one.scores[domain]["CIDEr-D"] == other.scores[domain][BY_SPLIT]
            assert one.scores[domain]["CIDEr-D"] != one.scores[domain][BY_DOMAIN]
            assert list(one.scores[domain]) == [*metric_names(), BY_DOMAIN]
    assert list(one.scores[OVERALL]) == list(metric_names())
    assert set(one.per_image) <= set(metric_names())


def test_both_have_intervals_and_people_have_both(some: Any) -> None:
    references, captions, domains = some
    with with_frequencies("all") as found:
        score = with_intervals(found.evaluate(references, captions, domains))
        people = found.evaluate_rounds(references, {}, domains, lambda tokens, _: held_out_rounds(tokens))
    for domain in ("in-domain", "out-domain"):
        low, value, high = (getattr(score.scores[domain][BY_DOMAIN], name) for name in ("low", "value", "high"))
        assert low < value < high
        assert people.scores[domain][BY_DOMAIN].value != people.scores[domain]["CIDEr-D"].value


def test_one_image_has_no_cider_d() -> None:
    settings = EvaluationSettings(meteor=False)
    with Evaluator(settings=settings) as evaluator:
        alone = with_intervals(evaluator.evaluate({1: ["a dog runs"]}, {1: "a dog"})).scores["overall"]
        assert alone["CIDEr-D"].value is None
        assert alone["CIDEr-D"].reason
        assert alone["BLEU-1"].value == pytest.approx(0.607, abs=1e-3)
        references = {1: ["a dog runs", "one dog"], 2: ["a cat"], 3: ["a cat sits"]}
        captions, domains = {1: "a dog", 2: "a cat", 3: "a cat"}, {1: "near", 2: "far", 3: "far"}
        near, far = (evaluator.evaluate(references, captions, domains).scores[name] for name in ("near", "far"))
    assert near["CIDEr-D"].value is not None, "by the frequencies of all images"
    assert near["CIDEr-D (df:domain)"].value is None
    assert None not in (far["CIDEr-D"].value, far["CIDEr-D (df:domain)"].value)
