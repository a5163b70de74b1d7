"""One spec of the grid, from an untrained model to its captions, scores and costs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from harness.data.regions.opening import needs_backbone
from harness.inference.attention import attention_records, check_attends, chosen_images, shown_parts
from harness.inference.generate import caption_images
from harness.measure.captioning_costs import Counted, count_captioning, count_mean_caption
from harness.measure.memory import PeakMemory
from harness.metrics.evaluator import Evaluator
from harness.runner.baselines import majority_caption, retrieved_captions
from harness.runner.building import build_model, model_arguments
from harness.runner.context import Conditions
from harness.runner.pretrained import Pretrained
from harness.runner.saved_model import VOCABULARY, WEIGHTS, SavedModel, open_run
from harness.runner.scoring import score_people, score_split
from harness.runner.timing import one_image, time_model
from harness.runner.train import fit
from harness.runner.training_costs import no_training, predict_training, training_costs
from harness.utils.errors import BenchError
from harness.utils.precision import autocast
from harness.utils.progress import Reporter
from results.records import AttentionRecord, EpochRecord, Outcome, Quantity, RunSpec
from zoo import Captioner
from zoo.attention_maps import attends


def run_model(
    spec: RunSpec,
    conditions: Conditions,
    evaluator: Evaluator,
    *,
    folder: Path,
    environment: dict[str, Any],
    on_epoch: Callable[[EpochRecord], None],
    reporter: Reporter,
) -> Outcome:
    """Train, caption, score and measure one model; everything it leaves on disk lies in `folder`."""
    torch.manual_seed(spec.seed)
    there = Pretrained(spec.model, spec.config["pretrained"]) if "pretrained" in spec.config else None
    if there is None:
        model, arguments = _untrained(spec, conditions)
    else:
        model, conditions, arguments = there.open(conditions)
    trained = there is None or there.trained_here
    _describe(spec, arguments, conditions, folder, there)
    counted = _count(model, conditions)
    costs = dict(counted.costs)
    if not trained:
        costs |= no_training("a published model as it is: nothing was trained here")
        return _caption_and_measure(
            model, conditions, evaluator, counted, costs, environment, folder / WEIGHTS, reporter
        )
    prediction = predict_training(model, one_image(model, conditions), counted.counts, conditions)
    with PeakMemory(conditions.device) as memory:
        summary = fit(model, spec.seed, conditions, folder, on_epoch, reporter)
    costs |= training_costs(summary, memory, prediction, conditions)
    environment = environment | {"training": conditions.machine.record(conditions.device, summary.micro_batches)}
    return _caption_and_measure(model, conditions, evaluator, counted, costs, environment, folder / WEIGHTS, reporter)


def run_stored(
    spec: RunSpec,
    conditions: Conditions,
    evaluator: Evaluator,
    *,
    stored: Path,
    environment: dict[str, Any],
    reporter: Reporter,
) -> Outcome:
    """Caption, score and measure with the run in the folder `stored`, as it decodes by itself; nothing is trained.

    Raises:
        BenchError: the run is damaged, or it sees other features than these.
    """
    run = SavedModel.load(stored)
    model, conditions = open_run(run, stored, conditions)
    if model.visual.kind not in {"pixels", "none"}:
        _refuse_other_features(spec.model, run, conditions)
    counted = _count(model, conditions)
    costs = counted.costs | no_training("the weights were stored before, nothing was trained here")
    return _caption_and_measure(model, conditions, evaluator, counted, costs, environment, stored / WEIGHTS, reporter)


def _refuse_other_features(name: str, run: SavedModel, conditions: Conditions) -> None:
    """BenchError where a stored run was trained to see something else than the images are shown with here."""
    theirs, ours = run.features.regions, conditions.feature_config.regions
    if (theirs is None) != (ours is None):
        seen, shown = ("grid specs", "regions") if theirs is None else ("regions", "grid specs")
        hint = "leave out --regions" if theirs is None else "add --regions SOURCE, of the kind that it was trained on"
        raise BenchError(f"{name} sees {seen}, and here are {shown}", hint)
    if theirs is not None and ours is not None:
        cut = [(needs_backbone(regions.source), regions.bins) for regions in (theirs, ours)]
        if cut[0] != cut[1] or (not cut[0][0] and run.visual_dim != conditions.visual_dim):
            raise BenchError(
                f"{name} was trained on other regions: those of {theirs.source}, of {run.visual_dim} channels",
                "add --regions SOURCE (and --region-bins), of the kind that it was trained on",
            )
    if (theirs is None or needs_backbone(theirs.source)) and run.backbone_digest != conditions.backbone.digest:
        raise BenchError(
            f"{name} sees the features of {run.features.backbone}, not those of {conditions.backbone.describe()}",
            f"add --backbone {run.features.backbone} with the weights that it was trained with",
        )


def _caption_and_measure(
    model: Captioner,
    conditions: Conditions,
    evaluator: Evaluator,
    counted: Counted,
    costs: dict[str, Quantity],
    environment: dict[str, Any],
    weights: Path,
    reporter: Reporter,
) -> Outcome:
    splits = []
    for split, samples in conditions.evaluated.items():
        with PeakMemory(conditions.device) as memory:
            captions = caption_images(
                model,
                conditions.vocabulary,
                conditions.source(model.visual),
                [sample.image_id for sample in samples],
                conditions.preset.decoding,
                device=conditions.device,
                precision=conditions.precision,
                reporter=reporter,
                title=f"  captioning {split}",
            )
        if split == "test":
            costs["caption_images_per_second"] = Quantity(len(samples) / captions.seconds, unit="images/s")
            costs |= memory.quantities("caption")
            length, width = captions.generated / len(samples), conditions.preset.decoding.beam_size
            costs |= count_mean_caption(model, one_image(model, conditions), beam_size=width, length=length)
        result, seconds = score_split(split, captions.by_image, conditions, evaluator)
        if split == "test":
            costs["score_seconds"] = Quantity(seconds, unit="s")
        if split == "test" and attends(model):
            result = replace(result, attention=_attention(model, conditions, captions.tokens, reporter))
        splits.append(result)
    timed = time_model(model, conditions)
    return Outcome(
        splits=tuple(splits),
        costs=costs | timed.costs,
        environment=environment | {"measurement": timed.state},
        checkpoint=str(weights),
        operators=counted.operators,
    )


def _attention(
    model: Captioner, conditions: Conditions, tokens: dict[int, list[int]], reporter: Reporter
) -> tuple[AttentionRecord, ...]:
    """Where the model looked while it captioned a few of the images; nothing, and why, where that cannot be told."""
    source = conditions.source(model.visual)
    said = {image_id: tokens[image_id] for image_id in chosen_images(list(tokens))}
    parts = shown_parts(conditions.dataset, conditions.preprocessing)
    try:
        check_attends("the model", model, source)
        with autocast(conditions.device, conditions.precision):
            return tuple(attention_records(model, conditions.vocabulary, source, said, parts, device=conditions.device))
    except BenchError as error:
        reporter.note(f"  no attention maps: {error}")
        return ()


def _untrained(spec: RunSpec, conditions: Conditions) -> tuple[Captioner, dict[str, Any]]:
    """The model on the run's device, and the arguments that it was made with."""
    backbone, dim = conditions.backbone, conditions.visual_dim
    arguments = model_arguments(spec.model, spec.config["arguments"], backbone)
    model = build_model(spec.model, arguments, vocab_size=len(conditions.vocabulary), visual_dim=dim, backbone=backbone)
    return model.to(conditions.device), arguments


def _describe(
    spec: RunSpec, arguments: dict[str, Any], conditions: Conditions, folder: Path, there: Pretrained | None
) -> None:
    """Write what captioning with the model later needs, beside its weights, to `folder`."""
    conditions.vocabulary.save(folder / VOCABULARY)
    SavedModel(
        model=spec.model,
        arguments=arguments,
        visual_dim=conditions.visual_dim,
        features=conditions.feature_config.resolved(),
        backbone_digest=conditions.backbone.digest,
        preprocessing=conditions.preprocessing,
        decoding=conditions.preset.decoding,
        trained=there is None or there.trained_here,
        pretrained=None if there is None else there.place(),
    ).save(folder)


def run_reference(spec: RunSpec, conditions: Conditions, evaluator: Evaluator, environment: dict[str, Any]) -> Outcome:
    """Score a row that needs no training."""
    reason = "a reference row has no model"
    costs = {name: Quantity(None, reason) for name in ("parameters", "train_seconds", "gmac_beam")}
    splits = []
    always = majority_caption(conditions.train) if spec.model == "majority" else ""
    for split, samples in conditions.evaluated.items():
        if spec.model == "human":
            result, seconds = score_people(split, conditions, evaluator)
        elif spec.model == "majority":
            captions = {sample.image_id: always for sample in samples}
            result, seconds = score_split(split, captions, conditions, evaluator)
        else:
            assert conditions.features is not None
            captions = retrieved_captions(samples, conditions.train, conditions.features)
            result, seconds = score_split(split, captions, conditions, evaluator)
        if split == "test":
            costs["score_seconds"] = Quantity(seconds, unit="s")
        splits.append(result)
    return Outcome(splits=tuple(splits), costs=costs, environment=environment)


def _count(model: Captioner, conditions: Conditions) -> Counted:
    """What captioning one test image takes of computation."""
    decoding = conditions.preset.decoding
    visual = one_image(model, conditions)
    return count_captioning(model, visual, beam_size=decoding.beam_size, max_len=decoding.max_len)
