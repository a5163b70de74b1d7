"""A checkpoint of transformers' own interface as a captioner: its processor, its prompt and its own `generate`."""

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
MOST = {"cuda": 64, "cpu": 16}  # images at once, where memory suffices; a processor gains nothing from more
SHARE_OF_FREE = 0.5  # of the free memory: the rest is for larger images, and for what kernels take for themselves


class HubCaptioner:
    """A network of transformers with its processor, in evaluation mode.

    Args:
        precision: of `DTYPES`, the type of the weights and of the arithmetic.
        attention: how it is computed: of `ATTENTION`, or None for the network's own choice.

    Raises:
        ZooError: the weights are damaged or incomplete.
        BenchError: attention is not computed so in this precision, or on this device.
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
        self.device, self.dtype = device, getattr(torch, DTYPES[precision])
        self.prompt, self.rules, self.processor = prompt, tuple(rules), checkpoint.processor
        kind: Any = AutoModelForImageTextToText
        network: Any = load_network(kind, checkpoint.folder, attention=attention)
        # Gradients are off in `generate` too, but counters of torch follow parameters that could have some.
        self.network = network.to(device, self.dtype).eval().requires_grad_(False)
        tokenizer = self.processor.tokenizer
        tokenizer.padding_side = "left"  # a decoder goes on after the last token of its prompt
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
        """The module that sees; None where no module has one of the names that transformers gives it."""
        if self.network.config.model_type == SEPARATE:
            encoder: nn.Module = self.network.encoder
            return encoder
        named = ((name.rpartition(".")[2], module) for name, module in self.network.named_modules())
        return next((module for last, module in named if last in _VISION), None)

    def inputs(self, images: Sequence[Image.Image]) -> dict[str, Tensor]:
        """RGB images of any size, with the prompt, as the network takes them, on its device."""
        if self.prompt.bare:
            return self._placed(self.processor.image_processor(images=list(images), return_tensors="pt"))
        return self._together(images, [self._text()] * len(images))

    def _together(self, images: Sequence[Image.Image], texts: Sequence[str]) -> dict[str, Tensor]:
        """Images, each with its text, as the network takes them; shorter texts are padded."""
        # One list of images per text: processors that allow several images cannot tell them apart otherwise.
        nested: list[Any] = [[image] for image in images] if "{image}" in self.prompt.layout else list(images)
        begin = self.processor.tokenizer.bos_token
        # A chat template may write the begin token itself, which the tokenizer must not repeat.
        again = {"add_special_tokens": False} if begin and texts[0].startswith(begin) else {}
        return self._placed(self.processor(images=nested, text=list(texts), padding=True, return_tensors="pt", **again))

    def caption(self, images: Sequence[Image.Image], decoding: Decoding) -> tuple[list[str], list[int]]:
        """The captions of RGB images, and the tokens generated for each, the end token included; see `generate`."""
        said = self.generate(self.inputs(images), decoding)
        captions = self.processor.tokenizer.batch_decode(said, skip_special_tokens=True)
        cleaned = [clean(caption.strip(), self.prompt.text, self.rules) for caption in captions]
        return cleaned, [self._length(row) for row in said.tolist()]

    @torch.inference_mode()
    def generate(self, inputs: dict[str, Tensor], decoding: Decoding, *, full_length: bool = False) -> Tensor:
        """The tokens (B, T) of the captions, without the prompt's, by the network's own beam search without sampling.

        Args:
            full_length: no caption ends before it has the most tokens.
        """
        before = _TokensBefore()
        tokens: Tensor = self.network.generate(
            **inputs,
            do_sample=False,
            num_beams=decoding.beam_size,
            num_return_sequences=1,
            max_new_tokens=decoding.max_len,
            min_new_tokens=decoding.max_len if full_length else None,
            length_penalty=decoding.length_penalty,
            logits_processor=LogitsProcessorList([before]),
        )
        return tokens[:, before.count :]

    def counts(self, inputs: dict[str, Tensor], decoding: Decoding, position: int | None = None) -> GenerationCounts:
        """Multiply-accumulates of captioning one image; see `count_generation`."""

        def generate(length: int, beam_size: int) -> None:
            asked = decoding.model_copy(update={"max_len": length, "beam_size": beam_size})
            self.generate(inputs, asked, full_length=True)

        width, most = decoding.beam_size, decoding.max_len
        return count_generation(self.vision, generate, beam_size=width, max_len=most, step_position=position)

    def _length(self, tokens: list[int]) -> int:
        """Tokens up to and including the end token, or all; the part that generates may have an end of its own."""
        tokenizer = self.processor.tokenizer
        last = {tokenizer.eos_token_id, tokenizer.sep_token_id}
        for module in self.network.modules():
            ends = getattr(getattr(module, "generation_config", None), "eos_token_id", None)
            last |= {ends} if isinstance(ends, int) else set(ends or ())
        return next((number for number, token in enumerate(tokens, 1) if token in last), len(tokens))

    def _placed(self, found: Mapping[str, Any]) -> dict[str, Tensor]:
        """The tensors on the device, numbers in the network's type."""
        return {
            name: value.to(self.device, self.dtype if value.is_floating_point() else None)
            for name, value in found.items()
            if isinstance(value, Tensor)
        }

    def _text(self) -> str:
        """The prompt as the processor takes it, from its chat template where it has one."""
        prompt = self.prompt
        if prompt.chat and getattr(self.processor, "chat_template", None):
            parts = [{"type": "image"}, *([{"type": "text", "text": prompt.text}] if prompt.text else [])]
            said = [{"role": "user", "content": parts}]
            return str(self.processor.apply_chat_template(said, add_generation_prompt=True, tokenize=False))
        image = getattr(self.processor, "image_token", "") if "{image}" in prompt.layout else ""
        return prompt.layout.replace("{image}", str(image)).replace("{prompt}", prompt.text)


class _TokensBefore(LogitsProcessor):
    """Takes down how many tokens a sequence has before the first is generated, and changes nothing.

    It is what `generate` gives back before the caption: the prompt of a decoder, its start token, or nothing.
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
    """Caption the images in order; seconds are those of processor and network, reading images left out.

    `tokens` of the result are empty: they are entries of the model's own tokenizer.

    Args:
        batch: images at once, fewer where memory runs out; None: see `images_at_once`.
        jobs: processes that share the free memory.

    Raises:
        BenchError: there is no room for a single image.
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
            found = None
            try:
                found = captioner.caption(images, decoding)
            except (RuntimeError, MemoryError) as error:
                if not _is_out_of_memory(error):
                    raise
                if size == 1:
                    raise BenchError(
                        "out of memory with a single image at a time",
                        "add --hub dtype=bf16, or choose a smaller model or beam",
                    ) from error
            if found is None:  # outside the handler, which would keep the tensors of the failed batch alive
                if captioner.device.type == "cuda":
                    torch.cuda.empty_cache()
                size = min(size, len(ids)) // 2 or 1
                reporter.note(f"  out of memory: from now on {size} images at once", style="yellow")
                continue
            seconds += time.monotonic() - started
            captions.update(zip(ids, found[0], strict=True))
            generated += sum(found[1])
            first += len(ids)
            task.advance(len(ids))
    return Captions(captions, {}, generated, seconds)


def images_at_once(
    captioner: HubCaptioner, paths: Sequence[Path], decoding: Decoding, jobs: int, reporter: Reporter
) -> int:
    """The largest power of two up to `MOST` that the free memory has room for, by what the first image takes.

    Captions do not depend on it, but for the rounding of sums (`docs/hub_models.md`).
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
    size, room = most, SHARE_OF_FREE * free / jobs
    while size > 1 and size * live.peak > room:
        size //= 2
    if size < most:
        takes = f"{live.peak / 2**20:,.0f} MiB an image, and {free / 2**20:,.0f} MiB are free"
        reporter.note(f"  {size} images at once: {takes}")
    return size


def _is_out_of_memory(error: Exception) -> bool:
    """Whether an allocation failed; a processor's is told by its text alone."""
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or "DefaultCPUAllocator" in str(error)
