"""`hf:` in `--models`: rows of transformers' own interface, what is signed of them, and what is refused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from harness.benchmark.hub_model import HubModel, HubOptions, SavedHubModel, hub_options, prefetch_hub
from harness.benchmark.models import resolve_models
from harness.benchmark.pretrained import WeightsMissing
from harness.config.preset import Decoding
from harness.utils.errors import BenchError
from harness.utils.workspace import Workspace
from results import Store
from results.runs.leaderboard import leaderboard
from tests.harness.conftest import TINY, DrawScenes, bench, run_words
from tests.harness.inference.hub_families import tokenizer, write_family
from zoo import ZooError, model_card
from zoo.registry import NOT_DOCUMENTED


@pytest.fixture(scope="module")
def llava(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_family("llava", tmp_path_factory.mktemp("hub") / "llava")


@pytest.fixture(autouse=True)
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No model that happens to lie on this machine; and nobody may ask the network."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "nothing"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)


def edit(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    change(config)
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")


def cut_short(folder: Path) -> None:
    (folder / "config.json").write_text("{", encoding="utf-8")


def name_no_type(folder: Path) -> None:
    edit(folder, lambda config: config.pop("model_type"))


def read_text_alone(folder: Path) -> None:
    transformers.LlamaConfig().save_pretrained(folder)


def caption_nothing(folder: Path) -> None:
    transformers.ViTConfig().save_pretrained(folder)


def want_code(folder: Path) -> None:
    edit(folder, lambda config: config.update(model_type="own_vlm", auto_map={"AutoModel": "modeling.Own"}))
    (folder / "modeling.py").write_text("raise SystemExit('this code must not run')", encoding="utf-8")


def lose_the_images(folder: Path) -> None:
    for name in ("processor_config.json", "preprocessor_config.json"):
        (folder / name).unlink(missing_ok=True)


def lose_the_words(folder: Path) -> None:
    (folder / "tokenizer.json").unlink()


def cut_the_words_short(folder: Path) -> None:
    (folder / "tokenizer.json").write_text("{", encoding="utf-8")


def hold_few_bits(folder: Path) -> None:
    edit(folder, lambda config: config.update(quantization_config={"quant_method": "awq", "bits": 4}))


def lose_the_weights(folder: Path) -> None:
    (folder / "model.safetensors").unlink()


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        (cut_short, "is no usable model: config.json cannot be read"),
        (name_no_type, "config.json names no model_type"),
        (read_text_alone, r"is a text-only model \(llama\)"),
        (caption_nothing, r"is no image-to-text model that the installed transformers knows \(vit\)"),
        (want_code, r"wants to run Python code of its own"),
        (lose_the_images, "has no processor of images: no preprocessor_config.json"),
        (lose_the_words, "has no processor of text: no tokenizer.json"),
        (cut_the_words_short, "has no usable processor: tokenizer.json is no JSON"),
        (hold_few_bits, r"has quantised weights \(awq\), which are not supported"),
        (lose_the_weights, r"has no weights as \.safetensors"),
    ],
)
def test_what_cannot_caption_is_refused_in_one_sentence(
    broken: Callable[[Path], None], said: str, tmp_path: Path
) -> None:
    folder = write_family("llava", tmp_path / "llava")
    broken(folder)
    with pytest.raises(BenchError, match=said) as caught:
        resolve_models([f"hf:{folder}", "blind"], Workspace(tmp_path))
    assert str(caught.value).startswith("hf:llava ")
    assert "\n" not in str(caught.value)
    assert caught.value.hint


def test_weights_of_other_shapes_are_named_and_kernels_of_the_hub_are_never_fetched(
    llava: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "llava"
    shutil.copytree(llava, folder)
    edit(folder, lambda config: config.update(attn_implementation="org/kernels"))
    edit(folder, lambda config: config["vision_config"].update(attn_implementation="org/kernels"))
    assert HubModel(str(folder)).open(torch.device("cpu"), "fp32").attention == "sdpa"
    edit(folder, lambda config: config["text_config"].update(intermediate_size=32))
    with pytest.raises(ZooError, match=r"have other shapes than config\.json says, model\.language_model") as caught:
        HubModel(str(folder)).open(torch.device("cpu"), "fp32")
    assert "\n" not in str(caught.value)


def test_attention_and_type_are_signed_where_they_are_not_the_usual(llava: Path) -> None:
    def signed(**asked: str) -> dict[str, str]:
        return HubModel(str(llava), **asked).signature({"prec": "fp32"})

    usual = signed()
    assert "attn" not in usual
    assert signed(attention="sdpa", dtype="fp32") == usual
    assert signed(attention="eager", dtype="bf16") == usual | {"attn": "eager", "prec": "bf16"}
    model = HubModel(str(llava), attention="eager", dtype="fp16")
    assert SavedHubModel.of(model, Decoding()).model == model
    captioner = model.open(torch.device("cpu"), "fp32")
    assert (captioner.attention, captioner.dtype) == ("eager", torch.float16)


def test_what_attention_lacks_is_said_in_one_sentence(
    llava: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(folder: Path, attention: str) -> str:
        with pytest.raises(BenchError, match=f"--hub-attention {attention}") as caught:
            resolve_models([f"hf:{folder}"], Workspace(tmp_path), hub=HubOptions(attention=attention))
        assert "\n" not in str(caught.value)
        assert caught.value.hint
        return str(caught.value)

    monkeypatch.setattr("harness.inference.hub_checkpoint.find_spec", lambda _: None)
    assert "needs the package flash-attn" in refused(llava, "flash_attention_2")
    monkeypatch.setattr("harness.inference.hub_checkpoint.find_spec", lambda _: object())
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert "needs a CUDA device" in refused(llava, "flash_attention_2")
    assert "is not for hf:blip" in refused(write_family("blip", tmp_path / "blip"), "sdpa")
    with pytest.raises(BenchError, match="not on cpu in bf16"):
        HubModel(str(llava), attention="flash_attention_2").open(torch.device("cpu"), "bf16")
    for wrong in ({"attention": "fast"}, {"dtype": "int8"}):
        with pytest.raises(BenchError, match="is unknown"):
            hub_options(None, None, wrong.get("attention"), wrong.get("dtype"))


def test_a_tokenizer_alone_is_no_processor(tmp_path: Path) -> None:
    folder = write_family("llava", tmp_path / "llava")
    lose_the_images(folder)
    tokenizer().save_pretrained(folder)
    with pytest.raises(BenchError, match="processor"):
        resolve_models([f"hf:{folder}"], Workspace(tmp_path))


def test_names_are_folders_or_repositories(llava: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert HubModel.parse(f"hf:{llava}") == HubModel(str(llava))
    monkeypatch.chdir(llava.parent)
    assert HubModel.parse("hf:llava").row == "hf:llava"
    assert HubModel.parse("hf:org/name@v1.0", HubOptions("photo")) == HubModel("org/name", "v1.0", "photo")
    assert HubModel.parse("hf:org/name@v1.0").row == "hf:org/name@v1.0"
    for wrong in ("hf:", "hf:name", "hf:/nowhere/at/all", "hf:a/b/c", "hf:a/b@"):
        with pytest.raises(BenchError, match="no such folder"):
            HubModel.parse(wrong)
    with pytest.raises(BenchError, match="--prompt is for models of hf:"):
        resolve_models(["blind"], Workspace(tmp_path), hub=HubOptions("photo"))


def test_weights_that_are_not_here_are_skipped_with_what_to_type(tmp_path: Path) -> None:
    [model] = resolve_models(["hf:org/name"], Workspace(tmp_path))
    assert (model.kind, model.name) == ("hub", "hf:org/name")
    assert model.hub is not None
    with pytest.raises(WeightsMissing, match="hf:org/name are not on this machine") as caught:
        model.hub.folder()
    assert "bench prefetch model hf:org/name" in (caught.value.hint or "")
    assert model.hub.signature({})["prompt"] == "unknown"
    with pytest.raises(BenchError, match="HF_HUB_OFFLINE"):
        prefetch_hub("hf:org/name")


def test_what_weights_saw_is_that_of_a_card_of_the_same_repository() -> None:
    card = model_card("git/pretrained")
    assert HubModel(card.hub).pretraining() == card.pretraining
    assert HubModel(card.hub).signature({})["pretraining"].startswith("captions of COCO")
    assert HubModel("org/name").pretraining() == NOT_DOCUMENTED
    assert HubModel("org/name").signature({})["pretraining"] == "not documented"


def test_prompts_have_tables_of_their_own(llava: Path) -> None:
    signed = {HubModel(str(llava), prompt=asked).signature({})["prompt"] for asked in (None, "detailed", "Why?", "")}
    assert len(signed) == 4
    plain, cleaned = HubModel(str(llava)).signature({}), HubModel(str(llava), clean=("quotes",)).signature({})
    assert cleaned == plain | {"clean": "quotes"}
    assert "clean" not in plain
    assert "asked 'Why?'" in HubModel(str(llava), prompt="Why?").card()["summary"]


def test_a_run_has_a_row_of_every_kind_and_captions_again(llava: Path, draw_scenes: DrawScenes, tmp_path: Path) -> None:
    data, workspace = draw_scenes(train=16, val=4, test=6), tmp_path / "workspace"
    words = run_words(data, workspace, f"hf:{llava},hf:org/name,transformer_base,blind,human", TINY)
    result = bench(*words, "--backbone", "filterbank", "--jobs", 1)
    assert "4 finished, 0 re-used, 1 skipped, 0 failed" in result.output
    assert "pretraining unknown" in result.output
    pages = [page.read_text(encoding="utf-8") for page in (workspace / "report").rglob("*.html")]
    assert pages
    assert not any("zero-shot" in text.lower() for text in (result.output, *pages))
    with Store(workspace / "bench.sqlite", read_only=True) as store:
        rows = {row.model: (group, row) for group in leaderboard(store) if group.split == "test" for row in group.rows}
    assert rows.keys() == {"hf:llava", "transformer_base", "blind"}
    group, row = rows["hf:llava"]
    assert [each.model for each in group.rows] == ["hf:llava"]
    assert group.signature["search"] == "transformers"
    assert "search" not in rows["blind"][0].signature
    assert row.scores["CIDEr-D"].mean is not None
    costs = {name: cost.value for name, cost in row.costs.items()}
    assert costs["latency_images"] == 2
    for name in ("parameters", "gmac_encoder", "gmac_start", "gmac_step", "caption_length_mean", "latency_median"):
        assert (costs[name] or 0) > 0
    [key] = row.keys
    again = bench(*run_words(data, workspace, f"hf:{llava}", TINY), "--backbone", "filterbank", "--jobs", 1)
    assert "0 finished, 1 re-used" in again.output
    picture = sorted(data.rglob("*.png"))[0]
    by_key = bench("caption", picture, "--run", key, "--workspace", workspace)
    by_folder = bench("caption", picture, "--run", f"hf:{llava}", "--beam-size", 1)
    for shown in (by_key, by_folder):
        assert shown.exit_code == 0, shown.output
        assert shown.output.startswith(f"{picture}: ")
    refused = bench("caption", picture, "--run", f"hf:{llava}", "--attention")
    assert "--attention is not for models of hf:" in str(refused.exception)
