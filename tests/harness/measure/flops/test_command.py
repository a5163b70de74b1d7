"""`bench flops` as a user types it, on models of unit-test size."""

import csv
import io
from typing import Any

import pytest

import zoo.registry
from harness.cli import flops_table as table_vi
from harness.measure.flops import count_backbone
from harness.utils.errors import BenchError
from results.published.scores import published_for
from tests.harness.conftest import bench, bench_ok
from zoo.errors import ZooError
from zoo.registry import model_card

SMALL = ["--visual-dim", "8", "--regions", "9", "--vocab-size", "30", "--caption-length", "2", "--beam", "2"]


@pytest.fixture
def tiny_models(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two models, of which one is broken."""
    create = zoo.registry.create_model

    def create_tiny(name: str, **arguments: Any) -> Any:
        if name == "blind":
            raise ValueError("it is\nbroken")
        return create(name, **{**model_card(name).tiny, **arguments})

    monkeypatch.setattr("harness.measure.memory.create_model", create_tiny)
    monkeypatch.setattr(zoo.registry, "list_models", _listing)


def _listing(pattern: str = "*") -> list[str]:
    return {"*": ["blind", "transformer_base"], "transformer*": ["transformer_base"]}.get(pattern, [])


@pytest.mark.usefixtures("tiny_models")
def test_table_fits_eighty_columns_and_states_its_conditions() -> None:
    result = bench_ok("flops", "--models", "transformer*", *SMALL)
    assert max(len(line) for line in result.stdout.splitlines()) <= 80
    row = next(line.split() for line in result.stdout.splitlines() if "transformer_base" in line)
    assert len(row) == 9  # the parameters have a unit
    assert "9 x 8 features, 30 words, 2 tokens" in result.stdout
    assert "Beam 2" in result.stdout
    assert "--operators lists it" in result.stdout


def test_a_preset_for_none_of_the_models_is_refused_and_the_right_one_named() -> None:
    result = bench("flops", "--preset", "expansionnet-v2-paper", "--models", "expansionnet_v2")
    assert isinstance(result.exception, BenchError)
    assert "--models 'expansionnet_v2/end-to-end'" in result.exception.hint
    assert "--preset expansionnet-v2-paper-frozen" in result.exception.hint


@pytest.mark.usefixtures("tiny_models")
def test_a_broken_model_is_a_row_and_the_others_go_on() -> None:
    result = bench("flops", *SMALL)
    assert result.exit_code == 1
    rows = {line.split()[0]: line.split() for line in result.stdout.splitlines() if line.split()}
    assert rows["blind"][1] == "failed"
    assert float(rows["transformer_base"][1]) > 0
    assert "blind: ValueError: it is broken" in result.stderr


@pytest.mark.usefixtures("tiny_models")
def test_csv_holds_exact_numbers_and_the_failure() -> None:
    result = bench("flops", *SMALL, "--format", "csv")
    assert result.exit_code == 1
    broken, whole = csv.DictReader(io.StringIO(result.stdout))
    assert (broken["model"], broken["parameters"], broken["failure"]) == ("blind", "", "ValueError: it is broken")
    assert int(whole["encoder_mac"]) < int(whole["greedy_mac"]) < int(whole["beam_mac"])
    assert whole["failure"] == ""
    assert "add:" in whole["uncounted"]


@pytest.mark.parametrize(
    ("output", "name"), [("markdown", "| transformer_base | "), ("latex", r"transformer\_base & ")]
)
@pytest.mark.usefixtures("tiny_models")
def test_tables_to_paste_with_operators_as_notes(output: str, name: str) -> None:
    result = bench_ok("flops", "--models", "transformer*", *SMALL, "--format", output, "--operators")
    [row] = [line for line in result.stdout.splitlines() if line.startswith(name)]
    notes = result.stdout.split(row)[1]
    assert "GMAC: linear" in notes
    assert "add x" in notes


@pytest.mark.usefixtures("tiny_models")
def test_sizes_and_decoding_of_a_preset() -> None:
    at = ["flops", "--models", "transformer*", "--format", "csv", *SMALL[:6], "--preset", "quick"]
    sizes = ["--set", "size.d_model=16", "--set", "size.d_ff=16", "--set", "decoding.max_len=2", "--position", "2"]
    [short] = csv.DictReader(io.StringIO(bench(*at, *sizes).stdout))
    [wide] = csv.DictReader(io.StringIO(bench(*at, *sizes, "--set", "size.d_model=32").stdout))
    assert int(short["parameters"]) < int(wide["parameters"])
    assert int(short["beam_mac"]) - int(short["greedy_mac"]) == 2 * int(short["step_mac"])
    refused = bench("flops", "--set", "size.d_model=32")
    assert isinstance(refused.exception, BenchError)
    assert "add --preset" in str(refused.exception.hint)


@pytest.mark.usefixtures("tiny_models")
def test_a_backbone_is_counted_on_top() -> None:
    backbone = ["--with-backbone", "--backbone", "resnet10t", "--image-size", "32", "--format", "csv"]
    [row] = csv.DictReader(io.StringIO(bench("flops", "--models", "transformer*", *SMALL, *backbone).stdout))
    counted = count_backbone("resnet10t", 32)
    assert int(row["beam_and_backbone_mac"]) - int(row["beam_mac"]) == counted.count.macs > 1e6
    assert (counted.tokens, counted.channels) == (1, 512)
    with pytest.raises(BenchError, match="resnet10x"):
        count_backbone("resnet10x")
    with pytest.raises(BenchError, match="8 x 8"):
        count_backbone("vit_tiny_patch16_224", 8)


def test_every_row_of_table_vi_is_reproduced() -> None:
    for name in table_vi.ROWS:
        [printed] = published_for(name, metric="GMAC-table")
        assert table_vi.teacher_forced_macs(name) * table_vi.IMAGES / 1e12 == pytest.approx(printed.value, abs=0.0055)


def test_the_convention_agrees_with_fvcore_on_the_authors_code() -> None:
    """Their full model, 20 tokens: 3,324,162,048, of which input projection 113,246,208 and norms 3,092,480."""
    assert table_vi.teacher_forced_macs("expansionnet_v2", 20, 400) == 3_324_162_048 - 113_246_208 - 3_092_480


def test_table_vi_stands_beside_real_captions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_vi, "ROWS", ("transformer_base", "expansionnet_v2/static-16"))
    monkeypatch.setattr(table_vi, "REGIONS", 4)
    monkeypatch.setattr(table_vi, "VOCABULARY", 50)
    monkeypatch.setattr(table_vi, "_TOKENS", 2)
    monkeypatch.setattr(table_vi, "_BACKBONE", "resnet10t")
    result = bench("flops-table", "--format", "csv")
    first, second = csv.DictReader(io.StringIO(result.stdout))
    assert (first["Printed"], second["Row"], second["Printed"]) == ("9.28", "static-16", "9.62")
    assert 0 < float(first["Beam 5"]) < float(first["Beam 5 + Swin-L"])


@pytest.mark.usefixtures("tiny_models")
def test_no_model_of_that_name() -> None:
    result = bench("flops", "--models", "nothing*")
    assert isinstance(result.exception, ZooError)
    assert "nothing*" in str(result.exception)
