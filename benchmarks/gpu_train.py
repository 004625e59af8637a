"""Training speed on a GPU: a BERT-sized encoder of random weights, sentences of wiki60k's lengths.

    python benchmarks/gpu_train.py [--size base] [--batch 64] [--steps 2000] [--compile] …

needs a CUDA device and nothing else: token rows are drawn by wiki60k's length distribution (in the
script, so that no file is needed), cut at 32. Prints sentences a second, the time of 1,000,000
sentences, and model-FLOPs utilisation: 6 x parameters of the blocks x tokens, plus attention, over
the chip's dense bf16 peak (--peak, in TFLOP/s). With --profile the slowest kernels follow.
"""

import argparse
import sys
import time
from typing import Any

SIZES = {"base": (768, 12, 12), "large": (1024, 24, 16)}  # width, blocks, heads
SENTENCES, VOCABULARY = 1_000_000, 30522
# Share of wiki60k's sentences with at most so many tokens, special ones included (then all).
LENGTHS = {8: 0.017, 12: 0.060, 16: 0.143, 20: 0.253, 24: 0.364, 28: 0.489, 31: 0.589}
PEAKS = {"H100": 989.0, "H200": 989.0, "A100": 312.0, "L40S": 362.0, "4090": 165.0}


def encoder(size: str, length: int) -> Any:
    """An `Encoder` of random weights behind the tanh head, on the GPU."""
    from transformers import BertConfig, BertModel

    from cse_cli.encoder import Encoder
    from cse_cli.heads import build_head

    width, blocks, heads = SIZES[size]
    config = BertConfig(
        vocab_size=VOCABULARY,
        hidden_size=width,
        num_hidden_layers=blocks,
        num_attention_heads=heads,
        intermediate_size=4 * width,
    )
    backbone = BertModel(config, add_pooling_layer=False)
    made = Encoder(backbone, None, name=size, pooler="cls", max_length=length)
    made.head = build_head("tanh", width)
    return made.cuda().train()


def batches(batch: int, length: int, count: int) -> list[Any]:
    """`count` batches of random token rows with wiki60k's lengths."""
    import numpy as np
    import torch

    from cse_cli.data.tokens import Tokens
    from cse_cli.training.step import Batch

    draw = np.random.default_rng(0)
    tops, shares = [3, *LENGTHS, length], [0.0, *LENGTHS.values(), 1.0]
    made = []
    for step in range(count):
        lengths = np.interp(draw.random(batch), shares, tops).round().clip(3, length)
        ids = torch.from_numpy(draw.integers(1000, VOCABULARY, (batch, length)))
        sizes = torch.from_numpy(lengths.astype(np.int64))
        tokens = Tokens(ids, sizes, torch.zeros(batch, length, dtype=torch.bool))
        made.append(Batch(step=step, tokens=tokens, moved=tokens))
    return made


def flops(size: str, tokens: float, rows: float) -> float:
    """Multiplications and additions of a step's forward and backward pass over `tokens` tokens."""
    width, blocks, _ = SIZES[size]
    weights = blocks * 12 * width * width
    return 6 * weights * tokens + 12 * blocks * width * tokens * tokens / rows


def train(options: argparse.Namespace) -> None:
    """Train, time the steps behind the first tenth, and print one row."""
    import torch

    from cse_cli.compiled import compile_encoder
    from cse_cli.training.precision import autocast
    from cse_cli.training.step import StepConfig, training_step

    model = encoder(options.size, options.length)
    if options.compile:
        compile_encoder(model, options.length)
    optimizer = torch.optim.AdamW(model.parameters(), 3e-5, fused=True)
    config = StepConfig(autocast=autocast(options.precision, "cuda"), chunk_size=options.chunk)
    rows = batches(options.batch, options.length, 64)

    def step(number: int) -> None:
        training_step(rows[number % len(rows)], model, [], config)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    warm = max(options.steps // 10, 10)
    for number in range(warm):
        step(number)
    torch.cuda.synchronize()
    begun = time.perf_counter()
    for number in range(options.steps):
        step(number)
    torch.cuda.synchronize()
    seconds = (time.perf_counter() - begun) / options.steps
    tokens = 2 * sum(int(b.tokens.lengths.sum()) for b in rows) / len(rows)
    used = flops(options.size, tokens, 2 * options.batch) / seconds / 1e12
    speed = options.batch / seconds
    peak = options.peak or chip_peak(torch.cuda.get_device_name())
    share = f"{used / peak:.1%}" if peak else "unknown (--peak)"
    print("| encoder | batch | precision | compiled | sentences/s | 1,000,000 in | MFU | memory |")
    print("| --- | ---: | --- | --- | ---: | ---: | ---: | ---: |")
    print(
        f"| BERT-{options.size} | {options.batch} | {options.precision} | "
        f"{'yes' if options.compile else 'no'} | {speed:.0f} | {SENTENCES / speed:.0f} s | "
        f"{share} | {torch.cuda.max_memory_allocated() / 2**30:.1f} GiB |"
    )
    if options.profile:
        profile(step)


def chip_peak(name: str) -> float | None:
    """Dense bf16 TFLOP/s of a known chip, by its makers."""
    return next((peak for chip, peak in PEAKS.items() if chip in name), None)


def profile(step: Any) -> None:
    """The kernels that take longest, over ten steps."""
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as watch

    with watch(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as found:
        for number in range(10):
            step(number)
    print(found.key_averages().table(sort_by="self_cuda_time_total", row_limit=25))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", choices=sorted(SIZES), default="base")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--length", type=int, default=32)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--chunk", type=int)
    parser.add_argument("--precision", choices=("bf16", "fp16", "fp32"), default="bf16")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--peak", type=float, help="the chip's dense bf16 TFLOP/s")
    options = parser.parse_args()
    import torch

    if not torch.cuda.is_available():
        sys.exit("error: this benchmark needs a CUDA device, and there is none here")
    train(options)


if __name__ == "__main__":
    main()
