"""CLIPScore, RefCLIPScore and BERTScore with tiny random models, and by hand."""

import shutil
import sys

import pytest
import torch
from PIL import Image
from transformers import AutoImageProcessor, AutoTokenizer, CLIPModel

from harness.data.hub import HubWeights, WeightsMissing
from harness.metrics.more.bert import BertScorer
from harness.metrics.more.clip import PROMPT, ClipScorer
from harness.utils.errors import BenchError
from tests.harness.metrics.tiny_models import write_bert, write_clip

CPU = torch.device("cpu")
CAPTIONS = {5: "a red square", 2: "a dog sleeps on the cat " * 5}
REFERENCES = {5: ["a blue square", "the red square"], 2: ["a dog runs"]}


@pytest.fixture(scope="module")
def clip_folder(tmp_path_factory):
    return write_clip(tmp_path_factory.mktemp("models") / "clip")


@pytest.fixture(scope="module")
def bert_folder(tmp_path_factory):
    return write_bert(tmp_path_factory.mktemp("models") / "bert")


@pytest.fixture
def images(pictures):
    return dict(zip(CAPTIONS, pictures, strict=True))


def clip(folder):
    return ClipScorer(HubWeights.parse("--clip", str(folder)), CPU)


def bert(folder):
    return BertScorer(HubWeights.parse("--bert", str(folder)), CPU)


def test_clip_scores_are_those_of_the_papers_equations(clip_folder, images):
    """Against the network's own joint pass, text by text and image by image."""
    scorer = clip(clip_folder)
    found = scorer.measure(CAPTIONS, REFERENCES, images)
    network = CLIPModel.from_pretrained(clip_folder).eval()
    tokenizer, processor = (kind.from_pretrained(clip_folder) for kind in (AutoTokenizer, AutoImageProcessor))

    def embedded(text, file):
        tokens = tokenizer([PROMPT + text], truncation=True, max_length=12, return_tensors="pt")
        pixels = processor(images=Image.open(file).convert("RGB"), return_tensors="pt")["pixel_values"]
        with torch.no_grad():
            both = network(input_ids=tokens["input_ids"], attention_mask=tokens["attention_mask"], pixel_values=pixels)
        return both.text_embeds[0].double().numpy(), both.image_embeds[0].double().numpy()

    for image_id, caption in CAPTIONS.items():
        said, seen = embedded(caption, images[image_id])
        score = 2.5 * max(said @ seen, 0)
        closest = max(0, *(said @ embedded(text, images[image_id])[0] for text in REFERENCES[image_id]))
        assert found.per_image[f"CLIPScore ({scorer.depends_on})"][image_id] == pytest.approx(score, abs=1e-6)
        expected = 2 * score * closest / (score + closest) if score + closest else 0
        assert found.per_image[f"RefCLIPScore ({scorer.depends_on})"][image_id] == pytest.approx(expected, abs=1e-6)
    assert scorer.depends_on.startswith("clip:clip#")


def test_clip_scores_without_images_or_references_are_null(clip_folder, images):
    scorer = clip(clip_folder)
    found = scorer.measure(CAPTIONS, REFERENCES, {5: images[5]}).values
    assert all("--images" in each.reason for each in found.values())
    values = scorer.measure(CAPTIONS, {5: ["a dog"]}, images).values
    assert [each.reason for each in values.values()] == [None, "an image has no reference"]


def test_bert_scores_are_the_packages(bert_folder):
    import bert_score

    captions = {1: "a dog runs", 2: "the red cat", 3: " "}
    references = {1: ["a dog runs", "the dog"], 2: ["the cat sleeps", "a blue dog"], 3: ["a cat"]}
    scorer = bert(bert_folder)
    found = scorer.measure(captions, references)
    *_, expected = bert_score.score(
        [captions[1], captions[2]], [references[1], references[2]], model_type=str(bert_folder), num_layers=2
    )
    by_image = found.per_image[f"BERTScore ({scorer.depends_on})"]
    assert by_image == {1: pytest.approx(1.0), 2: pytest.approx(expected[1].item(), abs=1e-6), 3: 0.0}
    assert 0 < by_image[2] < 1
    assert scorer.depends_on.endswith(", layer 2")


def test_a_roberta_and_a_long_caption(tmp_path):
    scorer = bert(write_bert(tmp_path / "roberta", roberta=True))
    found = scorer.measure({1: "a dog " * 100}, {1: ["a dog " * 100, "a cat"]})
    assert next(iter(found.values.values())).value == pytest.approx(1.0)


def test_weights_elsewhere_of_another_kind_or_pickled_are_refused(clip_folder, bert_folder, tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
    weights = HubWeights.parse("--clip", "org/name@1234abc")
    with pytest.raises(WeightsMissing, match="org/name@1234abc are not on this machine") as refused:
        ClipScorer(weights, CPU)
    assert "bench prefetch model hf:org/name@1234abc" in refused.value.hint
    with pytest.raises(BenchError, match="no such folder"):
        HubWeights.parse("--clip", "nowhere")
    with pytest.raises(BenchError, match="not an encoder like BERT"):
        bert(clip_folder)
    with pytest.raises(BenchError, match="not a CLIP model"):
        clip(bert_folder)
    pickled = shutil.copytree(bert_folder, tmp_path / "pickled")
    (pickled / "model.safetensors").rename(pickled / "pytorch_model.bin")
    with pytest.raises(BenchError, match=r"has no weights as model\.safetensors"):
        bert(pickled)


def test_a_missing_package_names_its_extra(bert_folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "bert_score", None)
    with pytest.raises(BenchError, match="bert-score package") as refused:
        bert(bert_folder)
    assert "uv sync --inexact --extra bert" in (refused.value.hint or "")
