"""x W^T + b by oneDNN, on a processor and without gradient.

PyTorch gives such products in float32 to MKL, which keeps to AVX2 on processors that are not
Intel's: on an AMD EPYC of family 26 it reached 95 GFLOPS a core where oneDNN, with AVX-512, reached
215. In bf16 it asks oneDNN anyway, but copies the bias into every row first. The operator is the
one that PyTorch's own compiler calls.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x W^T + b: (..., K), (N, K), (N,) to (..., N); without gradient on a processor."""
    operator = _operator(weight.dtype) if weight.device.type == "cpu" else None
    if operator is None:
        return functional.linear(x, weight, bias)
    product: Tensor = operator(x, weight, bias, "none", [], "")
    return product


@cache
def _operator(dtype: torch.dtype) -> Any:
    """oneDNN's linear layer; None where it, or the processor, does not know the type."""
    if not torch.backends.mkldnn.is_available():
        return None
    if dtype == torch.bfloat16 and not torch.ops.mkldnn._is_mkldnn_bf16_supported():
        return None
    if dtype not in (torch.float32, torch.bfloat16):
        return None
    return getattr(torch.ops.mkldnn, "_linear_pointwise", None)


@contextmanager
def fast_linears(module: nn.Module) -> Iterator[None]:
    """Within, the linear layers of `module` are computed by `linear`: passes without gradient.

    Autocast, which chooses precisions of its own, is left to itself.
    """
    changed = [] if torch.is_autocast_enabled("cpu") else _linears(module)
    for layer in changed:
        vars(layer)["forward"] = _forward(layer)
    try:
        yield
    finally:
        for layer in changed:
            del vars(layer)["forward"]


def _linears(module: nn.Module) -> list[nn.Linear]:
    """The linear layers of a module that are PyTorch's own, and as it made them."""
    layers = [layer for layer in module.modules() if type(layer) is nn.Linear]
    return [layer for layer in layers if "forward" not in vars(layer)]


def _forward(layer: nn.Linear) -> Callable[[Tensor], Tensor]:
    return lambda x: linear(x, layer.weight, layer.bias)
