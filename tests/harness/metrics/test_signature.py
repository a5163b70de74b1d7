"""Signatures name every option, and are read back as they were written."""

from dataclasses import fields, replace

import harness
from harness.benchmark.signature import DataFields, model_signature
from harness.config.load import load_preset
from harness.metrics.evaluator import DEFAULT_SETTINGS
from harness.metrics.signature import EvaluationSettings, evaluation_signature, run_fields

REFERENCES = {1: ["a cat", "one cat"], 2: ["a dog"]}
OTHER = {"tokenizer": "java", "domain_df": "subset", "meteor": False, "spice": True, "language": "de"}


def sign(settings=DEFAULT_SETTINGS, references=REFERENCES, **options):
    return evaluation_signature(
        settings, references, **{"name": "toy", "n_requested": len(references), "domains": {}, **options}
    )


def test_every_option_is_in_the_signature():
    assert set(OTHER) == {field.name for field in fields(EvaluationSettings)}
    for option, value in OTHER.items():
        assert sign(replace(DEFAULT_SETTINGS, **{option: value})) != sign(), option


def test_every_scoring_option_is_in_run_signature():
    def sign_run(**options):
        return run_fields(EvaluationSettings(**options))

    usual = model_signature(load_preset("quick"), DataFields("x", "x", "x", "x"), precision="fp32")
    assert (usual["tok"], usual["df"]) == ("ptb-python", "split")
    assert list(usual)[:4] == ["data", "nrefs", "tok", "df"]
    assert usual.items() >= sign_run().items()
    changed = {option for option, value in OTHER.items() if sign_run(**{option: value}) != sign_run()}
    assert changed == set(OTHER) - {"meteor", "spice"}, "these only add a metric"
    assert sign_run(tokenizer="java")["tok"] == "ptb-java"
    assert sign_run(domain_df="subset")["df"] == "domain"


def test_data_is_in_the_signature():
    signatures = [
        sign(),
        sign(references={1: ["a cat", "two cats"], 2: ["a dog"]}),
        sign(references={1: ["a cat", "one cat"]}),
        sign(name="other"),
        sign(n_requested=3),
        sign(domains={"in-domain": [1], "out-domain": [2]}),
        sign(domains={"in-domain": [1, 2]}),
    ]
    assert len(set(signatures)) == len(signatures)
    assert sign(references=dict(reversed(REFERENCES.items()))) == sign()
    assert sign(n_requested=2) == sign()


def test_short_form():
    signature = sign(n_requested=7, domains={"in-domain": [1]})
    digest = signature.split("#")[1].partition("|")[0]
    assert signature == (
        f"nrefs:1-2|refs:toy#{digest}|n:2|of:7|domains:in-domain=1|tok:ptb-python|df:all|meteor:1.5|spice:none"
        f"|v:{harness.__version__}"
    )
