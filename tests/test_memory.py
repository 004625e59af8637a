"""Freed memory is kept by the process, and without the setting it is not."""

import platform
import subprocess
import sys

import pytest

HELD = """
import sys
import torch
from cse_cli.memory import keep_freed_memory
if sys.argv[1] == "keep":
    assert keep_freed_memory()
def resident():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS"))
before = resident()
buffers = [torch.ones(5 << 20) for _ in range(8)]
del buffers
print((resident() - before) // 1024)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the setting is glibc's")
def test_eight_buffers_of_20_mib_stay_with_the_process() -> None:
    def mib(how: str) -> int:
        command = [sys.executable, "-c", HELD, how]
        return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)

    assert mib("keep") > 140
    assert mib("not") < 40
