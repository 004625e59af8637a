"""Make the built-in demo: `python scripts/make_demo.py` writes cse_cli/demo/ anew.

A grammar (scripts/demo/) says sentences and scored pairs; a WordPiece vocabulary is trained on
sentences of it, and a 12-layer BERT by masked-language modelling. Everything is drawn from SEED, so
text comes back byte for byte, and weights do on the same machine with the same threads.
"""

import argparse
import shutil
import time
from pathlib import Path

import torch
from demo.corpus import pairs, sentences
from demo.lexicon import load_lexicon
from demo.model import new_model, pretrain, save, train_tokenizer

CARD = Path(__file__).with_name("demo") / "CARD.md"
OUT = Path(__file__).parents[1] / "cse_cli" / "demo"
SEED = 0
SENTENCES = 5120  # 80 steps of 64
READ = 30_000  # sentences of the grammar that the base reads: the packaged ones are the first
PAIRS = 400  # of each split


def write_text(out: Path) -> list[str]:
    """Write README.md, sentences.txt and similarity.tsv; returns all that the base shall read."""
    lexicon = load_lexicon()
    said = sentences(lexicon, READ, f"{SEED}/sentences")
    lines = ["split\tscore\tsentence1\tsentence2"]
    taken = set(said)
    for split in ("dev", "test"):
        drawn = pairs(lexicon, PAIRS, f"{SEED}/{split}", taken)
        taken.update(sentence for _, *both in drawn for sentence in both)
        lines += [f"{split}\t{score}\t{a}\t{b}" for score, a, b in drawn]
    out.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(CARD, out / "README.md")
    _write(out / "sentences.txt", said[:SENTENCES])
    _write(out / "similarity.tsv", lines)
    return said


def write_model(out: Path, said: list[str], steps: int) -> None:
    """Train the vocabulary and the base on `said` and write them as a transformers folder."""
    tokenizer = train_tokenizer(said)
    model = new_model(len(tokenizer), SEED)
    started = time.monotonic()
    for step, loss in pretrain(model, tokenizer, said, steps=steps, seed=SEED):
        if step % 100 == 0:
            print(f"step {step}: loss {loss:.2f}, {time.monotonic() - started:.0f} s", flush=True)
    save(model, tokenizer, out)


def _write(path: Path, lines: list[str]) -> None:
    path.write_text("\n".join(lines) + "\n", encoding="utf-8", newline="\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, default=OUT, help="folder (default: cse_cli/demo)")
    parser.add_argument("--steps", type=int, default=1500, help="of masked-language modelling")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--text-only", action="store_true", help="leave the model as it is")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    said = write_text(options.out)
    if not options.text_only:
        write_model(options.out / "model", said, options.steps)


if __name__ == "__main__":
    main()
