"""Freed memory is kept: passes after the first take no new pages from the system."""

import platform
import subprocess
import sys

import pytest

PAGES = """
import resource, sys
import torch
from cse_cli.memory import keep_freed_memory
torch.set_num_threads(1)
if sys.argv[1] == "keep":
    assert keep_freed_memory()
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
def work():
    for n in (1 << 18, 3 << 19, 1 << 21):
        for _ in range(20):
            x = torch.ones(n)
            y, z = x * 2, torch.ones(n // 4)
            del x
            w = y + 1
            del w, y, z
work()
before = faults()
work()
print(faults() - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the setting is glibc's")
def test_a_second_pass_takes_no_new_pages() -> None:
    def faults(how: str) -> int:
        command = [sys.executable, "-c", PAGES, how]
        return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)

    kept, plain = faults("keep"), faults("not")
    assert kept < 100
    assert plain > 1000  # else there is nothing to gain, and the module can go
