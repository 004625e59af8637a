"""Faults that training survives, counted: kills, full and read-only disks, damaged states, signals.

    python benchmarks/faults.py

runs the tests that inject them, the thirty kills included, and prints how many of each kind there
were and whether every one was survived.
"""

import subprocess
import sys
import xml.etree.ElementTree as xml
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).parents[1]
FILES = ("tests/test_faults.py", "tests/test_kill.py", "tests/slow/test_kill.py")


def main() -> None:
    with TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        words = [sys.executable, "-m", "pytest", "-o", "addopts=-q", "-s", *FILES]
        done = subprocess.run(
            [*words, f"--junit-xml={report}"], cwd=ROOT, capture_output=True, text=True
        )
        cases = xml.parse(report).getroot().iter("testcase")
        ends = [(case.get("name"), case.find("failure"), case.find("skipped")) for case in cases]
    print("| fault | outcome |\n| --- | --- |")
    for name, failure, skipped in ends:
        outcome = "not survived" if failure is not None else "skipped here"
        survived = failure is None and skipped is None
        print(f"| {str(name)[5:].replace('_', ' ')} | {'survived' if survived else outcome} |")
    kills = [line for line in done.stdout.splitlines() if "bit-identical" in line]
    good = sum(failure is None and skipped is None for _, failure, skipped in ends)
    print(f"\n{good} of {len(ends)} survived; {kills[0] if kills else 'no kills were counted'}")
    sys.exit(done.returncode)


if __name__ == "__main__":
    main()
