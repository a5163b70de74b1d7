"""Captions for image files or a data set, by a checkpoint of transformers' own interface or a run of one."""

from __future__ import annotations

from dataclasses import asdict, replace

import torch

from harness.benchmark.caption_images import Captioned, complaint
from harness.benchmark.hub_model import PREFIX, HubModel, SavedHubModel
from harness.benchmark.hub_options import HubOptions
from harness.benchmark.saved_model import find_run
from harness.config.preset import Decoding
from harness.data.dataset import Dataset
from harness.inference.hub_captioner import caption_with_hub
from harness.utils.errors import BenchError
from harness.utils.progress import Reporter
from harness.utils.workspace import Workspace


def find_hub(run: str, workspace: Workspace, options: HubOptions) -> SavedHubModel | None:
    """The checkpoint that `run` names, itself or as the key of its run; None where it is a run of another kind.

    Args:
        options: those that are given stand for the run's own.

    Raises:
        BenchError: there is no such checkpoint or run, or an option of checkpoints is given to a run of another kind.
    """
    if run.startswith(PREFIX):
        return SavedHubModel.of(HubModel.parse(run, options), Decoding())
    folder = find_run(run, workspace)
    if not (folder / SavedHubModel.file).is_file():
        if options.given:
            raise BenchError(f"{options.given} is for models of hf:, and {run} is none", "leave it out")
        return None
    saved = SavedHubModel.load(folder)
    return saved.model_copy(update={name: value for name, value in asdict(options).items() if value not in (None, ())})


def caption_with_checkpoint(
    images: Dataset, saved: SavedHubModel, *, reporter: Reporter, beam_size: int | None = None
) -> Captioned:
    """Caption all images that can be read, in float32 unless the checkpoint was asked for in another type.

    Args:
        images: of any sizes.
        saved: the checkpoint with its prompt and decoding.
        beam_size: in place of that of its decoding.

    Raises:
        WeightsMissing: they are not on this machine.
        BenchError, ZooError: the checkpoint is damaged, or of no model that captions.
    """
    complaints = {sample.image_id: complaint(images.path(sample)) for sample in images.samples}
    unusable = tuple(bad for bad in complaints.values() if bad is not None)
    usable = tuple(sample for sample in images.samples if complaints[sample.image_id] is None)
    if not usable:
        return Captioned({}, unusable)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    captioner = saved.model.open(device, "fp32")
    decoding = saved.decoding if beam_size is None else saved.decoding.model_copy(update={"beam_size": beam_size})
    captions = caption_with_hub(
        captioner,
        replace(images, samples=usable),
        [sample.image_id for sample in usable],
        decoding,
        reporter=reporter,
        title="captioning",
    )
    return Captioned(captions.by_image, unusable)
