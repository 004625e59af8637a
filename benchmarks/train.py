"""`cse train` against sentence-transformers' trainer: SimCSE, batch 64, length 32, on processors.

    python benchmarks/train.py [--steps 30] [--rounds 3] [--threads 2]

Both train on identical pairs (sentence, sentence), scale 20, in processes of their own and in
turns; the first steps of each are left out. The peer runs in bf16 and in fp32 and its better time
counts. The floor is the time of the step's matrix products alone, at the shapes and the precision
of the run, without a token of padding and without what a [CLS] pooler never reads of the last
block: no arrangement of the rest can be faster.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from itertools import islice
from pathlib import Path
from typing import Any

from turns import ASSETS, environment

MODEL = ASSETS / "models" / "mlm-minilm-l6"
CORPUS = ASSETS / "data" / "corpora" / "wiki60k.txt"
BATCH, LENGTH, WARM = 64, 32, 3


def ours(text: str, steps: int, threads: int, precision: str) -> float:
    """Median seconds a step of our loop: batch, step, clipping, optimiser."""
    import torch

    from cse_cli.methods.resolve import resolve
    from cse_cli.training.folder import RunFolder
    from cse_cli.training.loop import Progress
    from cse_cli.training.setup import build

    torch.set_num_threads(threads)
    settings: dict[str, Any] = {"model": str(MODEL), "train_file": (text,), "select": "last"}
    settings |= {"pooler": "cls", "batch_size": BATCH, "max_length": LENGTH, "device": "cpu"}
    settings |= {"precision": precision, "max_steps": steps, "save_steps": 0}
    seconds: list[float] = []
    with tempfile.TemporaryDirectory() as name:
        folder = RunFolder(Path(name) / "run")
        folder.claim(overwrite=False, resume=False)
        training = build(resolve(settings), folder, lambda _: seconds.append(time.perf_counter()))
        training.save = lambda _progress, _score: None
        training.run()
        folder.release()
        assert training.progress == Progress(steps, None, steps)
    return step_time(seconds)


def peer(text: str, steps: int, threads: int, precision: str) -> float:
    """Median seconds a step of SentenceTransformerTrainer with the multiple-negatives loss."""
    import torch
    from datasets import Dataset
    from sentence_transformers import (
        SentenceTransformer,
        SentenceTransformerTrainer,
        SentenceTransformerTrainingArguments,
        losses,
        models,
    )
    from transformers import TrainerCallback

    torch.set_num_threads(threads)
    backbone = models.Transformer(str(MODEL), max_seq_length=LENGTH)
    pooling = models.Pooling(backbone.get_word_embedding_dimension(), pooling_mode="cls")
    model = SentenceTransformer(modules=[backbone, pooling], device="cpu")
    lines = Path(text).read_text(encoding="utf-8").splitlines()
    pairs = Dataset.from_dict({"anchor": lines, "positive": lines})
    seconds: list[float] = []

    class Clock(TrainerCallback):
        def on_step_end(self, *_: Any, **__: Any) -> None:
            seconds.append(time.perf_counter())

    with tempfile.TemporaryDirectory() as name:
        arguments = SentenceTransformerTrainingArguments(
            output_dir=name,
            per_device_train_batch_size=BATCH,
            max_steps=steps,
            learning_rate=3e-5,
            weight_decay=0.0,
            bf16=precision == "bf16",
            use_cpu=True,
            save_strategy="no",
            logging_strategy="no",
            report_to="none",
            disable_tqdm=True,
        )
        SentenceTransformerTrainer(
            model=model,
            args=arguments,
            train_dataset=pairs,
            loss=losses.MultipleNegativesRankingLoss(model, scale=20.0),
            callbacks=[Clock()],
        ).train()
    return step_time(seconds)


def floor(text: str, steps: int, threads: int, precision: str) -> float:
    """Median seconds of a step's matrix products: forward once, backward twice the work."""
    import torch
    from transformers import AutoConfig, AutoTokenizer

    torch.set_num_threads(threads)
    config = AutoConfig.from_pretrained(MODEL)
    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    lines = Path(text).read_text(encoding="utf-8").splitlines()
    ids = tokenizer(lines, truncation=True, max_length=LENGTH)["input_ids"]
    tokens = round(2 * BATCH * statistics.fmean(map(len, ids)))
    d, inner, heads = config.hidden_size, config.intermediate_size, config.num_attention_heads
    dtype = {"fp32": torch.float32, "bf16": torch.bfloat16}[precision]
    length = round(tokens / (2 * BATCH))
    w, up = torch.randn(d, d, dtype=dtype), torch.randn(d, inner, dtype=dtype)
    q = torch.randn(2 * BATCH * heads, length, d // heads, dtype=dtype)
    a = torch.randn(2 * BATCH * heads, length, length, dtype=dtype)
    x, first = torch.randn(tokens, d, dtype=dtype), torch.randn(2 * BATCH, d, dtype=dtype)
    inside = {r: torch.randn(r, inner, dtype=dtype) for r in (tokens, 2 * BATCH)}

    def block(rows: torch.Tensor) -> None:
        """One block whose output is wanted for `rows` only; each product and its two gradients."""
        for _ in range(3):  # query, key, value
            x @ w, x @ w.T, x.T @ x
        q @ q.mT, a @ q, a.mT @ q  # scores
        a @ q, q @ q.mT, a.mT @ q  # weighted values
        rows @ w, rows @ w.T, rows.T @ rows  # output
        y = inside[len(rows)]
        rows @ up, y @ up.T, rows.T @ y  # into the inner layer
        y @ up.T, rows @ up, y.T @ rows  # and out of it

    def products() -> None:
        for _ in range(config.num_hidden_layers - 1):
            block(x)
        block(first)  # a [CLS] pooler reads one row of the last block

    seconds = []
    for _ in range(steps):
        seconds.append(time.perf_counter())
        products()
    return step_time([*seconds, time.perf_counter()])


def step_time(stamps: list[float]) -> float:
    """The median time between stamps, the first few left out."""
    return statistics.median(b - a for a, b in zip(stamps[WARM:], stamps[WARM + 1 :], strict=False))


CONTESTANTS = {"cse": ours, "peer": peer, "floor": floor}


def measure(name: str, precision: str, text: Path, options: argparse.Namespace) -> float:
    """Seconds a step of one contestant, in a process of its own."""
    command = [sys.executable, __file__, "--worker", name, precision, str(text)]
    command += ["--steps", str(options.steps), "--threads", str(options.threads)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment())
    if done.returncode:
        sys.exit(f"{name} in {precision} failed:\n{done.stderr}")
    return float(json.loads(done.stdout.splitlines()[-1]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--precisions", nargs="+", default=["bf16", "fp32"])
    parser.add_argument("--worker", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        name, precision, text = options.worker
        print(CONTESTANTS[name](text, options.steps, options.threads, precision))
        return
    found: dict[tuple[str, str], list[float]] = {}
    with tempfile.TemporaryDirectory() as place:
        text = Path(place) / "text.txt"
        with CORPUS.open(encoding="utf-8") as lines:
            text.write_text("".join(islice(lines, BATCH * (options.steps + 1))), encoding="utf-8")
        for turn in range(options.rounds):
            for precision in options.precisions:
                for name in CONTESTANTS:
                    seconds = measure(name, precision, text, options)
                    found.setdefault((name, precision), []).append(seconds)
                    print(f"round {turn + 1}, {name} {precision}: {seconds:.3f} s", file=sys.stderr)
    show(found, options)


def show(found: dict[tuple[str, str], list[float]], options: argparse.Namespace) -> None:
    """The medians as a Markdown table, and the two ratios the claims are about."""
    rate = {key: BATCH / statistics.median(seconds) for key, seconds in found.items()}
    print(f"SimCSE from mlm-minilm-l6, batch {BATCH}, length {LENGTH}, {options.threads} threads\n")
    print("| precision | cse, sentences/s | sentence-transformers | floor | of the floor |")
    print("| --- | ---: | ---: | ---: | ---: |")
    for precision in options.precisions:
        mine, other, best = (rate[name, precision] for name in CONTESTANTS)
        print(f"| {precision} | {mine:.1f} | {other:.1f} | {best:.1f} | {mine / best:.0%} |")
    mine, other = (max(rate[name, p] for p in options.precisions) for name in ("cse", "peer"))
    print(f"\neach at its best precision: {mine / other:.2f}x sentence-transformers")


if __name__ == "__main__":
    main()
