"""The private memory of a process while it runs: what it holds itself, its mapped files apart."""

import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path


def private_memory(pid: int | str = "self") -> int:
    """RssAnon of a process in bytes; 0 once it has ended."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    for line in status.splitlines():
        if line.startswith("RssAnon"):
            return int(line.split()[1]) * 1024
    return 0


def watched(
    command: Sequence[str], environment: Mapping[str, str], every: float = 0.02
) -> tuple[str, int]:
    """(standard output, peak of the private memory in bytes) of a command.

    SystemExit where it fails.
    """
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    peak = 0
    while process.poll() is None:
        peak = max(peak, private_memory(process.pid))
        time.sleep(every)
    assert process.stdout is not None
    output = process.stdout.read()
    if process.returncode:
        raise SystemExit(f"{' '.join(command)}: exit {process.returncode}")
    return output, peak
