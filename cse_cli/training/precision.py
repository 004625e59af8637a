"""Arithmetic of the encoder in training: fp32, bf16 or fp16 by autocast; losses stay in fp32."""

import os
import re
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import torch

from cse_cli.encoder import DTYPES
from cse_cli.errors import UsageError

_CPU_FLAGS = ("avx512_bf16", "amx_bf16", " bf16 ")


def choose_device(name: str) -> str:
    """`auto` becomes cuda where there is one; UsageError for a device that is not there.

    Under torchrun each process takes the GPU of its own number on its machine.
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name.startswith("cuda") and "LOCAL_RANK" in os.environ:
        name = f"cuda:{os.environ['LOCAL_RANK']}"
    if not re.fullmatch(r"cpu|cuda(:\d+)?", name):
        raise UsageError(f"--device {name}: auto, cpu, cuda or cuda:N is expected")
    if name.startswith("cuda") and not torch.cuda.is_available():
        raise UsageError(f"--device {name}: no CUDA device on this machine")
    if int(name.partition(":")[2] or 0) >= max(torch.cuda.device_count(), 1):
        count = torch.cuda.device_count()
        raise UsageError(f"--device {name}: this machine has CUDA devices 0 … {count - 1}")
    return name


def choose_precision(name: str, device: str) -> str:
    """`auto` becomes bf16 where the processor or GPU multiplies it natively, else fp32."""
    if name == "fp16" and not device.startswith("cuda"):
        raise UsageError("--precision fp16 needs a GPU; bf16 and fp32 run anywhere")
    if name != "auto":
        return name
    if device.startswith("cuda"):
        return "bf16" if torch.cuda.is_bf16_supported() else "fp16"
    return "bf16" if cpu_has_bf16() else "fp32"


def cpu_has_bf16() -> bool:
    """Whether the processor lists bf16 instructions (Linux; elsewhere the answer is no)."""
    info = Path("/proc/cpuinfo")
    if not info.is_file():
        return False
    return any(flag in info.read_text(errors="replace") for flag in _CPU_FLAGS)


def autocast(precision: str, device: str) -> Callable[[], AbstractContextManager[object]]:
    """A factory of the context in which the encoder runs."""
    if precision == "fp32":
        return nullcontext
    return lambda: torch.autocast(torch.device(device).type, dtype=DTYPES[precision])


def make_deterministic() -> None:
    """Have every kernel give the same bits each time, or refuse (for the whole process).

    Called before anything runs on the GPU: cuBLAS reads its variable when it starts.
    """
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.benchmark = False
