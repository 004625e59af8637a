"""The training loop, top to bottom."""

import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from cse_cli.config import TrainConfig
from cse_cli.encoder import Encoder
from cse_cli.errors import InputError
from cse_cli.methods.base import Ingredient
from cse_cli.progress import log
from cse_cli.training import distributed
from cse_cli.training.folder import RunFolder
from cse_cli.training.metrics import Guard, MetricsFile
from cse_cli.training.schedule import rate, warmup_steps
from cse_cli.training.select import Selector
from cse_cli.training.state import load_state, save_state
from cse_cli.training.step import Batch, Outcome, StepConfig, diagnostics, training_step

FLUSH = {"cpu": 1, "cuda": 10}  # steps between reading numbers back: on a GPU reading waits


class Stopped(Exception):
    """A signal asked the run to stop; its state is saved. `signal` is the signal's number."""

    def __init__(self, number: int):
        super().__init__(number)
        self.signal = number


@dataclass
class Progress:
    """What the loop itself remembers: it is saved in the resume state."""

    step: int = 0
    best: float | None = None
    best_step: int | None = None
    close_steps: int = 0  # in a row, in which the space looked collapsed


@dataclass
class Training:
    """Everything a run is made of; `run` trains."""

    config: TrainConfig
    encoder: Encoder
    parts: list[Ingredient]
    step_config: StepConfig
    batch: Callable[[int], Batch]  # the token rows of a step, a pure function of its number
    total: int
    corpus: str  # its fingerprint
    selector: Selector
    folder: RunFolder
    save: Callable[[Progress, float | None], None]  # writes the present weights as a checkpoint
    view: Callable[[dict[str, Any]], None]  # shows a step's numbers to whoever watches
    progress: Progress = field(default_factory=Progress)

    def run(self, *, resume: bool = False) -> Progress:
        """Train to the last step, or until a signal (`Stopped`) or a breakdown (DivergedError)."""
        # One list of modules, so that a parameter which two of them share counts once.
        parameters = nn.ModuleList((self.encoder, *self.parts)).parameters()
        trained = [p for p in parameters if p.requires_grad]
        optimizer = torch.optim.AdamW(
            trained, self.config.learning_rate, weight_decay=self.config.weight_decay, fused=True
        )
        scaler = torch.amp.GradScaler(enabled=self.config.precision == "fp16")
        self.step_config = _scaled(self.step_config, scaler)
        if resume:
            step, saved = load_state(self.folder.states, self.encoder, self.parts, optimizer)
            if saved.get("corpus", self.corpus) != self.corpus:
                raise InputError(
                    "the training text is not that of the run to --resume; give it back as it was, "
                    "or start a new run"
                )
            self.progress = Progress(
                step, saved.get("best"), saved.get("best_step"), saved.get("close_steps", 0)
            )
            if scaler.is_enabled() and saved:
                scaler.load_state_dict(saved["scaler"])
            log(f"resuming after step {step}" if step else "no state yet: starting again")
        for module in (self.encoder, *self.parts):
            module.train()
        metrics = MetricsFile(self.folder.metrics, self.progress.step) if _writes() else None
        reader = _Reader(self, metrics)
        warmup = warmup_steps(self.config.warmup, self.total)

        with _signals() as stop, _ahead(self.batch, self.progress.step, self.total) as batches:
            for step, batch in batches:
                for group in optimizer.param_groups:
                    factor = rate(self.config.schedule, step, self.total, warmup)
                    group["lr"] = self.config.learning_rate * factor
                outcome = training_step(batch, self.encoder, self.parts, self.step_config)
                scaler.unscale_(optimizer)
                norm = torch.nn.utils.clip_grad_norm_(trained, self.config.clip or torch.inf)
                scaler.step(optimizer)
                scaler.update()
                optimizer.zero_grad(set_to_none=True)
                for part in self.parts:
                    part.after_step(outcome.views)
                self.progress.step = step
                last = step == self.total
                evaluating = step % self.config.eval_steps == 0 or last
                reader.add(outcome, norm, optimizer.param_groups[0]["lr"], wait=not evaluating)
                if evaluating:
                    reader.flush(self._evaluate)
                stopping = stop()
                every = self.config.save_steps
                if last or stopping or (every and step % every == 0):
                    reader.flush()
                    self._save_state(optimizer, scaler)
                if stopping and not last:
                    raise Stopped(stopping)
        reader.flush()
        if metrics is not None:
            metrics.close()
        return self.progress

    def _evaluate(self) -> float | None:
        """Score the encoder; write it as a checkpoint where it is the best yet, or the last."""
        encode = distributed.shared(self.encoder.encode)
        score = self.selector.score(encode) if self.selector.score else None
        best = self.progress.best
        better = score is None or best is None or score > best or best != best
        if better:
            self.progress.best, self.progress.best_step = score, self.progress.step
        if _writes() and (better or self.progress.step == self.total):
            self.save(self.progress, score)
        return score

    def _save_state(self, optimizer: torch.optim.Optimizer, scaler: Any) -> None:
        progress = {
            "best": self.progress.best,
            "best_step": self.progress.best_step,
            "close_steps": self.progress.close_steps,
            "corpus": self.corpus,
            "scaler": scaler.state_dict(),
        }
        step = self.progress.step
        save_state(self.folder.states, step, self.encoder, self.parts, optimizer, progress)


class _Reader:
    """Turns steps' tensors into numbers, some steps at a time, and hands them on."""

    def __init__(self, training: Training, metrics: MetricsFile | None):
        self.training = training
        self.metrics = metrics
        # fp16's loss scaling meets infinite gradients by design, and skips those steps.
        self.guard = Guard(
            gradients=training.config.precision != "fp16",
            close_steps=training.progress.close_steps,
        )
        self.every = FLUSH.get(training.encoder.device.type, 10)
        self.waiting: list[dict[str, Any]] = []
        self.since = time.perf_counter()

    def add(self, outcome: Outcome, norm: Tensor, lr: float, *, wait: bool) -> None:
        """Note a step's numbers; with `wait` they may be read together with later ones."""
        row: dict[str, Any] = {"step": self.training.progress.step, "loss": outcome.loss}
        row |= {f"loss/{name}": value for name, value in outcome.terms.items()}
        row |= {f"gradient_share/{name}": value for name, value in outcome.shares.items()}
        row |= {"lr": lr, "gradient_norm": norm, "alignment": outcome.alignment}
        row["negative_cosine"] = outcome.negative_cosine
        row |= diagnostics(self.training.parts)
        self.waiting.append(row)
        if wait and len(self.waiting) >= self.every:
            self.flush()

    def flush(self, evaluate: Callable[[], float | None] | None = None) -> None:
        """Read, guard and write the waiting rows; `evaluate` scores the encoder after the last."""
        if not self.waiting:
            return
        rows = [{key: _number(value) for key, value in row.items()} for row in self.waiting]
        now = time.perf_counter()
        speed = len(rows) * self.training.config.batch_size / (now - self.since)
        for row in rows:
            row["sentences_per_second"] = round(speed, 1)
        for row in rows:
            try:
                self.guard.check(row)
                self.training.progress.close_steps = self.guard.close_steps
                if evaluate is not None and row is rows[-1]:
                    row["dev"] = evaluate()
            finally:  # the row on which a run breaks down is written too
                if self.metrics is not None:
                    self.metrics.write(row)
                    self.training.view(row)
        self.waiting = []
        self.since = time.perf_counter()


def _number(value: Any) -> Any:
    return value.item() if isinstance(value, Tensor) else value


def _writes() -> bool:
    return distributed.rank() == 0


def _scaled(config: StepConfig, scaler: Any) -> StepConfig:
    from dataclasses import replace

    return replace(config, scale=scaler.scale) if scaler.is_enabled() else config


@contextmanager
def _ahead(
    batch: Callable[[int], Batch], done: int, total: int
) -> Iterator[Iterator[tuple[int, Batch]]]:
    """(step, batch) for the steps that are left, each made while the one before it is trained on.

    A batch depends on its step's number only, so making it early changes nothing.
    """
    with ThreadPoolExecutor(max_workers=1) as worker:

        def steps() -> Iterator[tuple[int, Batch]]:
            coming = worker.submit(batch, done + 1) if done < total else None
            for step in range(done + 1, total + 1):
                assert coming is not None
                ready = coming.result()
                coming = worker.submit(batch, step + 1) if step < total else None
                yield step, ready

        yield steps()


@contextmanager
def _signals() -> Iterator[Callable[[], int]]:
    """SIGINT and SIGTERM become a number to ask for (0: none), so that a step is always finished.

    Several processes stop together: all are given the same answer.
    """
    seen = [0]

    def note(number: int, _frame: Any) -> None:
        seen[0] = seen[0] or number

    before = {n: signal.signal(n, note) for n in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: distributed.agree(seen[0])
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
