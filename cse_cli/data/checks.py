"""One thing that `cse data verify` counted, and whether it is what it should be."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

OK, FAILED, ABSENT, NOTE = "ok", "FAILED", "absent", "note"


@dataclass(frozen=True)
class Check:
    """`found` against `expected` (None: nothing to count, nothing to expect).

    `status` is ok, FAILED, absent (data that nothing here needs) or note (worth a look).
    """

    task: str
    part: str
    found: int | None
    expected: int | None
    status: str
    problem: str = ""

    def as_dict(self) -> dict[str, Any]:
        """The check as one flat row."""
        return asdict(self)


def compare(task: str, part: str, found: int, expected: int | None) -> Check:
    """A number of rows against the one it should be; where none is known, there must be some."""
    if found == expected or (expected is None and found):
        return Check(task, part, found, expected, OK)
    problem = "it is empty" if expected is None else f"{found - expected:+d} rows"
    return Check(task, part, found, expected, FAILED, problem)


def failures(checks: Iterable[Check]) -> list[Check]:
    """Those that are not as they should be."""
    return [check for check in checks if check.status == FAILED]
