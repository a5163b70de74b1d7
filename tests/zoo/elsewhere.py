"""A stand-in for a GPU that every machine has."""

import torch
from torch.utils._python_dispatch import TorchDispatchMode

_COPIES = {torch.ops.aten._to_copy.default, torch.ops.aten.copy_.default}


class Elsewhere(TorchDispatchMode):
    """Lets torch's meta device stand for a GPU: whatever meets a tensor of the processor there is refused.

    Numbers without dimensions go along with a GPU's tensors, and copies are asked for. What comes back from there are
    zeros, a one where a single number is asked for, and no to every question: captions never end.
    """

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        parts = [
            part for value in (*args, *kwargs.values()) for part in (value if isinstance(value, list) else [value])
        ]
        tensors = [part for part in parts if isinstance(part, torch.Tensor)]
        if not any(tensor.is_meta for tensor in tensors):
            return func(*args, **kwargs)
        if func is torch.ops.aten._local_scalar_dense.default:
            return args[0].dtype != torch.bool
        if func is torch.ops.aten._to_copy.default and kwargs.get("device") == torch.device("cpu"):
            return torch.zeros(args[0].shape, dtype=kwargs.get("dtype") or args[0].dtype)
        if func not in _COPIES and any(not tensor.is_meta and tensor.dim() for tensor in tensors):
            raise RuntimeError(f"{func} of tensors on different devices")
        return func(*args, **kwargs)
