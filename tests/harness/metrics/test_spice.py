"""SPICE's driver with a stand-in for its program, and the installation of its models."""

import hashlib
import json
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

from harness.metrics.contract import OVERALL
from harness.metrics.evaluator import Evaluator, with_intervals
from harness.metrics.java import JavaError
from harness.metrics.signature import EvaluationSettings
from harness.metrics.spice import (
    ARCHIVE,
    CORENLP_JARS,
    find_spice,
    packaged_spice,
    prefetch_spice,
    run_spice,
    user_spice,
)
from harness.utils.errors import BenchError
from harness.utils.progress import Reporter

REFERENCES = {30: ["a dog"], 4: ["a red cat", "cat"], 100: ["x"]}
CANDIDATES = {4: "a cat", 30: "a dog", 100: "y"}

# Answers in another order than asked, as the jar may: the score is image_id / 1000.
STAND_IN = """#!{python}
import json, os, sys
if sys.argv[1:] == ["-version"]:
    print('openjdk version "{version}"', file=sys.stderr)
    sys.exit()
json.dump(dict(argv=sys.argv[1:], cwd=os.getcwd()), open({record!r}, "w"))
asked = json.load(open(sys.argv[sys.argv.index("-jar") + 2]))
{body}
answers = [dict(image_id=q["image_id"], scores=dict(All=dict(f=q["image_id"] / 1000, pr=1, re=1))) for q in asked]
json.dump(sorted(answers, key=lambda a: -a["image_id"]), open(sys.argv[sys.argv.index("-out") + 1], "w"))
"""


@pytest.fixture
def stand_in(tmp_path, monkeypatch):
    def make(body="", version="21.0.8"):
        java = tmp_path / "java"
        record = str(tmp_path / "record.json")
        java.write_text(STAND_IN.format(python=sys.executable, version=version, record=record, body=body))
        java.chmod(0o755)
        monkeypatch.setenv("BENCH_JAVA", str(java))
        return java

    return make


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """A user's cache with something in the places of the jars."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name in ("spice-1.0.jar", *(f"lib/{jar}" for jar in CORENLP_JARS)):
        path = user_spice() / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"jar")
    return user_spice()


@pytest.fixture
def absent(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    if (packaged_spice() / "lib" / CORENLP_JARS[1]).exists():
        pytest.skip("the models lie in the installed package")


def test_scores_go_to_their_images(stand_in, installed, tmp_path):
    assert run_spice(REFERENCES, CANDIDATES, java=stand_in()).tolist() == [0.03, 0.004, 0.1]
    record = json.loads((tmp_path / "record.json").read_text())
    assert record["cwd"] == str(installed)
    assert "-Xmx8192m" in record["argv"]
    opened = {
        f"--add-opens=java.base/java.{p}=ALL-UNNAMED"
        for p in ["lang", "util", "math", "net", "text", "util.concurrent"]
    }
    assert opened <= set(record["argv"])
    assert not Path(record["argv"][record["argv"].index("-cache") + 1]).exists()


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("sys.exit('Java heap space')", "ended with status 1: Java heap space"),
        ("import time; time.sleep(30)", "no answer within 0.6 s"),
        ("sys.exit(0)", "its answer cannot be read"),
        ("asked = asked[1:]", "results of 3 images have other ids"),
        ("asked[0]['image_id'] = float('nan')", "results of 3 images have other ids"),
    ],
)
def test_failures_have_a_reason(stand_in, monkeypatch, body, says):
    monkeypatch.setattr("harness.metrics.spice.TIMEOUT_S", 0.6 if "no answer" in says else 60)
    with pytest.raises(JavaError, match=says):
        run_spice(REFERENCES, CANDIDATES, java=stand_in(body))


@pytest.mark.usefixtures("installed")
def test_it_is_a_metric_like_the_others(stand_in):
    settings = EvaluationSettings(meteor=False, spice=True)
    stand_in()
    with Evaluator(settings=settings) as evaluator:
        found = with_intervals(evaluator.evaluate(REFERENCES, CANDIDATES, {4: "in-domain"}))
    spice = found.scores[OVERALL]["SPICE"]
    assert spice.value == pytest.approx(np.mean([0.03, 0.004, 0.1]))
    assert found.scores["in-domain"]["SPICE"].value == pytest.approx(0.004)
    assert found.per_image["SPICE"] == {30: 0.03, 4: 0.004, 100: 0.1}
    assert 0.004 <= spice.low < spice.high <= 0.1 + 1e-9


@pytest.mark.usefixtures("absent")
def test_absent_models_are_not_run_and_never_zero(stand_in):
    assert find_spice() is None
    stand_in()
    for asked in (True, False):
        with Evaluator(settings=EvaluationSettings(meteor=False, spice=asked)) as evaluator:
            found = evaluator.evaluate(REFERENCES, CANDIDATES).scores[OVERALL]["SPICE"]
        assert found.value is None
        assert "not run" in (found.reason or "")


@pytest.fixture
def archive(tmp_path):
    path = tmp_path / "corenlp.zip"
    with zipfile.ZipFile(path, "w") as file:
        for jar in CORENLP_JARS:
            file.writestr(f"{ARCHIVE}/{jar}", f"content of {jar}")
        file.writestr("../../outside.txt", "not for us")
    return path


@pytest.mark.usefixtures("absent")
@pytest.mark.parametrize("as_url", [False, True])
def test_prefetch_installs_a_checked_archive(archive, as_url):
    sha256 = hashlib.sha256(archive.read_bytes()).hexdigest()
    source = archive.as_uri() if as_url else str(archive)
    assert prefetch_spice(source, user_spice(), Reporter(), sha256=sha256) == sha256
    assert find_spice() == user_spice()
    assert (user_spice() / "lib" / CORENLP_JARS[1]).read_text() == f"content of {CORENLP_JARS[1]}"
    assert (user_spice() / "lib" / "guava-19.0.jar").stat().st_size > 2_000_000
    assert json.loads((user_spice() / "source.json").read_text()) == {"source": source, "sha256": sha256}
    assert not list(user_spice().rglob("*outside*"))


@pytest.mark.usefixtures("absent")
def test_prefetch_refuses_other_archives(archive, tmp_path):
    sha256 = hashlib.sha256(archive.read_bytes()).hexdigest()
    text = tmp_path / "text.zip"
    text.write_text("no archive")
    for source, expected, says in [
        (archive, None, "SHA-1 is"),
        (archive, "0" * 64, f"SHA-256 is {sha256}"),
        (tmp_path / "absent.zip", None, "cannot be read: No such file"),
        ((tmp_path / "absent.zip").as_uri(), None, "cannot be read: No such file"),
        ("http://127.0.0.1:9/y.zip", None, "cannot be fetched"),
        ("ftp://x/y.zip", None, "neither a file nor"),
        (text, hashlib.sha256(b"no archive").hexdigest(), "does not contain"),
    ]:
        with pytest.raises(BenchError, match=says):
            prefetch_spice(str(source), user_spice(), Reporter(), sha256=expected)
    assert find_spice() is None
    assert not list(user_spice().rglob("*.jar"))
