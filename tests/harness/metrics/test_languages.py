"""Scores in other languages: METEOR as its jar has it, null where it lacks the language, and BLEU as sacreBLEU."""

import gzip
import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from sacrebleu.metrics import BLEU

from harness.data.word_tokenizers import tokenize_words
from harness.metrics.evaluator import Evaluator
from harness.metrics.java import bundled_java
from harness.metrics.languages import METEOR_LANGUAGES, missing_in_language
from harness.metrics.meteor import meteor_jar
from harness.metrics.ptb import tokenize_ptb
from harness.metrics.signature import EvaluationSettings, evaluation_signature, run_fields

REFERENCES = {
    "cz": (["pes běží po zelené louce", "dvě dívky si hrají s míčem"]),
    "de": (["der Hund läuft schnell über eine grüne Wiese", "zwei Mädchen spielten mit Bällen"]),
    "es": (["un perro corre por el césped verde", "dos niñas jugaban con pelotas"]),
    "fr": (["un chien court dans l'herbe verte", "deux filles jouaient avec des ballons"]),
    "ru": (["собака бежит по зелёной траве", "две девочки играли с мячами"]),
    "it": (["un cane corre nel prato verde", "due ragazze giocavano con le palle"]),
    "nl": (["een hond rent over het groene gras", "twee meisjes speelden met ballen"]),
    "se": (["en hund springer över det gröna gräset", "två flickor lekte med bollar"]),
}
CAPTIONS = {
    "cz": ["psi běží po louce", "dívky si hrají s míčem"],
    "de": ["ein Hund läuft über die grünen Wiesen", "zwei Mädchen spielen mit einem Ball"],
    "es": ["el perro corre en el césped", "dos niñas juegan con una pelota"],
    "fr": ["le chien court sur l'herbe", "deux filles jouent avec un ballon"],
    "ru": ["собаки бежит по траве", "девочки играли с мячом"],
    "it": ["un cane corre sul prato", "due ragazze giocano con la palla"],
    "nl": ["de hond rent over het gras", "twee meisjes spelen met een bal"],
    "se": ["en hund springer över gräset", "två flickor leker med en boll"],
}


def score(
    references: Mapping[int, Sequence[str]], captions: Mapping[int, str], settings: EvaluationSettings
) -> tuple[dict[str, float | None], dict[str, str | None], dict[str, dict[int, float]]]:
    """The scores, the reasons of those that are null, and the scores of images."""
    with Evaluator(settings=settings) as evaluator:
        evaluation = evaluator.evaluate(references, captions)
    scores = evaluation.scores["overall"]
    values = {name: quantity.value for name, quantity in scores.items()}
    return values, {name: quantity.reason for name, quantity in scores.items()}, evaluation.per_image


@pytest.mark.parametrize("code", REFERENCES)
def test_meteor_equals_its_jar(code: str, tmp_path: Path) -> None:
    references, captions = tokenize_ptb(REFERENCES[code]), tokenize_ptb(CAPTIONS[code])
    (tmp_path / "captions").write_text("\n".join(captions) + "\n", encoding="utf-8")
    (tmp_path / "references").write_text("\n".join(references) + "\n", encoding="utf-8")
    (tmp_path / "none.gz").write_bytes(gzip.compress(b""))  # its table of paraphrases, which pycocoevalcap has not
    command = [bundled_java(), "-Xmx512m", "-Dfile.encoding=UTF-8", "-jar", meteor_jar()]
    files = [tmp_path / "captions", tmp_path / "references"]
    options = ["-l", code, "-a", tmp_path / "none.gz", *(["-norm"] if METEOR_LANGUAGES[code].normalises else [])]
    done = subprocess.run([*command, *files, *options], capture_output=True, text=True, check=True, cwd=tmp_path)
    images = [float(number) for number in re.findall(r"Segment \d+ score:\s+(\S+)", done.stdout)]
    [corpus] = re.findall(r"Final score:\s+(\S+)", done.stdout)
    by_image = {1: [REFERENCES[code][0]], 2: [REFERENCES[code][1]]}
    settings = EvaluationSettings(language=code)
    values, _, per_image = score(by_image, dict(enumerate(CAPTIONS[code], 1)), settings)
    assert values["METEOR"] == pytest.approx(float(corpus), abs=1e-9)
    assert [per_image["METEOR"][image] for image in (1, 2)] == pytest.approx(images, abs=1e-9)
    assert 0.1 < float(corpus) < 1


def test_parameters_are_the_jars() -> None:
    ids = {
        "en": "0.85_0.2_0.6_0.75-ex_st_sy_pa-1.0_0.6_0.8_0.6",
        "cz": "0.95_0.2_0.6_0.8-ex_pa-1.0_0.4",
        "de": "0.95_1.0_0.55_0.55-ex_st_pa-1.0_0.8_0.2",
        "es": "0.65_1.3_0.5_0.8-ex_st_pa-1.0_0.8_0.6",
        "fr": "0.9_1.4_0.6_0.65-ex_st_pa-1.0_0.2_0.4",
        "ru": "0.75_1.4_0.7_0.5-ex_st_pa-1.0_0.5_0.5",
        **dict.fromkeys(("da", "fi", "hu", "it", "nl", "no", "pt", "ro", "se", "tr"), "0.75_1.4_0.7_0.5-ex_st-1.0_0.5"),
    }
    assert ids.keys() == METEOR_LANGUAGES.keys()
    for code, printed in ids.items():  # as the jar prints them, by its "Eval ID"
        language = METEOR_LANGUAGES[code]
        parameters, stages, weights = printed.split("-")
        assert language.parameters == tuple(map(float, parameters.split("_")))
        assert [weight for weight in language.weights if weight] == list(map(float, weights.split("_")))
        assert language.paraphrases == stages.endswith("pa")


CHINESE = {
    1: ["一只灰色的狗在草地上奔跑", "草地上有一只狗"],
    2: ["两个女孩在公园里放风筝，天很蓝"],
    3: ["一辆红色的公共汽车停在雨中的街角", "街角有一辆公共汽车", "下雨了"],
    4: ["一位老人在棚子里修理自行车", "老人修车"],
}
SAID = {
    1: "一只狗在草地上奔跑",
    2: "两个女孩在公园里",
    3: "一辆红色的公共汽车停在街角",
    4: "一位老人在棚子里修理一辆旧的自行车",
}


def test_metrics_of_other_languages_are_null_with_a_reason() -> None:
    for tokenizer in ("zh", "characters"):
        values, reasons, _ = score(CHINESE, SAID, EvaluationSettings(tokenizer=tokenizer, spice=True))
        assert values["METEOR"] is None
        assert values["SPICE"] is None
        assert "Chinese" in str(reasons["METEOR"]) or tokenizer == "characters"
        assert "English" in str(reasons["SPICE"])
        assert min(values[metric] or 0 for metric in ("BLEU-1", "BLEU-4", "ROUGE-L", "CIDEr-D")) > 0.1
    assert missing_in_language("python", None) == {}
    assert missing_in_language("java", "en") == {}
    assert missing_in_language("zh", "en") == {}
    assert missing_in_language("python", "de").keys() == {"SPICE"}
    assert "Korean" in missing_in_language("python", "ko")["METEOR"]
    assert "Japanese" in missing_in_language("ja", None)["METEOR"]


def test_signature_names_tokenizer_and_language() -> None:
    def fields(**settings: str) -> dict[str, str]:
        signature = evaluation_signature(
            EvaluationSettings(**settings),  # type: ignore[arg-type]
            CHINESE,
            name="x",
            n_requested=len(CHINESE),
            domains={},
        )
        return dict(field.split(":", 1) for field in signature.split("|"))

    assert fields()["meteor"] == fields(language="en")["meteor"] == "1.5"
    assert fields(language="de")["meteor"] == "1.5-de-without-paraphrases"
    assert fields(language="it")["meteor"] == "1.5-it"
    assert fields(language="ko")["meteor"] == fields(tokenizer="zh")["meteor"] == "none"
    assert fields(tokenizer="zh")["tok"].startswith("zh-jieba-")
    assert run_fields(EvaluationSettings()) == {"tok": "ptb-python", "df": "split"}
    assert run_fields(EvaluationSettings(language="en")) == {"tok": "ptb-python", "df": "split"}
    assert run_fields(EvaluationSettings(tokenizer="characters")) == {"tok": "characters", "df": "split"}
    assert run_fields(EvaluationSettings(language="de"))["meteor"] == "1.5-de-without-paraphrases"
    assert run_fields(EvaluationSettings(tokenizer="zh", language="en"))["meteor"] == "1.5"
    assert run_fields(EvaluationSettings(language="ko"))["meteor"] == "none"


def sacrebleu(references: Mapping[int, Sequence[str]], captions: Mapping[int, str], order: int) -> float:
    """Its corpus BLEU up to this order, of tokens joined by spaces, as a fraction."""
    most = max(map(len, references.values()))
    streams = [[texts[at] if at < len(texts) else None for texts in references.values()] for at in range(most)]
    metric = BLEU(tokenize="none", smooth_method="none", max_ngram_order=order, force=True)
    return float(metric.corpus_score(list(captions.values()), streams).score) / 100


def test_bleu_of_chinese_words_equals_sacrebleus() -> None:
    references = {image: tokenize_words(texts, "zh") for image, texts in CHINESE.items()}
    captions = dict(zip(SAID, tokenize_words(list(SAID.values()), "zh"), strict=True))
    values, _, _ = score(CHINESE, SAID, EvaluationSettings(tokenizer="zh"))
    for order in range(1, 5):
        assert values[f"BLEU-{order}"] == pytest.approx(sacrebleu(references, captions, order), abs=1e-9), order
    assert (values["BLEU-4"] or 0) > 0.1


@pytest.mark.parametrize("shortened", [False, True])
def test_bleu_of_english_tokens_equals_sacrebleus(coco, shortened: bool) -> None:  # type: ignore[no-untyped-def]
    """Both take the reference closest in length, on a tie the shorter, and sum counts over the corpus.

    They differ in two things, which change nothing here. COCO's code adds 1e-15 to counts of matches and 1e-9 to those
    of n-grams: with hundreds of n-grams that is less than 1e-9 of the score. Where no n-gram of an order matches,
    COCO's score is therefore tiny but not 0, and sacreBLEU smooths by default: it is told not to.
    """
    chosen = list(coco.candidates)[:300]
    raw = {image: coco.references[image] for image in chosen}
    said = {image: coco.candidates[image] for image in chosen}
    if shortened:  # so that brevity is penalised
        said = {image: " ".join(caption.split()[:7]) for image, caption in said.items()}
    tokens = iter(tokenize_ptb([text for texts in raw.values() for text in texts]))
    references = {image: [next(tokens) for _ in texts] for image, texts in raw.items()}
    captions = dict(zip(said, tokenize_ptb(list(said.values())), strict=True))
    values, _, _ = score(raw, said, EvaluationSettings(meteor=False))
    for order in range(1, 5):
        assert values[f"BLEU-{order}"] == pytest.approx(sacrebleu(references, captions, order), abs=1e-9), order
