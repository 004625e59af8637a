"""Freed memory is kept by the process, but not without the setting or against the user's own."""

import os
import platform
import subprocess
import sys

import pytest

HELD = """
import sys
import torch
from cse_cli.memory import keep_freed_memory
if sys.argv[1] == "keep":
    print(keep_freed_memory())
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
    def held(how: str, **environment: str) -> list[str]:
        command, environment = [sys.executable, "-c", HELD, how], os.environ | environment
        run = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
        return run.stdout.split()

    told, kept = held("keep")
    assert told == "True"
    assert int(kept) > 140
    (given_back,) = held("not")
    assert int(given_back) < 40
    told, kept = held("keep", MALLOC_MMAP_THRESHOLD_=str(1 << 20))  # the user's word goes first
    assert told == "False"
    assert int(kept) < 40
