"""Load pretrained networks of the transformers library from a folder: safetensors only, without download or code."""

from __future__ import annotations

from logging import CRITICAL
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zoo.errors import ZooError, first_line

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_HINT = "fetch it again, or name the folder of a complete model: config.json and model.safetensors"


def load_network(kind: type[PreTrainedModel], folder: Path, unused: str = "") -> PreTrainedModel:
    """The network in `folder`, in the type of its stored weights.

    Args:
        kind: the class that the folder must hold.
        folder: config.json and weights as .safetensors.
        unused: prefix of names of weights that may be missing, since they are not used.

    Raises:
        ZooError: naming the folder and what is wrong with it: no configuration, of another architecture, weights that
            are missing, cut short or of other shapes.
    """
    from transformers.utils import logging

    verbosity = logging.get_verbosity()
    logging.set_verbosity(CRITICAL)
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        loaded: Any = kind.from_pretrained(
            str(folder), local_files_only=True, use_safetensors=True, trust_remote_code=False, output_loading_info=True
        )
    except Exception as error:  # the library may raise anything: OSError, SafetensorError, ValueError ...
        raise ZooError(f"{folder} holds no usable {kind.__name__}: {first_line(error)}", _HINT) from error
    finally:
        logging.set_verbosity(verbosity)
    network: PreTrainedModel = loaded[0]
    if lacking := sorted(name for name in loaded[1]["missing_keys"] if not unused or not name.startswith(unused)):
        raise ZooError(f"the weights in {folder} lack {len(lacking)} tensors, {lacking[0]} first", _HINT)
    return network
