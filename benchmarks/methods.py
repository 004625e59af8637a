"""What a training step of each method costs beside one of SimCSE.

Time: a method's steps and SimCSE's in turn, in one process, on the same sentences; the median of
the pairs' ratios. A step is what `cse train` does between two steps' ends: rows, forward, backward,
clipping, optimiser, queue. SimCSE against itself gives the spread. Memory: the peak private memory
of a process of its own that takes a few steps, with glibc handing large blocks back when freed.

DiffCSE's generator is the base cut to its lower half of the blocks, which is not a good language
model but costs what one of that depth costs.

    python benchmarks/methods.py [--assets ../shared] [--model PATH] [--steps 15] [--batch 64]
                                 [--threads 2] [--precision fp32|bf16] [--only NAME …]
    python benchmarks/methods.py --device cuda --model bert-base-uncased --precision bf16

`--model` is a masked language model that the layer numbers below fit, of six blocks or more.
"""

import argparse
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

import torch
from memory import watched
from torch import nn

from cse_cli.cli.training import on_this_machine
from cse_cli.methods.resolve import resolve
from cse_cli.training.folder import RunFolder
from cse_cli.training.setup import build
from cse_cli.training.step import training_step

MODEL, CORPUS = "models/mlm-minilm-l6", "data/corpora/wiki60k.txt"
SIMCSE = "SimCSE"
# Name: (settings beside SimCSE's, ceiling of the time ratio).
METHODS: dict[str, tuple[dict[str, object], float | None]] = {
    SIMCSE: ({}, None),
    "SSCL": ({"with_": ("layer-negatives",)}, 1.05),
    "progressive SSCL": ({"with_": ("layer-negatives",), "neg_layer": ("5", "4")}, None),
    "word repetition": ({"with_": ("word-repetition",)}, 1.35),
    "momentum queue": ({"with_": ("momentum-queue",)}, 1.45),
    "ESimCSE": ({"method": "esimcse"}, None),
    "GS-InfoNCE": ({"method": "gs-infonce"}, 1.02),
    "off-dropout": ({"with_": ("off-dropout",)}, 1.45),
    "DCL": ({"with_": ("dcl",)}, 1.05),
    "SimCSE++": ({"method": "simcse-pp"}, None),
    "DiffCSE": ({"method": "diffcse"}, 3.2),
    "SimCSE + MLM": ({"with_": ("masked-lm",)}, None),
}
MEMORY_CEILINGS = {"SSCL": 1.05}


class Stepper:
    """A method's training steps, one at a time, as the loop takes them."""

    def __init__(self, name: str, options: argparse.Namespace, folder: Path):
        extra, _ = METHODS[name]
        if name == "DiffCSE":
            extra = extra | {"generator": str(half_generator(options.model, folder))}
        values = {
            "model": str(options.model),
            "train_file": (str(options.assets / CORPUS),),
            "pooler": "cls",
            "batch_size": options.batch,
            "precision": options.precision,
            "device": options.device,
            "threads": options.threads,
            "select": "last",
        }
        run = on_this_machine(resolve(values | extra))
        self.training = build(run, RunFolder(folder / name), lambda _row: None)
        self.modules = nn.ModuleList([self.training.encoder, *self.training.parts]).train()
        self.parameters = [p for p in self.modules.parameters() if p.requires_grad]
        self.optimizer = torch.optim.AdamW(self.parameters, 3e-5, weight_decay=0.0, fused=True)
        self.step = 0

    def take(self) -> float:
        """Seconds of the next step."""
        _finish(self.training.encoder.device)
        begun = time.perf_counter()
        self.step += 1
        training = self.training
        outcome = training_step(
            training.batch(self.step), training.encoder, training.parts, training.step_config
        )
        torch.nn.utils.clip_grad_norm_(self.parameters, 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        for part in training.parts:
            part.after_step(outcome.views)
        _finish(self.training.encoder.device)
        return time.perf_counter() - begun


def _finish(device: torch.device) -> None:
    """Wait for what a GPU was told to do."""
    if device.type == "cuda":
        torch.cuda.synchronize()


def half_generator(source: Path | str, folder: Path) -> Path:
    """The base with the lower half of its blocks, as a masked language model."""
    from transformers import AutoConfig, AutoModelForMaskedLM, AutoTokenizer

    place = folder / "generator"
    if not place.exists():
        config = AutoConfig.from_pretrained(source)
        config.num_hidden_layers //= 2
        model = AutoModelForMaskedLM.from_pretrained(source, config=config, dtype=torch.float32)
        model.save_pretrained(place)
        AutoTokenizer.from_pretrained(source).save_pretrained(place)
    return place


def compare(name: str, simcse: Stepper, options: argparse.Namespace, folder: Path) -> list[float]:
    """Ratios of a step of `name` to one of SimCSE taken right before or after it."""
    other = Stepper(name, options, folder)
    simcse.step = other.step  # the same sentences: a batch depends on its step's number only
    for _ in range(3):  # the queue fills, caches warm
        simcse.take()
        other.take()
    ratios = []
    for turn in range(options.steps):
        first, second = (simcse, other) if turn % 2 else (other, simcse)
        a, b = first.take(), second.take()
        ratios.append(b / a if turn % 2 else a / b)
    return ratios


def peak_memory(name: str, options: argparse.Namespace) -> float:
    """MiB of private memory at the peak of a few steps, in a process of its own."""
    command = [sys.executable, __file__, "--assets", str(options.assets), "--memory-of", name]
    command += ["--batch", str(options.batch), "--threads", str(options.threads)]
    command += ["--precision", options.precision, "--device", options.device]
    command += ["--model", str(options.model)]
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": str(1 << 20)}
    return watched(command, environment)[1] / 2**20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    default = Path(os.environ.get("CSE_ASSETS", "../shared"))
    parser.add_argument("--assets", type=Path, default=default)
    parser.add_argument("--model", help="default: mlm-minilm-l6 of the assets")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--steps", type=int, default=15)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="fp32")
    parser.add_argument("--only", nargs="*", choices=list(METHODS), default=list(METHODS))
    parser.add_argument("--memory-of", choices=list(METHODS), help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.model = options.model or options.assets / MODEL
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        if options.memory_of:
            stepper = Stepper(options.memory_of, options, folder)
            for _ in range(5):
                stepper.take()
            return
        simcse = Stepper(SIMCSE, options, folder)
        plain = peak_memory(SIMCSE, options)
        print(f"batch {options.batch}, {options.precision}, {options.threads} threads, medians of")
        print(f"{options.steps} pairs of steps; SimCSE's peak memory {plain:.0f} MiB\n")
        print("| method | time over SimCSE | quartiles | ceiling | memory over SimCSE | ceiling |")
        print("| --- | ---: | ---: | ---: | ---: | ---: |")
        for name in options.only:
            ratios = compare(name, simcse, options, folder)
            low, middle, high = statistics.quantiles(ratios, n=4)
            ceiling, more = METHODS[name][1], MEMORY_CEILINGS.get(name)
            memory = peak_memory(name, options) / plain
            print(
                f"| {name} | {middle:.2f}x | {low:.2f} … {high:.2f} "
                f"| {f'{ceiling}x' if ceiling else ''} | {memory:.2f}x "
                f"| {f'{more}x' if more else ''} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
