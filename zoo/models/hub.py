"""Load pretrained networks of the transformers library from a folder: safetensors only, without download or code."""

from __future__ import annotations

from logging import CRITICAL
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zoo.errors import ZooError, first_line
from zoo.safety import no_larger_than, not_finite, refuse_not_finite

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_HINT = "fetch it again, or name the folder of a complete model: config.json and model.safetensors"


def load_network(
    kind: type[PreTrainedModel], folder: Path | str, unused: str = "", attention: str | None = None
) -> PreTrainedModel:
    """The network in `folder`, in the type of its stored weights.

    Args:
        kind: the class of the network.
        folder: has config.json and weights as .safetensors.
        unused: prefix of names of weights that may be missing, since they are not used.
        attention: implementation of attention: "eager", "sdpa" or "flash_attention_2"; None for the library's choice.
            That of config.json is ignored, since it may name a repository of kernels, which would execute code.

    Raises:
        ZooError: the folder has no configuration, or one of another architecture; or weights are missing, truncated, of
            other shapes, far fewer than the configuration describes, NaN or infinite.
    """
    from safetensors.torch import load_file
    from transformers import AutoConfig
    from transformers.utils import logging

    folder = Path(folder)
    config_class: Any = getattr(kind, "config_class", None) or AutoConfig
    verbosity = logging.get_verbosity()
    logging.set_verbosity(CRITICAL)
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        config = config_class.from_pretrained(str(folder), local_files_only=True, trust_remote_code=False)
        config._attn_implementation = attention
        with no_larger_than(folder.glob("*.safetensors"), "meta"):
            loaded: Any = kind.from_pretrained(
                str(folder),
                config=config,
                local_files_only=True,
                use_safetensors=True,
                trust_remote_code=False,
                ignore_mismatched_sizes=True,  # reported below, by name
                output_loading_info=True,
            )
    except Exception as error:  # the library raises many types: OSError, SafetensorError, ValueError ...
        raise ZooError(f"{folder} holds no usable {kind.__name__}: {first_line(error)}", _HINT) from error
    finally:
        logging.set_verbosity(verbosity)
    network: PreTrainedModel = loaded[0]
    mismatched = sorted(key for key, *_ in loaded[1]["mismatched_keys"])
    if mismatched:
        raise ZooError(f"the weights in {folder} have other shapes than config.json says, {mismatched[0]} first", _HINT)
    missing = sorted(name for name in loaded[1]["missing_keys"] if not unused or not name.startswith(unused))
    if missing:
        raise ZooError(f"the weights in {folder} lack {len(missing)} tensors, {missing[0]} first", _HINT)
    if not_finite(network.state_dict().items()) is not None:  # may also be a mask that the network computed itself
        for file in sorted(folder.glob("*.safetensors")):
            refuse_not_finite(load_file(file), str(file))
    return network
