"""The resume state: everything a run needs to go on bit for bit, written whole or not at all.

    state/step-N/   encoder.safetensors  parts.safetensors  optimizer.safetensors
                    random.safetensors   state.json

Random states are those of torch's generators, one row a process; every other draw is keyed by
(seed, step, name), and the place in the shuffled corpus follows from the step.

`state.json` is written last inside the folder and holds every file's SHA-256; the folder is synced
and then renamed into place. The newest two are kept, so that one that turns out damaged leaves the
one before it.
"""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from cse_cli.checkpoint import digest, write_whole
from cse_cli.encoder import Encoder
from cse_cli.errors import InputError, UsageError
from cse_cli.layout import read_json
from cse_cli.progress import warn
from cse_cli.training import distributed

KEPT = 2
INDEX = "state.json"


def save_state(
    folder: Path,
    step: int,
    encoder: Encoder,
    parts: Sequence[nn.Module],
    optimizer: torch.optim.Optimizer,
    progress: dict[str, Any],
) -> None:
    """Write the state after `step`; `progress` is what the loop wants back. OutputError if not.

    All processes of a run call this, and process 0 writes.
    """
    random = _random_tensors(encoder.device)
    if distributed.rank():
        return

    def write(place: Path) -> None:
        """Every file of the state, in the folder that will be renamed."""
        tensors = {
            "encoder": _state_dict(encoder),
            "parts": _state_dict(nn.ModuleList(parts)),
            "optimizer": _optimizer_tensors(optimizer),
            "random": random,
        }
        for name, values in tensors.items():
            save_file(values, place / f"{name}.safetensors")
        files = {path.name: digest(path) for path in sorted(place.iterdir())}
        record = {"step": step, "progress": progress, "files": files}
        (place / INDEX).write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")

    write_whole(folder / f"step-{step}", write)
    for old in _steps(folder)[KEPT:]:
        shutil.rmtree(old, ignore_errors=True)


def load_state(
    folder: Path, encoder: Encoder, parts: Sequence[nn.Module], optimizer: torch.optim.Optimizer
) -> tuple[int, dict[str, Any]]:
    """Restore the newest whole state into the modules; (step, progress). (0, {}) where none is.

    A damaged state is told and the one before it used; InputError where all are damaged.
    """
    found = _steps(folder)
    for place in found:
        wrong = _damage(place)
        if wrong is not None:
            warn(f"{wrong}; trying the state before it")
            continue
        record = read_json(place / INDEX)
        encoder.load_state_dict(load_file(place / "encoder.safetensors"))
        nn.ModuleList(parts).load_state_dict(load_file(place / "parts.safetensors"))
        _restore_optimizer(optimizer, load_file(place / "optimizer.safetensors"))
        _restore_random(load_file(place / "random.safetensors"), encoder.device)
        return int(record["step"]), record["progress"]
    if found:
        raise InputError(f"{folder}: every resume state is damaged")
    return 0, {}


def _steps(folder: Path) -> list[Path]:
    """State folders, newest first."""
    return sorted(folder.glob("step-*"), key=lambda p: int(p.name.split("-")[1]), reverse=True)


def _damage(place: Path) -> str | None:
    if not (place / INDEX).is_file():
        return f"{place / INDEX} is missing"
    try:
        files = read_json(place / INDEX)["files"]
    except (InputError, KeyError, TypeError):
        return f"{place / INDEX} is damaged"
    for name, wanted in files.items():
        path = place / name
        if not path.is_file():
            return f"{path} is missing"
        if digest(path) != wanted:
            return f"{path} does not match its recorded SHA-256"
    return None


def _state_dict(module: nn.Module) -> dict[str, Tensor]:
    """A module's tensors, each with its own memory (safetensors refuses shared storage)."""
    return {k: v.detach().cpu().contiguous().clone() for k, v in module.state_dict().items()}


def _optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The optimiser's state flattened: `<parameter number>/<name>`."""
    return {
        f"{number}/{name}": torch.as_tensor(value).detach().cpu().contiguous().clone()
        for number, state in optimizer.state_dict()["state"].items()
        for name, value in state.items()
    }


def _restore_optimizer(optimizer: torch.optim.Optimizer, tensors: dict[str, Tensor]) -> None:
    state: dict[int, dict[str, Tensor]] = {}
    for key, value in tensors.items():
        number, name = key.split("/")
        state.setdefault(int(number), {})[name] = value
    groups = optimizer.state_dict()["param_groups"]
    optimizer.load_state_dict({"state": state, "param_groups": groups})


def _random_tensors(device: torch.device) -> dict[str, Tensor]:
    """The generators' states of all processes: `cpu`, and `cuda` on a GPU, (world, bytes)."""
    states = {"cpu": torch.get_rng_state()}
    if device.type == "cuda":
        states["cuda"] = torch.cuda.get_rng_state(device)
    return {name: distributed.gather(state[None]) for name, state in states.items()}


def _restore_random(states: dict[str, Tensor], device: torch.device) -> None:
    wanted = {"cpu", "cuda"} if device.type == "cuda" else {"cpu"}
    if len(states["cpu"]) != distributed.world() or states.keys() != wanted:
        raise UsageError(
            f"the run was trained by {len(states['cpu'])} processes on "
            f"{'a GPU' if 'cuda' in states else 'the CPU'}; --resume it likewise"
        )
    torch.set_rng_state(states["cpu"][distributed.rank()].clone())
    if "cuda" in states:
        torch.cuda.set_rng_state(states["cuda"][distributed.rank()].clone(), device)
