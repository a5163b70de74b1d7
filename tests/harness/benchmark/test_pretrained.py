"""Pretrained models in a run: found, described, skipped where they are missing, and never fetched unasked."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from PIL import Image
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoImageProcessor, AutoTokenizer

import harness.inference.generate
import harness.measure.captioning_costs
import zoo
from harness.benchmark.context import Execution, ModelInputs, RunContext
from harness.benchmark.identity.signature import pretraining_field
from harness.benchmark.models import resolve_models
from harness.benchmark.plan import plan_runs
from harness.benchmark.pretrained import Pretrained, WeightsMissing, parse_places, prefetch_model
from harness.benchmark.saved_model import SavedModel
from harness.config.features import FeatureConfig
from harness.config.load import load_preset
from harness.config.preset import Decoding
from harness.data.hub import HubPreprocessing
from harness.data.vocabularies import HubVocabulary, load_vocabulary
from harness.utils.errors import BenchError
from harness.utils.workspace import Workspace
from results import Store
from results.runs.leaderboard import leaderboard
from results.runs.reading import failures
from tests.harness.conftest import DrawScenes, bench, run_words
from zoo import registry
from zoo.decoding import Hypotheses, beam_search
from zoo.registry import NOT_DOCUMENTED

FAMILIES = ["blip", "git", "vit_gpt2"]
PAD, BEGIN, END = 0, 2, 3
_PROCESSORS = {
    "git": ("CLIPImageProcessor", {"size": {"shortest_edge": 32}, "crop_size": {"height": 32, "width": 32}}),
    "blip": ("BlipImageProcessor", {"size": {"height": 32, "width": 32}}),
    "vit_gpt2": ("ViTImageProcessor", {"size": {"height": 32, "width": 32}}),
}
_CAPTIONS = ("a red circle left of a blue square", "a small green triangle above a large yellow star")


def write_hub_folder(family: str, folder: Path) -> Path:
    """Write tokenizer, image processor and network of `family` to `folder`."""
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.decoder = decoders.WordPiece()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    tokenizer.train_from_iterator(_CAPTIONS, trainers.WordPieceTrainer(vocab_size=90, special_tokens=special))
    named = dict(zip(("pad_token", "unk_token", "cls_token", "sep_token"), special, strict=True))
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, **named).save_pretrained(folder)
    processor, settings = _PROCESSORS[family]
    getattr(transformers, processor)(**settings).save_pretrained(folder)
    torch.manual_seed(0)
    name = f"{family}/small"
    tiny = {**zoo.model_card(name).tiny, "max_len": 24}
    network = zoo.create_model(name, vocab_size=tokenizer.get_vocab_size(), visual_dim=0, **tiny).network
    parts = (getattr(network.config, name, None) for name in ("text_config", "decoder"))
    for config in (network.config, *parts):
        if config is not None:
            config.bos_token_id, config.eos_token_id, config.pad_token_id, config.sep_token_id = BEGIN, END, PAD, END
    network.config.decoder_start_token_id = BEGIN
    network.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("hub")
    return {family: write_hub_folder(family, folder / family) for family in FAMILIES}


@pytest.fixture(autouse=True)
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No model that happens to lie on this machine; and nobody may ask the network."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "nothing"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)


def test_the_tokenizer_encodes_and_decodes_as_the_library_does(hub: dict[str, Path], tmp_path: Path) -> None:
    vocabulary = HubVocabulary.read(hub["git"], BEGIN, END)
    library = AutoTokenizer.from_pretrained(str(hub["git"]))
    caption = "A red square, above a yellow triangle!"
    ids = vocabulary.encode(caption, 30)
    assert ids == [*library.encode("a red square above a yellow triangle", add_special_tokens=False), END]
    assert vocabulary.decode([*ids, 7, 8]) == "a red square above a yellow triangle"
    assert vocabulary.words_of(ids) == ["a", "red", "square", "above", "a", "yellow", "triangle"]
    assert vocabulary.encode(caption, 3) == [*ids[:2], END]
    assert len(vocabulary) == len(library)
    vocabulary.save(tmp_path / "vocabulary.json")
    again = load_vocabulary(tmp_path / "vocabulary.json")
    assert again == vocabulary
    assert again.digest() == vocabulary.digest()
    assert dataclasses.replace(vocabulary, eos=4).digest() != vocabulary.digest()


@pytest.mark.parametrize("family", FAMILIES)
def test_pictures_are_prepared_by_the_model_s_own_processor(hub: dict[str, Path], family: str) -> None:
    picture = Image.fromarray(np.random.default_rng(0).integers(0, 255, (50, 70, 3), dtype=np.uint8))
    expected = AutoImageProcessor.from_pretrained(str(hub[family]))(images=picture, return_tensors="np")
    found = HubPreprocessing(hub[family])(picture)
    assert found.shape == (3, 32, 32)
    np.testing.assert_array_equal(found, expected["pixel_values"][0])


@pytest.mark.parametrize(
    ("missing", "use"),
    [
        ("tokenizer.json", lambda folder: HubVocabulary.read(folder, BEGIN, END)),
        ("preprocessor_config.json", lambda folder: HubPreprocessing(folder).key()),
    ],
)
def test_a_half_downloaded_folder_is_named(missing: str, use: Callable[[Path], object], tmp_path: Path) -> None:
    folder = write_hub_folder("git", tmp_path / "git")
    (folder / missing).write_text((folder / missing).read_text(encoding="utf-8")[:40], encoding="utf-8")
    for _ in range(2):
        with pytest.raises(BenchError, match="holds no usable") as caught:
            use(folder)
        assert str(folder) in str(caught.value)
        assert "\n" not in str(caught.value)
        (folder / missing).unlink(missing_ok=True)


def test_weights_that_are_nowhere_say_what_to_type(tmp_path: Path) -> None:
    [model] = resolve_models(["git/pretrained"], Workspace(tmp_path))
    assert (model.kind, model.weights) == ("pretrained", Pretrained("git/pretrained", "microsoft/git-base-coco"))
    for where in ("microsoft/git-base-coco", "no such/repository/at all", "/nowhere"):
        with pytest.raises(WeightsMissing, match="not on this machine") as caught:
            Pretrained("git/pretrained", where).folder()
        assert "bench prefetch model git/pretrained" in caught.value.hint
    [small, tuned] = resolve_models(["git/small", "git/finetuned"], Workspace(tmp_path))
    assert (small.kind, small.weights, tuned.kind) == ("trained", None, "trained")


def test_what_weights_saw_is_said_of_the_card_s_repository_alone(tmp_path: Path) -> None:
    card = zoo.model_card("git/finetuned")
    own, elsewhere = Pretrained(card.name, card.hub), Pretrained(card.name, "somebody/git-base")
    assert own.pretraining() == card.pretraining
    assert pretraining_field(own.pretraining()) == {"pretraining": "captions of COCO,Visual Genome,CC3M,SBU,WIT"}
    assert elsewhere.pretraining() == NOT_DOCUMENTED
    assert elsewhere.signature({}, trained=True)["pretraining"] == "not documented"
    folder = Pretrained(card.name, str(tmp_path)).pretraining()
    assert folder == dataclasses.replace(card.pretraining, source=folder.source)
    assert folder.source.endswith(f"the weights were read from the folder {tmp_path.name}")


def test_rows_that_saw_nothing_before_keep_their_signature(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    zoo.list_models()
    monkeypatch.setattr("zoo.registry._cards", dict(registry._cards))
    labels = zoo.Pretraining(("ImageNet",), "", (), {}, "a paper")
    zoo.register_model(dataclasses.replace(zoo.model_card("blind"), name="mine", pretraining=labels))
    context: Any = SimpleNamespace(
        signature={"data": "d#1", "track": "controlled", "feat": "f"},
        preset=load_preset("smoke"),
        tuned=None,
        inputs=SimpleNamespace(vocabulary=range(9)),
        data=SimpleNamespace(feature_config=FeatureConfig(), evaluated={}, visual_dim=4, grid=None),
    )
    workspace = Workspace(tmp_path)
    blind, mine = plan_runs(resolve_models(["blind", "mine"], workspace), 1, context, workspace)
    assert blind.signature == context.signature
    assert "pretraining" not in blind.config["card"]
    assert mine.signature == context.signature | {"pretraining": "no captions"}
    assert mine.config["card"]["pretraining"]["source"] == "a paper"


def test_offline_nothing_is_fetched() -> None:
    with pytest.raises(BenchError, match="HF_HUB_OFFLINE"):
        prefetch_model("blip/pretrained", None)
    with pytest.raises(BenchError, match="no pretrained weights"):
        prefetch_model("blip/small", None)


def test_places_are_read_strictly() -> None:
    assert parse_places(("git/pretrained=a=b",)) == {"git/pretrained": "a=b"}
    for wrong in ("git/pretrained", "git/pretrained=", "blip/small=x"):
        with pytest.raises(BenchError):
            parse_places((wrong,))


@pytest.mark.parametrize("family", FAMILIES)
def test_weights_of_half_precision_become_float32(hub: dict[str, Path], tmp_path: Path, family: str) -> None:
    name, folder = f"{family}/pretrained", tmp_path / family
    shutil.copytree(hub[family], folder)
    network = zoo.create_model(name, vocab_size=0, visual_dim=0, folder=str(folder), max_len=9).network
    network.half().save_pretrained(folder)
    assert zoo.create_model(name, vocab_size=0, visual_dim=0, folder=str(folder), max_len=9).network.dtype == torch.half
    unused: Any = None
    preset: Any = SimpleNamespace(size={"max_len": 9})
    inputs, execution = ModelInputs(unused, unused, Decoding()), Execution(torch.device("cpu"), "bf16")
    context = RunContext(unused, inputs, execution, preset, {})
    model, context, arguments = Pretrained(name, str(folder)).open(context)
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    run = SavedModel(
        model=name, arguments=arguments, visual_dim=0, features=FeatureConfig(backbone="filterbank"),
        backbone_digest="", preprocessing=context.inputs.preprocessing, decoding=Decoding(), trained=False,
    )  # fmt: skip
    context.inputs.vocabulary.save(tmp_path / "vocabulary.json")
    assert {parameter.dtype for parameter in run.build(tmp_path)[0].parameters()} == {torch.float32}


def test_a_run_scores_what_is_there_and_skips_what_is_not(
    hub: dict[str, Path], draw_scenes: DrawScenes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cast: dict[str, list[bool]] = {}
    for module in (harness.inference.generate, harness.measure.captioning_costs):
        heard = cast.setdefault(module.__name__, [])

        def search(*given: Any, heard: list[bool] = heard, **asked: Any) -> Hypotheses:
            heard.append(torch.is_autocast_enabled("cpu"))
            return beam_search(*given, **asked)

        monkeypatch.setattr(module, "beam_search", search)
    small_scenes = draw_scenes(train=16, val=4, test=6, nocaps_per_domain=2)
    workspace = tmp_path / "workspace"
    settings = {"schedule.stages.0.epochs": 1, "schedule.stages.0.batch_size": 8, "latency_repeats": 2}
    settings |= {"decoding.max_len": 8}  # what is counted by tracing grows with it
    words = run_words(small_scenes, workspace, "git/pretrained,vit_gpt2/finetuned,blip/pretrained", settings)
    for name in ("git/pretrained", "vit_gpt2/finetuned"):
        words += ["--pretrained", f"{name}={hub[name.partition('/')[0]]}"]
    result = bench(*words, "--backbone", "filterbank", "--precision", "bf16")
    assert "2 finished, 0 re-used, 1 skipped, 0 failed" in result.output
    assert result.exit_code == 1
    assert [set(heard) for heard in cast.values()] == [{True}, {True}], "as `prec` says"
    with Store(workspace / "bench.sqlite", read_only=True) as store:
        rows = {row.model: (group, row) for group in leaderboard(store) if group.split == "test" for row in group.rows}
        [skipped] = failures(store)
    assert rows.keys() == {"git/pretrained", "vit_gpt2/finetuned"}
    group, row = rows["git/pretrained"]
    assert group.signature["vocab"].startswith("tokenizer of git#")
    assert group.signature["feat"].startswith("pixels[processor of git#")
    assert group.signature["schedule"] == "none"
    assert group.signature["pretraining"].startswith("captions of COCO,")
    assert row.pretraining.source.endswith("the weights were read from the folder git")
    assert group.signature["prec"] == "bf16"
    assert row.costs["latency_images"].value == 2
    assert 1 <= (row.costs["caption_length_mean"].value or 0) <= 8
    assert 0 < (row.costs["gmac_beam_mean_length"].value or 0) <= (row.costs["gmac_beam"].value or 0)
    assert row.scores["CIDEr-D"].mean is not None
    assert (skipped.model, skipped.status) == ("blip/pretrained", "skipped")
    assert "bench prefetch model blip/pretrained" in skipped.reason
    [key] = row.keys
    conditions = {"data": "d#1", "track": "controlled", "feat": "f"}
    context: Any = SimpleNamespace(signature=conditions, data=SimpleNamespace(graphs=None))
    for stored in (stored for _, each in rows.values() for stored in each.keys):
        models = resolve_models([stored], Workspace(workspace))
        [again] = plan_runs(models, 1, context, Workspace(workspace))
        assert again.kind == "stored"
        assert again.signature["pretraining"].startswith("captions of COCO"), "scored again it has seen the same"
        assert again.config["card"]["pretraining"]["source"].endswith(Path(again.config["stored"]["pretrained"]).name)
    images = sorted(small_scenes.rglob("*.png"))[:1]
    shown = bench("caption", images[0], "--run", key, "--workspace", workspace)
    assert shown.exit_code == 0, shown.output
    assert cast["harness.inference.generate"][-1] is False, "captions of one's own pictures are made in float32"
