"""Caption with a checkpoint of the transformers library: its processor, a prompt, and its own `generate`."""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import Tensor, nn
from transformers import LogitsProcessor, LogitsProcessorList

from harness.config.preset import Decoding
from harness.data.dataset import Dataset
from harness.data.images import load_image
from harness.inference.generate import Captions
from harness.inference.hub_checkpoint import DTYPES, FLASH, SEPARATE, Checkpoint, Prompt, clean
from harness.measure.flops import GenerationCounts, count_generation
from harness.measure.memory import LiveTensors, free_memory
from harness.utils.errors import BenchError
from harness.utils.progress import Reporter
from zoo.models.hub import load_network

_VISION = frozenset({"vision_tower", "vision_model", "visual", "vision_encoder", "image_encoder"})
MOST = {"cuda": 64, "cpu": 16}  # images at once, where memory suffices; more are not faster on a CPU
SHARE_OF_FREE = 0.5  # of the free memory; the rest is for larger images and for workspaces of kernels


class HubCaptioner:
    """A network of transformers with its processor, in evaluation mode.

    Args:
        precision: of `DTYPES`, the type of the weights and of the arithmetic.
        attention: implementation of attention, of `ATTENTION`, or None for the network's default.

    Raises:
        ZooError: the weights are damaged or incomplete.
        BenchError: the implementation of attention does not support this precision or device.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        prompt: Prompt,
        device: torch.device,
        precision: str,
        rules: Sequence[str] = (),
        attention: str | None = None,
    ) -> None:
        from transformers import AutoModelForImageTextToText

        if attention == FLASH and (device.type != "cuda" or precision == "fp32"):
            raise BenchError(
                f"--hub attention={FLASH} works on CUDA devices in bf16 and fp16, not on {device.type} in {precision}",
                "add --hub dtype=bf16 --device cuda, or leave it out",
            )
        self.device = device
        self.dtype = getattr(torch, DTYPES[precision])
        self.prompt = prompt
        self.rules = tuple(rules)
        self.processor = checkpoint.processor
        kind: Any = AutoModelForImageTextToText
        network: Any = load_network(kind, checkpoint.folder, attention=attention)
        # `generate` disables gradients too, but torch's counters track parameters that require gradients.
        self.network = network.to(device, self.dtype).eval().requires_grad_(False)
        tokenizer = self.processor.tokenizer
        tokenizer.padding_side = "left"  # so that captions follow the last token of the prompt
        if tokenizer.pad_token is None:
            tokenizer.pad_token = tokenizer.eos_token
        if self.network.generation_config.pad_token_id is None:
            self.network.generation_config.pad_token_id = tokenizer.pad_token_id

    @property
    def attention(self) -> str:
        """The implementation of attention that transformers chose."""
        return str(self.network.config._attn_implementation)

    @property
    def vision(self) -> nn.Module | None:
        """The vision module; None if no module has one of its usual names in transformers."""
        if self.network.config.model_type == SEPARATE:
            encoder: nn.Module = self.network.encoder
            return encoder
        modules = ((name.rpartition(".")[2], module) for name, module in self.network.named_modules())
        return next((module for last, module in modules if last in _VISION), None)

    def inputs(self, images: Sequence[Image.Image]) -> dict[str, Tensor]:
        """The network's inputs, on its device, for RGB images of any size with the prompt."""
        if self.prompt.bare:
            return self._placed(self.processor.image_processor(images=list(images), return_tensors="pt"))
        return self._together(images, [self._text()] * len(images))

    def _together(self, images: Sequence[Image.Image], texts: Sequence[str]) -> dict[str, Tensor]:
        """The network's inputs for images with one text each; shorter texts are padded."""
        # One list of images per text, for processors that allow several images per text.
        nested: list[Any] = [[image] for image in images] if "{image}" in self.prompt.layout else list(images)
        begin = self.processor.tokenizer.bos_token
        # A chat template may write the begin token itself, which the tokenizer must not repeat.
        options = {"add_special_tokens": False} if begin and texts[0].startswith(begin) else {}
        return self._placed(
            self.processor(images=nested, text=list(texts), padding=True, return_tensors="pt", **options)
        )

    def caption(self, images: Sequence[Image.Image], decoding: Decoding) -> tuple[list[str], list[int]]:
        """The captions of RGB images, and the number of tokens generated for each, end tokens included."""
        tokens = self.generate(self.inputs(images), decoding)
        captions = self.processor.tokenizer.batch_decode(tokens, skip_special_tokens=True)
        cleaned = [clean(caption.strip(), self.prompt.text, self.rules) for caption in captions]
        return cleaned, [self._length(row) for row in tokens.tolist()]

    @torch.inference_mode()
    def generate(self, inputs: dict[str, Tensor], decoding: Decoding, *, full_length: bool = False) -> Tensor:
        """The tokens (B, T) of the captions, without those of the prompt, by the network's own beam search.

        Args:
            full_length: generate the maximum number of tokens for all captions.
        """
        before = _TokensBefore()
        tokens: Tensor = self.network.generate(
            **inputs,
            do_sample=False,
            num_beams=decoding.beam_size,
            num_return_sequences=1,
            max_new_tokens=decoding.max_len,
            max_length=None,  # the library warns at every call where the checkpoint has one
            min_new_tokens=decoding.max_len if full_length else None,
            length_penalty=decoding.length_penalty,
            logits_processor=LogitsProcessorList([before]),
        )
        return tokens[:, before.count :]

    def counts(self, inputs: dict[str, Tensor], decoding: Decoding, position: int | None = None) -> GenerationCounts:
        """Multiply-accumulates of captioning one image; see `count_generation`."""

        def generate(length: int, beam_size: int) -> None:
            settings = decoding.model_copy(update={"max_len": length, "beam_size": beam_size})
            self.generate(inputs, settings, full_length=True)

        width = decoding.beam_size
        most = decoding.max_len
        return count_generation(self.vision, generate, beam_size=width, max_len=most, step_position=position)

    def _length(self, tokens: list[int]) -> int:
        """The number of tokens up to and including an end token, of the tokenizer or of a module that generates."""
        tokenizer = self.processor.tokenizer
        end_tokens = {tokenizer.eos_token_id, tokenizer.sep_token_id}
        for module in self.network.modules():
            own_ends = getattr(getattr(module, "generation_config", None), "eos_token_id", None)
            end_tokens |= {own_ends} if isinstance(own_ends, int) else set(own_ends or ())
        return next((length for length, token in enumerate(tokens, 1) if token in end_tokens), len(tokens))

    def _placed(self, processed: Mapping[str, Any]) -> dict[str, Tensor]:
        """The tensors on the network's device, floating-point ones in its type."""
        return {
            name: value.to(self.device, self.dtype if value.is_floating_point() else None)
            for name, value in processed.items()
            if isinstance(value, Tensor)
        }

    def _text(self) -> str:
        """The prompt for the processor, formatted with its chat template where it has one."""
        prompt = self.prompt
        if prompt.chat and getattr(self.processor, "chat_template", None):
            parts = [{"type": "image"}, *([{"type": "text", "text": prompt.text}] if prompt.text else [])]
            messages = [{"role": "user", "content": parts}]
            return str(self.processor.apply_chat_template(messages, add_generation_prompt=True, tokenize=False))
        image = getattr(self.processor, "image_token", "") if "{image}" in prompt.layout else ""
        return prompt.layout.replace("{image}", str(image)).replace("{prompt}", prompt.text)


class _TokensBefore(LogitsProcessor):
    """Records the number of tokens before the first generated one; does not change the logits.

    `generate` returns these tokens before the caption: the prompt of a decoder, its start token, or nothing.
    """

    def __init__(self) -> None:
        self.count: int = -1

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        if self.count < 0:
            self.count = input_ids.shape[1]
        return scores


def caption_with_hub(
    captioner: HubCaptioner,
    dataset: Dataset,
    image_ids: Sequence[int],
    decoding: Decoding,
    *,
    reporter: Reporter,
    title: str,
    batch: int | None = None,
    jobs: int = 1,
) -> Captions:
    """Caption the images in order; the time is that of processor and network, without reading images.

    `tokens` of the result are empty, since they would be entries of the model's own tokenizer.

    Args:
        batch: images at once, fewer if memory runs out; by default `images_at_once`.
        jobs: number of processes that share the free memory.

    Raises:
        BenchError: memory runs out with a single image.
    """
    paths = {sample.image_id: dataset.path(sample) for sample in dataset.samples}
    captions: dict[int, str] = {}
    generated, seconds, first = 0, 0.0, 0
    size = batch or images_at_once(captioner, [paths[image_id] for image_id in image_ids], decoding, jobs, reporter)
    with reporter.task(title, len(image_ids)) as task:
        while first < len(image_ids):
            ids = image_ids[first : first + size]
            images = [load_image(paths[image_id]) for image_id in ids]
            started = time.monotonic()
            result = None
            try:
                result = captioner.caption(images, decoding)
            except (RuntimeError, MemoryError) as error:
                if not _is_out_of_memory(error):
                    raise
                if size == 1:
                    raise BenchError(
                        "out of memory with a single image at a time",
                        "add --hub dtype=bf16, or choose a smaller model or beam",
                    ) from error
            if result is None:  # outside the handler, which would keep the tensors of the failed batch alive
                if captioner.device.type == "cuda":
                    torch.cuda.empty_cache()
                size = min(size, len(ids)) // 2 or 1
                reporter.note(f"  out of memory: from now on {size} images at once", style="yellow")
                continue
            seconds += time.monotonic() - started
            captions.update(zip(ids, result[0], strict=True))
            generated += sum(result[1])
            first += len(ids)
            task.advance(len(ids))
    return Captions(captions, {}, generated, seconds)


def images_at_once(
    captioner: HubCaptioner, paths: Sequence[Path], decoding: Decoding, jobs: int, reporter: Reporter
) -> int:
    """The largest power of two up to `MOST` that fits into the free memory, from the memory of the first image.

    Captions do not depend on it except for rounding (`docs/hub_models.md`).
    """
    most = MOST.get(captioner.device.type, 1)
    free = free_memory(captioner.device)
    if len(paths) < 2 or free is None:
        return most
    try:
        with LiveTensors() as live:
            captioner.caption([load_image(paths[0])], decoding)
    except (RuntimeError, MemoryError) as error:
        if not _is_out_of_memory(error):
            raise
        return 1
    size = most
    room = SHARE_OF_FREE * free / jobs
    while size > 1 and size * live.peak > room:
        size //= 2
    if size < most:
        takes = f"{live.peak / 2**20:,.0f} MiB an image, and {free / 2**20:,.0f} MiB are free"
        reporter.note(f"  {size} images at once: {takes}")
    return size


def _is_out_of_memory(error: Exception) -> bool:
    """Whether an allocation failed; on a CPU, torch raises a RuntimeError with this text."""
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or "DefaultCPUAllocator" in str(error)
