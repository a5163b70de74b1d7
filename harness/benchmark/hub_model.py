"""`hf:ORG/NAME`, `hf:ORG/NAME@REVISION` and `hf:FOLDER`: checkpoints with the interface of transformers.

They can be rows of a benchmark, caption images, and have their costs measured without a data set.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import torch
from PIL import Image

from harness.benchmark.caption_images import Captioned, readable
from harness.benchmark.pretrained import WEIGHTS_FILES, fetch, folder_name, published_signature
from harness.benchmark.saved_model import AGAIN, find_run
from harness.config.preset import Decoding
from harness.config.run import HubRun, RunFiles
from harness.config.schedule import Strict
from harness.data.dataset import Dataset
from harness.data.hub import PREFIX, HubPlace, WeightsMissing, parse_place
from harness.inference.hub_checkpoint import ATTENTION, DTYPES, Checkpoint, Prompt, choose_prompt, choose_rules
from harness.measure.captioning_costs import Timed, time_generation
from harness.measure.flops import GenerationCounts
from harness.measure.isolated import BenchmarkJob, BenchmarkResult, measure_all
from harness.utils.atomic import write_text
from harness.utils.errors import BenchError
from harness.utils.files import shortened
from harness.utils.progress import Reporter
from harness.utils.workspace import Workspace
from results.files import read_model
from zoo import Pretraining, list_models, model_card
from zoo.card import NOT_DOCUMENTED

if TYPE_CHECKING:
    from harness.inference.hub_captioner import HubCaptioner  # transformers, which other rows do without

PICTURE = (640, 480)
MAX_BATCH = 1024
HubOptions = Mapping[str, Any]


def hub_options(
    texts: Sequence[str], keys: Sequence[str] = ("prompt", "clean", "attention", "dtype", "batch")
) -> HubOptions:
    """The values of `--hub KEY=VALUE`, for all checkpoints of a command; BenchError if one is invalid."""
    pairs = [text.partition("=") for text in texts]
    values = {key.strip(): value for key, _, value in pairs}
    if len(values) < len(pairs) or any(not equals for _, equals, _ in pairs) or values.keys() - set(keys):
        raise BenchError(
            f"--hub {' --hub '.join(map(repr, map(shortened, texts)))}: takes each of {', '.join(keys)} once",
            "for example --hub prompt='a photo of'",
        )
    for key, choices in (("attention", ATTENTION), ("dtype", tuple(DTYPES))):
        if key in values and values[key] not in choices:
            raise BenchError(
                f"--hub {key}={shortened(values[key])} is unknown", f"choose {', '.join(choices[:-1])} or {choices[-1]}"
            )
    options: dict[str, Any] = {**values}
    if "clean" in values:
        options["clean"] = choose_rules(values["clean"])
    if "batch" in values:
        options["batch"] = _parse_batch(values["batch"])
    return options


def _parse_batch(text: str) -> int:
    digits = text.strip()
    if not (digits.isascii() and digits.isdecimal() and len(digits) <= 4 and 1 <= int(digits) <= MAX_BATCH):
        hint = "for example --hub batch=8; without it, as many as half of the free memory has room for"
        raise BenchError(f"--hub batch={shortened(text)} is no whole number from 1 to {MAX_BATCH}", hint)
    return int(digits)


def refuse_options(options: HubOptions, reason: str, hint: str) -> None:
    """BenchError if there is any option."""
    for name in options:
        raise BenchError(f"--hub {name} is for models of hf:, and {reason}", hint)


@dataclass(frozen=True, slots=True)
class HubModel(HubPlace):
    """One checkpoint with its options.

    Attributes:
        prompt: a template's name, a text, or None for the family's default.
        clean: rules of `harness.inference.hub_checkpoint` that captions are cleaned by.
        attention: its implementation, one of `ATTENTION`; None: the network's default.
        dtype: of weights and arithmetic, one of `DTYPES`; None: that of the run.
        batch: images at once; None: as many as fit the free memory. Scores do not depend on it.
    """

    prompt: str | None = None
    clean: tuple[str, ...] = ()
    attention: str | None = None
    dtype: str | None = None
    batch: int | None = None

    @classmethod
    def parse(cls, name: str, options: HubOptions | None = None) -> Self:
        """The checkpoint that `--models` names; BenchError as `parse_place`."""
        return cls(*parse_place(PREFIX, name.removeprefix(PREFIX)), **(options or {}))

    @classmethod
    def of(cls, config: HubRun) -> Self:
        """The checkpoint of a run."""
        folder = config.files.checkpoint
        return cls(
            where=config.weights if folder is None else str(folder),
            revision=config.revision,
            prompt=config.prompt,
            clean=config.clean,
            attention=config.attention,
            dtype=config.dtype,
            batch=config.batch,
        )

    def run(self, common: Mapping[str, Any]) -> HubRun:
        """The configuration of its run; `common` are the fields of every run."""
        folder = Path(self.where) if self.is_folder else None
        files: RunFiles = common["files"]
        return HubRun(
            **{**common, "files": files.model_copy(update={"checkpoint": folder})},
            model=self.row,
            weights=self.where if folder is None else folder.name,
            revision=self.revision,
            prompt=self.prompt,
            clean=self.clean,
            attention=self.attention,
            dtype=self.dtype,
            batch=self.batch,
        )

    @property
    def row(self) -> str:
        """The name of its row; for a folder, its last part."""
        return f"{PREFIX}{self.display_name}"

    def checkpoint(self) -> Checkpoint:
        """Its files; WeightsMissing if they are not on this machine, BenchError if they cannot caption."""
        checkpoint = Checkpoint(self.located(), self.row)
        checkpoint.check()
        return checkpoint

    def check(self) -> None:
        """BenchError if it cannot caption with these options; files that are not on this machine are not checked."""
        try:
            checkpoint = self.checkpoint()
        except WeightsMissing:
            return
        choose_prompt(checkpoint.family, self.prompt)
        if self.attention is not None:
            checkpoint.unusual_attention(self.attention)

    def chosen_prompt(self) -> Prompt | None:
        """Its prompt; None if its files are missing or unusable, which its run reports."""
        try:
            return choose_prompt(self.checkpoint().family, self.prompt)
        except BenchError:
            return None

    def name(self) -> str:
        """See `folder_name`."""
        return folder_name(self.where, self.revision)

    def signature(self, conditions: Mapping[str, str]) -> dict[str, str]:
        """The signature of its row: its own processor, tokenizer and search, its prompt, and its pretraining data."""
        prompt = self.chosen_prompt()
        signature = published_signature(conditions, self.name(), self.pretraining())
        signature["prompt"] = "unknown" if prompt is None else prompt.signature()
        signature["search"] = "transformers"
        if self.clean:
            signature["clean"] = ",".join(self.clean)
        attention = self.unusual_attention()
        if attention:
            signature["attn"] = attention
        if self.dtype:
            signature["prec"] = self.dtype
        return signature

    def unusual_attention(self) -> str | None:
        """The implementation of attention if it was chosen and differs from the network's default."""
        if self.attention is None:
            return None
        try:
            return self.checkpoint().unusual_attention(self.attention)
        except BenchError:
            return self.attention

    def pretraining(self) -> Pretraining:
        """The pretraining on the zoo's card of the same repository; not documented for any other repository."""
        for name in list_models():
            card = model_card(name)
            if card.hub == self.where and card.pretraining is not None:
                return card.pretraining
        return NOT_DOCUMENTED

    def card(self) -> dict[str, Any]:
        """Its model card for reports."""
        prompt = self.chosen_prompt()
        summary = f"{self.name()} through transformers, without training here"
        if prompt is not None and prompt.text:
            summary += f", asked {prompt.text!r}"
        elif prompt is not None:
            summary += ", without a prompt"
        return {
            "family": "hf" if prompt is None else self.checkpoint().family,
            "name": self.row,
            "source": "" if self.is_folder else f"https://huggingface.co/{self.where}",
            "summary": summary,
            "visual": "pixels",
            "pretraining": asdict(self.pretraining()),
        }

    def open(self, device: torch.device, precision: str) -> HubCaptioner:
        """The network with its processor and prompt, on the device; ZooError if its weights are damaged."""
        from harness.inference.hub_captioner import HubCaptioner

        checkpoint = self.checkpoint()
        prompt = choose_prompt(checkpoint.family, self.prompt)
        return HubCaptioner(checkpoint, prompt, device, self.dtype or precision, self.clean, self.attention)


class SavedHubModel(Strict):
    """`hub.json` in the folder of a run: the checkpoint, its options, and how it decoded; no weights."""

    file: ClassVar[str] = "hub.json"
    format: Literal["captionbench hub run 2"] = "captionbench hub run 2"
    model: HubModel
    decoding: Decoding

    def save(self, folder: Path) -> None:
        """Write the file atomically."""
        write_text(folder / self.file, self.model_dump_json(indent=1) + "\n")


def prefetch_hub(name: str) -> Path:
    """Fetch `hf:ORG/NAME[@REVISION]` into the hub's cache: weights as safetensors, processor, settings, no code."""
    model = HubModel.parse(name)
    if model.is_folder:
        raise BenchError(f"{name} is a folder on this machine: there is nothing to fetch", f"bench run --models {name}")
    offline_hint = f"name a folder in --models: {PREFIX}FOLDER"
    files = (*WEIGHTS_FILES, "*.jinja", "*.model")
    return fetch(model.where, model.revision, files, offline_hint, "look for its name on https://huggingface.co/models")


def find_hub(run: str, workspace: Workspace, options: HubOptions) -> SavedHubModel | None:
    """The checkpoint that `run` names, or that the run with this key used; None for a run of another kind."""
    if run.startswith(PREFIX):
        return SavedHubModel(model=HubModel.parse(run, options), decoding=Decoding())
    folder = find_run(run, workspace)
    if not (folder / SavedHubModel.file).is_file():
        refuse_options(options, f"{run} is none", "leave it out")
        return None
    saved = read_model(SavedHubModel, folder / SavedHubModel.file, "description of a run", AGAIN)
    return saved.model_copy(update={"model": replace(saved.model, **options)})


def caption_with_checkpoint(
    images: Dataset, saved: SavedHubModel, *, reporter: Reporter, beam_size: int | None = None
) -> Captioned:
    """Caption all images that can be read, in float32 unless `--hub dtype` names another type."""
    from harness.inference.hub_captioner import caption_with_hub

    usable, unusable = readable(images)
    if not usable.samples:
        return Captioned({}, unusable)
    captioner = saved.model.open(torch.device("cuda" if torch.cuda.is_available() else "cpu"), "fp32")
    decoding = saved.decoding if beam_size is None else saved.decoding.model_copy(update={"beam_size": beam_size})
    ids = [sample.image_id for sample in usable.samples]
    captions = caption_with_hub(
        captioner, usable, ids, decoding, reporter=reporter, title="captioning", batch=saved.model.batch
    )
    return Captioned(captions.by_image, unusable)


@dataclass(frozen=True, slots=True)
class CheckpointCount:
    """Cost of one image."""

    parameters: int
    counts: GenerationCounts
    prompt: str


def find_checkpoints(names: Iterable[str], options: HubOptions) -> dict[str, HubModel]:
    """The checkpoints among the names of `--models`, by name.

    A checkpoint that cannot caption with its options is refused if no other model is left; else only its run fails.
    """
    names = list(names)
    checkpoints = {name: HubModel.parse(name, options) for name in names if name.startswith(PREFIX)}
    if not checkpoints:
        refuse_options(options, "--models names none", "add hf:ORG/NAME or hf:FOLDER")
    errors = []
    for model in checkpoints.values():  # missing weights are reported by their runs
        try:
            model.check()
        except BenchError as error:
            errors.append(error)
    if errors and len(errors) == len(names):
        raise errors[0]
    return checkpoints


def count_checkpoint(
    model: HubModel, side: int | None, *, max_len: int, beam_size: int, position: int | None
) -> CheckpointCount:
    """Count the FLOPs of captioning one image, and of a single step at `position`, by default the last."""
    captioner = model.open(torch.device("cpu"), "fp32")
    inputs = captioner.inputs([Image.new("RGB", (side, side) if side else PICTURE)])
    counts = captioner.counts(inputs, Decoding(beam_size=beam_size, max_len=max_len), position)
    parameters = sum(parameter.numel() for parameter in captioner.network.parameters())
    return CheckpointCount(parameters, counts, captioner.prompt.name)


def checkpoint_job(model: HubModel, common: dict[str, Any]) -> BenchmarkJob:
    """The measurement of a checkpoint in a separate process; `common` has the other arguments of the job."""
    return BenchmarkJob(model=model.row, arguments={}, checkpoint=asdict(model), answered_by=__name__, **common)


def measure(job: BenchmarkJob) -> list[BenchmarkResult]:
    """As `harness.measure.isolated.measure`, for a checkpoint: from its processor's output to finished tokens."""
    model = HubModel(**(job.checkpoint or {}))
    device = torch.device(job.device)

    def timed(captioner: HubCaptioner, batch: int, width: int) -> Timed:
        decoding = Decoding(beam_size=width, max_len=job.max_len)
        inputs = captioner.inputs([Image.new("RGB", PICTURE)] * batch)
        generate = partial(captioner.generate, inputs, decoding, full_length=True)
        return time_generation(generate, 1, device, effort=job.effort, batch=batch)

    return measure_all(job, lambda precision: partial(timed, model.open(device, precision)))
