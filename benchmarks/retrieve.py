"""Retrieval at size: a million vectors against faiss, and 40,459 captions indexed from text.

    python benchmarks/retrieve.py                      # about 15 minutes on two cores, 6 GB
    python benchmarks/retrieve.py --vectors 100000     # smaller
    python benchmarks/retrieve.py --folder DIR         # keep the index for the next time

Vectors are caption embeddings of all-MiniLM-L6-v2, each copied with noise of 0.3 of its length, so
that a vector has near neighbours (cosine about 0.92 between copies, 0.67 to the next caption);
queries are captions with noise of their own. Exact search and faiss's flat index are timed in
turns, with the same threads; every other kind is compared with exact search in the same run.
"""

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from memory import watched
from turns import ASSETS, MODEL, environment

CAPTIONS = ASSETS / "data" / "corpora" / "flickr8k_captions.txt"
K, NOISE = 10, 0.3


class Jittered:
    """Stands for an encoder: "row 17" is the vector of the 17th row, made on the spot."""

    name, pooler, max_length, fingerprint = "jittered captions", "mean", 256, "jittered"

    def __init__(self, captions: np.ndarray):
        self.captions, self.dimension = captions, captions.shape[1]

    def encode(self, texts: Sequence[str]) -> torch.Tensor:
        rows = np.array([int(text.split()[1]) for text in texts])
        return jitter(self.captions[rows % len(self.captions)], seed=int(rows[0]))


def jitter(vectors: np.ndarray, seed: int) -> torch.Tensor:
    """The vectors with Gaussian noise of `NOISE` of their length."""
    noise = np.random.default_rng(seed).standard_normal(vectors.shape, dtype=np.float32)
    return torch.from_numpy(vectors + NOISE / vectors.shape[1] ** 0.5 * noise)


def seconds(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def caption_vectors() -> np.ndarray:
    from cse_cli.encoder import Encoder

    lines = CAPTIONS.read_text(encoding="utf-8").splitlines()
    vectors = torch.nn.functional.normalize(Encoder.load(str(MODEL)).encode(lines), dim=1)
    return vectors.numpy()


def million(folder: Path, options: argparse.Namespace) -> None:
    """Every kind of index over the jittered captions, and faiss's flat index."""
    from cse_cli.index import Corpus, Index, Searcher, build_index

    captions = caption_vectors()
    names = folder / "rows.txt"
    names.write_text("".join(f"row {row}\n" for row in range(options.vectors)))
    place = folder / f"index-{options.vectors}"
    build_index(place, Corpus.scan(str(names)), Jittered(captions))
    index = Index.open(place, verify=False)
    draw = np.random.default_rng(0).permutation(len(captions))[: options.queries]
    queries = torch.nn.functional.normalize(jitter(captions[draw], seed=2**32 - 1), dim=1)
    exact = Searcher(index, verify=False)
    wanted = exact.search(queries, K).rows
    base = compare_exact(exact, queries, options.rounds)
    print(
        f"\n| {len(index)} x {index.dimension} | bytes a vector | made in, s | recall@{K} | ",
        end="",
    )
    print(
        "queries/s | of exact | one query, ms |\n| --- | ---: | ---: | ---: | ---: | ---: | ---: |"
    )
    for kind in options.kinds:
        made = seconds(lambda kind=kind: Searcher(index, kind=kind, verify=False))
        searcher = Searcher(index, kind=kind, verify=False)
        found = searcher.search(queries, K).rows
        pairs = zip(found.tolist(), wanted.tolist(), strict=True)
        recall = statistics.fmean(len(set(a) & set(b)) / K for a, b in pairs)
        runs = [seconds(lambda s=searcher: s.search(queries, K)) for _ in range(options.rounds)]
        rate = len(queries) / statistics.median(runs)
        one = [seconds(lambda s=searcher, i=i: s.search(queries[i : i + 1], K)) for i in range(20)]
        path = index.shards[0].folder / f"{kind}.bin"
        size = path.stat().st_size / len(index) if path.exists() else 4 * index.dimension
        print(
            f"| {kind} | {size:.0f} | {made:.0f} | {recall:.4f} | {rate:.0f} | {rate / base:.1f}x "
            f"| {1e3 * statistics.median(one):.1f} |",
            flush=True,
        )


def compare_exact(exact: "Searcher", queries: torch.Tensor, rounds: int) -> float:  # noqa: F821
    """Time exact search and faiss's flat index in turns; queries a second of ours."""
    import faiss

    faiss.omp_set_num_threads(torch.get_num_threads())
    flat = faiss.IndexFlatIP(exact.index.dimension)
    for shard in exact.index.shards:
        flat.add(shard.vectors)
    ours, theirs = [], []
    for _ in range(rounds):
        ours.append(seconds(lambda: exact.search(queries, K)))
        theirs.append(seconds(lambda: flat.search(queries.numpy(), K)))
    our, their = statistics.median(ours), statistics.median(theirs)
    same = (exact.search(queries, K).rows == flat.search(queries.numpy(), K)[1]).mean()
    print(
        f"| {len(exact.index)} x {exact.index.dimension}, {len(queries)} queries | cse exact, s | ",
        end="",
    )
    print("faiss flat, s | cse / faiss | same rows |\n| --- | ---: | ---: | ---: | ---: |")
    print(f"| top {K} | {our:.2f} | {their:.2f} | {our / their:.2f} | {same:.5f} |", flush=True)
    print("rounds:", [round(s, 2) for s in ours], [round(s, 2) for s in theirs], file=sys.stderr)
    return len(queries) / our


def captions_from_text(folder: Path) -> None:
    """Index the captions by the command, watching its memory; then time single queries."""
    from cse_cli.encoder import Encoder
    from cse_cli.index import Index, Searcher

    command = [sys.executable, "-m", "cse_cli"]
    one = folder / "one.txt"
    one.write_text("A dog runs .\n")
    _, alone = watched([*command, "encode", str(MODEL), str(one)], environment())
    place = folder / "captions"
    build = [*command, "retrieve", str(MODEL), "--corpus", str(CAPTIONS), "--index", str(place)]
    begun = time.perf_counter()
    _, peak = watched(build, environment())
    built = time.perf_counter() - begun
    encoder = Encoder.load(str(MODEL))
    opened = seconds(lambda: Index.open(place))
    searcher = Searcher(Index.open(place))
    texts = CAPTIONS.read_text(encoding="utf-8").splitlines()[::200]
    one_by_one = sorted(
        seconds(lambda text=text: searcher.distinct(encoder.encode([text]), K)) for text in texts
    )
    print("\n| captions | |\n| --- | ---: |")
    print(f"| indexed from text | {built:.0f} s |")
    print(f"| private memory beyond encoding one sentence | {(peak - alone) / 2**20:.0f} MiB |")
    print(f"| opening, hashes compared | {1e3 * opened:.0f} ms |")
    print(f"| query with its encoding, median | {1e3 * statistics.median(one_by_one):.1f} ms |")
    print(f"| query, 99th percentile | {1e3 * one_by_one[int(0.99 * len(texts))]:.1f} ms |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--vectors", type=int, default=1_000_000)
    parser.add_argument("--queries", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--kinds", nargs="+", default=["exact", "hnsw", "ivfpq", "int8", "binary"])
    parser.add_argument("--folder", type=Path, help="kept afterwards; else a temporary one")
    parser.add_argument("--skip-captions", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        million(folder, options)
        if not options.skip_captions:
            captions_from_text(folder)


if __name__ == "__main__":
    main()
