"""Models with published weights, of cards and `hf:`: found, signed, refused or skipped, never fetched unasked."""

import dataclasses
import json
import os
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
import zoo
from harness.benchmark import pretrained
from harness.benchmark.context import ComputeDevice, ModelInputs, RunContext
from harness.benchmark.hub_model import HubModel, SavedHubModel, hub_options, prefetch_hub
from harness.benchmark.pretrained import Pretrained, check_places, prefetch_model, published_signature
from harness.benchmark.rows import resolve_models
from harness.benchmark.saved_model import SavedModel
from harness.benchmark.signature import pretraining_field
from harness.config.features import FeatureConfig
from harness.config.preset import Decoding
from harness.config.run import HubRun, RunBase, parse_run
from harness.data.hub import HubPreprocessing, WeightsMissing
from harness.data.vocabularies import HubVocabulary, load_vocabulary
from harness.utils.errors import BenchError
from harness.utils.workspace import Workspace
from reports.columns import cost_cell
from reports.html.report import write_report
from results import Store
from results.runs import reading
from tests.harness.benchmark.small_runs import planner, run_config
from tests.harness.conftest import (
    TINY,
    DrawScenes,
    bench,
    bench_ok,
    bench_or_raise,
    failures_in,
    groups_in,
    run_counts,
    run_words,
    tables_of,
)
from tests.harness.inference.hub_families import tokenizer, write_family, write_vision_encoder_decoder
from zoo import ZooError
from zoo.card import NOT_DOCUMENTED
from zoo.decoding import Hypotheses, beam_search

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
    assert own.pretraining() == HubModel(card.hub).pretraining() == card.pretraining
    assert pretraining_field(own.pretraining()) == {"pretraining": "captions of COCO,Visual Genome,CC3M,SBU,WIT"}
    assert elsewhere.pretraining() == HubModel("org/name").pretraining() == NOT_DOCUMENTED
    assert published_signature({}, "x", elsewhere.pretraining(), trained=True)["pretraining"] == "not documented"
    folder = Pretrained(card.name, str(tmp_path)).pretraining()
    assert folder == dataclasses.replace(card.pretraining, source=folder.source)
    assert folder.source.endswith(f"the weights were read from the folder {tmp_path.name}")


def test_rows_that_saw_nothing_before_keep_their_signature(small: RunContext, tmp_path: Path) -> None:
    labels = zoo.Pretraining(("ImageNet",), "", (), {}, "a paper")
    zoo.register_model(dataclasses.replace(zoo.model_card("blind"), name="mine", pretraining=labels))
    workspace = Workspace(tmp_path)
    blind, mine = planner(small, workspace).plan(resolve_models(["blind", "mine"], workspace), 1)
    assert blind.signature == small.signature
    assert "pretraining" not in blind.record["card"]
    assert mine.signature == small.signature | {"pretraining": "no captions"}
    assert mine.record["card"]["pretraining"]["source"] == "a paper"


def test_offline_nothing_is_fetched() -> None:
    with pytest.raises(BenchError, match="HF_HUB_OFFLINE"):
        prefetch_model("blip/pretrained", None)
    with pytest.raises(BenchError, match="no pretrained weights"):
        prefetch_model("blip/small", None)


def test_places_are_of_models_with_weights() -> None:
    assert check_places({"git/pretrained": "a=b"}) == {"git/pretrained": "a=b"}
    with pytest.raises(BenchError, match="no pretrained weights"):
        check_places({"blip/small": "x"})
    for wrong in ("git/pretrained", "git/pretrained="):
        with pytest.raises(BenchError, match="no '='"):
            bench_or_raise("plan", "--models", "git/pretrained", "--pretrained", wrong)


@pytest.mark.parametrize("family", FAMILIES)
def test_weights_of_half_precision_become_float32(hub: dict[str, Path], tmp_path: Path, family: str) -> None:
    name, folder = f"{family}/pretrained", tmp_path / family
    shutil.copytree(hub[family], folder)
    network = zoo.create_model(name, vocab_size=0, visual_dim=0, folder=str(folder), max_len=9).network
    network.half().save_pretrained(folder)
    assert zoo.create_model(name, vocab_size=0, visual_dim=0, folder=str(folder), max_len=9).network.dtype == torch.half
    unused: Any = None
    preset: Any = SimpleNamespace(size={"max_len": 9})
    inputs, compute = ModelInputs(unused, unused, Decoding()), ComputeDevice(torch.device("cpu"), "bf16")
    context = RunContext(unused, inputs, compute, preset)
    model, context, arguments = Pretrained(name, str(folder)).open(context)
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    run = SavedModel(
        model=name, arguments=arguments, visual_dim=0, features=FeatureConfig(backbone="filterbank"),
        backbone_digest="", preprocessing=context.inputs.preprocessing, decoding=Decoding(), trained=False,
    )  # fmt: skip
    context.inputs.vocabulary.save(tmp_path / "vocabulary.json")
    assert {parameter.dtype for parameter in run.build(tmp_path)[0].parameters()} == {torch.float32}


def test_a_repository_is_signed_with_the_commit_that_is_here(monkeypatch: pytest.MonkeyPatch) -> None:
    assert pretrained.folder_name("some/model") == "some/model"
    monkeypatch.setattr(pretrained, "cached_snapshot", lambda *_: Path("models") / ("0123456789abcdef" * 2))
    assert pretrained.folder_name("some/model") == "some/model@0123456789ab"


def test_a_folder_is_signed_with_its_contents(tmp_path: Path) -> None:
    for parent in ("first", "second"):
        (tmp_path / parent / "model").mkdir(parents=True)
        (tmp_path / parent / "model" / "config.json").write_text("{}")
        os.utime(tmp_path / parent / "model" / "config.json", (0, 1 if parent == "first" else 2))
    first, second = (pretrained.folder_name(str(tmp_path / parent / "model")) for parent in ("first", "second"))
    assert first == second  # a copy, as a checkout of continuous integration is
    (tmp_path / "second" / "model" / "config.json").write_text("[]")
    assert pretrained.folder_name(str(tmp_path / "second" / "model")) != first


def signature_of(key: str, workspace: Path) -> dict[str, str]:
    with Store(workspace / "bench.sqlite", read_only=True) as store:
        return reading.one_run(store, key).signature


def test_a_run_scores_what_is_there_and_skips_what_is_not(
    hub: dict[str, Path],
    small: RunContext,
    draw_scenes: DrawScenes,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cast: list[bool] = []  # where captions are made, and where that is timed

    def search(*given: Any, **asked: Any) -> Hypotheses:
        cast.append(torch.is_autocast_enabled("cpu"))
        return beam_search(*given, **asked)

    monkeypatch.setattr(harness.inference.generate, "beam_search", search)
    small_scenes = draw_scenes(train=16, val=4, test=6, nocaps_per_domain=2)
    workspace = tmp_path / "workspace"
    settings = {"schedule.stages.0.epochs": 1, "schedule.stages.0.batch_size": 8, "latency_repeats": 2}
    settings |= {"decoding.max_len": 4}
    words = run_words(small_scenes, workspace, "git/pretrained,vit_gpt2/finetuned,blip/pretrained", settings)
    for name in ("git/pretrained", "vit_gpt2/finetuned"):
        words += ["--pretrained", f"{name}={hub[name.partition('/')[0]]}"]
    unused = bench(*words, "--backbone", "filterbank", "--pretrained", f"vit_gpt2/pretrained={tmp_path}")
    assert "no such model is asked for" in str(unused.exception)
    result = bench(*words, "--backbone", "filterbank", "--precision", "bf16")
    assert run_counts(result.stdout).items() >= {"finished": 2, "re-used": 0, "skipped": 1, "failed": 0}.items()
    assert result.exit_code == 1
    assert set(cast) == {True}, "as `prec` says"
    groups, [skipped] = groups_in(workspace), failures_in(workspace)
    rows = {row.model: (group, row) for group in groups if group.split == "test" for row in group.rows}
    assert rows.keys() == {"git/pretrained", "vit_gpt2/finetuned"}
    group, row = rows["git/pretrained"]
    assert group.track == "systems"
    assert rows["vit_gpt2/finetuned"][0].track == "controlled", "it was trained here"
    signature = signature_of(row.keys[0], workspace)
    assert signature["vocab"].startswith("tokenizer of git#")
    assert signature["feat"].startswith("pixels[processor of git#")
    assert signature["schedule"] == "none"
    assert signature["pretraining"].startswith("captions of COCO,")
    assert row.pretraining.source.endswith("the weights were read from the folder git")
    assert (signature["prec"], row.costs["latency_images"].value) == ("bf16", 2)
    assert 1 <= (row.costs["caption_length_mean"].value or 0) <= 4
    assert (row.costs["gmac_beam_mean_length"].value or 0) > 0
    assert row.scores["CIDEr-D"].mean is not None
    assert (skipped.model, skipped.status) == ("blip/pretrained", "skipped")
    assert "bench prefetch model blip/pretrained" in skipped.reason
    [key] = row.keys
    opened = Workspace(workspace)
    for stored in (stored for _, each in rows.values() for stored in each.keys):
        [again] = planner(small, opened).plan(resolve_models([stored], opened), 1)
        assert again.kind == "stored"
        assert again.signature["pretraining"].startswith("captions of COCO"), "scored again it has seen the same"
        assert again.record["card"]["pretraining"]["source"].endswith(Path(again.record["stored"]["pretrained"]).name)
    images = sorted(small_scenes.rglob("*.png"))[:1]
    bench_ok("caption", images[0], "--run", key, "--workspace", workspace)
    assert cast[-1] is False, "captions of one's own pictures are made in float32"


def edit(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    change(config)
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")


def lose_the_images(folder: Path) -> None:
    for name in ("processor_config.json", "preprocessor_config.json"):
        (folder / name).unlink(missing_ok=True)


def want_code(folder: Path) -> None:
    edit(folder, lambda config: config.update(model_type="own_vlm", auto_map={"AutoModel": "modeling.Own"}))
    (folder / "modeling.py").write_text("raise SystemExit('this code must not run')", encoding="utf-8")


@pytest.mark.parametrize(
    ("broken", "named"),
    [
        (lambda folder: (folder / "config.json").write_text("{", encoding="utf-8"), "config.json"),
        (lambda folder: edit(folder, lambda config: config.pop("model_type")), "model_type"),
        (lambda folder: transformers.LlamaConfig().save_pretrained(folder), "llama"),
        (lambda folder: transformers.ViTConfig().save_pretrained(folder), "vit"),
        (want_code, "code"),
        (lose_the_images, "preprocessor_config.json"),
        (lambda folder: (lose_the_images(folder), tokenizer().save_pretrained(folder)), "processor"),
        (lambda folder: (folder / "tokenizer.json").unlink(), "tokenizer.json"),
        (lambda folder: (folder / "tokenizer.json").write_text("{", encoding="utf-8"), "tokenizer.json"),
        (lambda folder: edit(folder, lambda config: config.update(quantization_config={"quant_method": "awq"})), "awq"),
        (lambda folder: (folder / "model.safetensors").unlink(), "safetensors"),
    ],
)
def test_what_cannot_caption_is_refused(broken: Callable[[Path], object], named: str, tmp_path: Path) -> None:
    folder = write_family("llava", tmp_path / "llava")
    broken(folder)
    with pytest.raises(BenchError, match=named) as caught:
        resolve_models([f"hf:{folder}"], Workspace(tmp_path))
    assert [model.word for model in resolve_models([f"hf:{folder}", "blind"], Workspace(tmp_path))] == [
        "hf:llava",
        "blind",
    ], "beside others its run fails"
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
    with pytest.raises(ZooError, match=r"config\.json.* model\.language_model") as caught:
        HubModel(str(folder)).open(torch.device("cpu"), "fp32")
    assert "\n" not in str(caught.value)


def test_prompt_attention_and_type_are_signed_where_they_are_not_the_usual(llava: Path, small: RunContext) -> None:
    def signed(**asked: Any) -> dict[str, str]:
        return HubModel(str(llava), **asked).signature({"prec": "fp32"})

    usual = signed()
    assert "attn" not in usual
    assert signed(attention="sdpa", dtype="fp32") == usual
    assert signed(attention="eager", dtype="bf16") == usual | {"attn": "eager", "prec": "bf16"}
    assert signed(clean=("quotes",)) == usual | {"clean": "quotes"}
    assert len({signed(prompt=asked)["prompt"] for asked in (None, "detailed", "Why?", "")}) == 4
    model = HubModel(str(llava), clean=("quotes",), attention="eager", dtype="fp16")
    of_every_run = RunBase.model_fields.keys() - {"model", "seed"}
    config = model.run({name: value for name, value in run_config(small) if name in of_every_run})
    stored = parse_run(json.loads(config.model_dump_json()), "the run")
    assert isinstance(stored, HubRun)
    assert HubModel.of(stored) == model
    saved = SavedHubModel(model=model, decoding=Decoding())
    assert SavedHubModel.model_validate_json(saved.model_dump_json()).model == model
    captioner = model.open(torch.device("cpu"), "fp32")
    assert (captioner.attention, captioner.dtype) == ("eager", torch.float16)


def test_what_attention_lacks_is_said_in_one_sentence(
    llava: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(folder: Path, attention: str) -> str:
        with pytest.raises(BenchError, match=f"--hub attention={attention}") as caught:
            resolve_models([f"hf:{folder}"], Workspace(tmp_path), hub={"attention": attention})
        assert "\n" not in str(caught.value)
        assert caught.value.hint
        return str(caught.value)

    monkeypatch.setattr("harness.inference.hub_checkpoint.find_spec", lambda _: None)
    assert "needs the package flash-attn" in refused(llava, "flash_attention_2")
    monkeypatch.setattr("harness.inference.hub_checkpoint.find_spec", lambda _: object())
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert "needs a CUDA device" in refused(llava, "flash_attention_2")
    assert "does not work with hf:blip" in refused(write_family("blip", tmp_path / "blip"), "sdpa")
    with pytest.raises(BenchError, match="not on cpu in bf16"):
        HubModel(str(llava), attention="flash_attention_2").open(torch.device("cpu"), "bf16")
    for wrong in ({"attention": "fast"}, {"dtype": "int8"}):
        with pytest.raises(BenchError, match="is unknown"):
            hub_options([f"{key}={value}" for key, value in wrong.items()])


def test_a_batch_is_a_number_of_images() -> None:
    assert hub_options(["batch=8"]) == {"batch": 8}
    for wrong in ("0", "-1", "1.5", "many", "1025", ""):
        with pytest.raises(BenchError):
            hub_options([f"batch={wrong}"])


def test_a_batch_changes_neither_key_nor_signature(llava: Path, tmp_path: Path) -> None:
    data, workspace = references_with_pictures(tmp_path), tmp_path / "workspace"
    words = [*run_words(data, workspace, f"hf:{llava}", TINY), "--images", tmp_path / "photos", "--jobs", 1]
    bench_ok(*words, "--hub", "batch=5")
    result = bench_ok(*words, "--hub", "batch=7")
    assert run_counts(result.stdout).items() >= {"re-used": 1, "finished": 0}.items()
    with Store(workspace / "bench.sqlite", read_only=True) as store, store.reading() as connection:
        [run] = reading.read_runs(connection)
    assert run.environment["batch"] == 5, "that of the captions"
    saved = json.loads((workspace / "runs" / run.key / SavedHubModel.file).read_text())
    assert saved["model"]["batch"] is None
    with pytest.raises(BenchError, match="--hub batch is for models of hf:"):
        resolve_models(["blind"], Workspace(tmp_path), hub={"batch": 4})


def test_names_are_folders_or_repositories(llava: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert HubModel.parse(f"hf:{llava}") == HubModel(str(llava))
    monkeypatch.chdir(llava.parent)
    assert HubModel.parse("hf:llava").row == "hf:llava"
    assert HubModel.parse("hf:org/name@v1.0", {"prompt": "photo"}) == HubModel("org/name", "v1.0", "photo")
    assert HubModel.parse("hf:org/name@v1.0").row == "hf:org/name@v1.0"
    for wrong in ("hf:", "hf:name", "hf:/nowhere/at/all", "hf:a/b/c", "hf:a/b@"):
        with pytest.raises(BenchError, match="no such folder"):
            HubModel.parse(wrong)
    with pytest.raises(BenchError, match="--hub prompt is for models of hf:"):
        resolve_models(["blind"], Workspace(tmp_path), hub={"prompt": "photo"})


def test_a_repository_that_is_not_here_is_skipped_with_what_to_type(tmp_path: Path) -> None:
    [model] = resolve_models(["hf:org/name"], Workspace(tmp_path))
    assert (model.kind, model.name) == ("hub", "hf:org/name")
    assert model.hub is not None
    with pytest.raises(WeightsMissing, match="hf:org/name are not on this machine") as caught:
        model.hub.located()
    assert "bench prefetch model hf:org/name" in (caught.value.hint or "")
    assert model.hub.signature({})["prompt"] == "unknown"
    with pytest.raises(BenchError, match="HF_HUB_OFFLINE"):
        prefetch_hub("hf:org/name")


def references_with_pictures(folder: Path) -> Path:
    """COCO's file of twelve pictures, with captions of two people each, and captions of a system."""
    (folder / "photos").mkdir()
    annotations = []
    for image_id in range(1, 13):
        Image.new("RGB", (32, 24), (20 * image_id, 9, 9)).save(folder / "photos" / f"{image_id}.jpg")
        annotations += [{"image_id": image_id, "caption": f"a red square {word} {image_id}"} for word in ("of", "like")]
    images = [{"id": image_id, "file_name": f"{image_id}.jpg"} for image_id in range(1, 13)]
    (folder / "references.json").write_text(json.dumps({"images": images, "annotations": annotations}))
    (folder / "ours.json").write_text(json.dumps({str(n): f"a red square of {n}" for n in range(1, 13)}))
    card = "name: Ours\nparameters: 41000000\ngmac: 12.5\ntrain_hours: 30\nhardware: 8 V100\n"
    (folder / "ours.json.card.yaml").write_text(card)
    return folder / "references.json"


def test_systems_that_are_not_trained_here_stand_in_one_table(llava: Path, tmp_path: Path) -> None:
    data, workspace = references_with_pictures(tmp_path), tmp_path / "workspace"
    vit_gpt2, broken = write_vision_encoder_decoder(tmp_path / "vit_gpt2"), tmp_path / "broken"
    broken.mkdir()
    (broken / "config.json").write_text('{"model_type": "llava"}')
    words = f"hf:{llava},hf:{vit_gpt2},hf:{broken},captions:{tmp_path / 'ours.json'},human"
    options = ("--images", tmp_path / "photos", "--jobs", 1)
    result = bench(*run_words(data, workspace, words, TINY), *options)
    assert run_counts(result.stdout).items() >= {"finished": 4, "failed": 1}.items()
    assert result.exit_code == 1
    assert [(run.model, run.status) for run in failures_in(workspace)] == [("hf:broken", "failed")]
    alone = bench(*run_words(data, workspace, f"hf:{broken}", TINY), *options)
    assert isinstance(alone.exception, BenchError), "there is nothing else to run"
    again = run_words(data, workspace, f"hf:{llava}", TINY)
    bench_ok(*again, *options, "--hub", "prompt=detailed")
    [group] = groups_in(workspace)
    assert (group.track, sorted(group.signature)) == ("systems", ["data", "df", "nrefs", "rev", "tok", "v"])
    assert [row.model for row in group.rows] == ["Ours", "hf:llava", "hf:llava", "hf:vit_gpt2"]
    prompts = [(row.differs.get("prompt") or "").partition("#")[0] for row in group.rows]
    assert sorted(prompts) == ["", "caption", "caption", "detailed"]
    assert [row.ranks["CIDEr-D"].best for row in group.rows] == [1, 2, 2, 2]
    assert group.comparisons.images == 12
    assert [row.model for row in group.references] == ["human"]
    ours = group.rows[0]
    assert {name: cost.value for name, cost in ours.stated.items()} == {
        "parameters": 41_000_000,
        "gmac_beam": 12.5,
        "train_seconds": 108_000,
    }
    assert ours.costs["parameters"].value is None, "it was not measured"
    assert cost_cell(ours, "gmac_beam").text == "12.5\u202fGMAC stated"


def test_a_run_has_a_row_of_every_kind_and_captions_again(llava: Path, draw_scenes: DrawScenes, tmp_path: Path) -> None:
    data, workspace = draw_scenes(train=16, val=4, test=6), tmp_path / "workspace"
    words = run_words(data, workspace, f"hf:{llava},hf:org/name,transformer_base,blind,human", TINY)
    result = bench(*words, "--backbone", "filterbank", "--jobs", 1)
    assert run_counts(result.stdout).items() >= {"finished": 4, "re-used": 0, "skipped": 1, "failed": 0}.items()
    assert "pretraining unknown" in tables_of(workspace)
    with Store(workspace / "bench.sqlite", read_only=True) as store:
        report = write_report(store, tmp_path / "report")
    pages = [page.read_text(encoding="utf-8") for page in report.parent.rglob("*.html")]
    assert not any("zero-shot" in text.lower() for text in (result.stdout, *pages))
    rows = {row.model: (group, row) for group in groups_in(workspace) if group.split == "test" for row in group.rows}
    assert rows.keys() == {"hf:llava", "transformer_base", "blind"}
    group, row = rows["hf:llava"]
    assert [each.model for each in group.rows] == ["hf:llava"]
    assert signature_of(row.keys[0], workspace)["search"] == "transformers"
    assert "search" not in rows["blind"][0].signature
    assert row.scores["CIDEr-D"].mean is not None
    costs = {name: cost.value for name, cost in row.costs.items()}
    assert costs["latency_images"] == 2
    for name in ("parameters", "gmac_encoder", "gmac_start", "gmac_step", "caption_length_mean", "latency_median"):
        assert (costs[name] or 0) > 0
    [key] = row.keys
    again = bench(*run_words(data, workspace, f"hf:{llava}", TINY), "--backbone", "filterbank", "--jobs", 1)
    assert run_counts(again.stdout).items() >= {"finished": 0, "re-used": 1}.items()
    picture = sorted(data.rglob("*.png"))[0]
    by_key = bench("caption", picture, "--run", key, "--workspace", workspace)
    by_folder = bench("caption", picture, "--run", f"hf:{llava}", "--beam-size", 1)
    for shown in (by_key, by_folder):
        assert shown.exit_code == 0, shown.output
        assert shown.stdout.startswith(f"{picture}: ")
    refused = bench("attention", picture, "--run", f"hf:{llava}")
    assert "models of hf:" in str(refused.exception)
