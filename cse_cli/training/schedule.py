"""The learning rate of a step, as a pure function: nothing to save, nothing to restore."""

import math


def warmup_steps(warmup: float, total: int) -> int:
    """`--warmup`: below 1 a share of all steps, else a number of steps."""
    return round(warmup * total) if warmup < 1 else int(warmup)


def rate(kind: str, step: int, total: int, warmup: int) -> float:
    """The factor on the peak learning rate at `step` (1 … total).

    Rises linearly over `warmup` steps; then `constant`, or `linear` or half a `cosine` down to 0
    after the last step.
    """
    if step <= warmup:
        return step / max(warmup, 1)
    if kind == "constant":
        return 1.0
    done = (step - 1 - warmup) / max(total - warmup, 1)
    return 1 - done if kind == "linear" else (1 + math.cos(math.pi * done)) / 2
