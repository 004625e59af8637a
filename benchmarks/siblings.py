"""Does a caption find the other captions of its image? 40,459 Flickr8k captions, five an image.

    python benchmarks/siblings.py [CKPT ...] [-- options of cse retrieve]

Every ordered pair of captions of one image is a query (161,832): recall@10 is the share of the
other captions that come within the first ten. Captions are in runs of five, but one caption is
missing, at rows 37571 to 37574, which are four; by a plain count of five every later image would
be wrong. So the labels are written to a file for `cse retrieve --eval … --groups FILE`.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

from turns import ASSETS, MODEL, environment

CAPTIONS = ASSETS / "data" / "corpora" / "flickr8k_captions.txt"
ROWS, IMAGE, SHORT = 40_459, 5, 7514  # the image of number SHORT has one caption less


def labels() -> list[int]:
    """The image of every row."""
    missing = SHORT * IMAGE + IMAGE - 1
    return [(row + (row >= missing)) // IMAGE for row in range(ROWS)]


def main() -> None:
    words = sys.argv[1:]
    rest = words[words.index("--") + 1 :] if "--" in words else []
    models = words[: words.index("--")] if "--" in words else words
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "images.txt"
        path.write_text("".join(f"{label}\n" for label in labels()))
        command = [sys.executable, "-m", "cse_cli", "retrieve", *(models or [str(MODEL)])]
        command += ["--eval", str(CAPTIONS), "--groups", str(path), *rest]
        subprocess.run(command, check=True, env=environment())


if __name__ == "__main__":
    main()
