"""Work that `torchrun` divides: which process this is, and which rows are its own.

Only the variables that torchrun sets are read. Processes that write files of their own need no
other word from each other, so nothing here joins a process group.
"""

import os

from cse_cli.errors import UsageError


def process() -> tuple[int, int]:
    """(rank, world): this process's number and how many there are; (0, 1) without torchrun."""
    try:
        rank, world = (int(os.environ.get(name, one)) for name, one in _VARIABLES)
    except ValueError:
        rank, world = 0, 0
    if not 0 <= rank < world:
        told = ", ".join(f"{name}={os.environ.get(name)}" for name, _ in _VARIABLES)
        raise UsageError(f"{told} is no process of any; start several with torchrun")
    return rank, world


def share(rows: int, rank: int, world: int) -> range:
    """The rows of process `rank`: runs in rank order, whose lengths differ by at most one."""
    return range(rows * rank // world, rows * (rank + 1) // world)


_VARIABLES = (("RANK", "0"), ("WORLD_SIZE", "1"))
