"""Approximate nearest neighbours through faiss: a navigable graph, or an inverted file.

    hnsw     Malkov and Yashunin (2018): greedy walks on a layered graph of near neighbours
    ivfpq    Jegou et al. (2011): product-quantised codes in the lists of a coarse clustering

The graph holds its vectors in half precision, which makes its steps cheaper; the index rescores
what it proposes with the vectors themselves.
"""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cse_cli.errors import OutputError, UsageError
from cse_cli.index.records import corrupt
from cse_cli.progress import track

LINKS = 16  # of a vector in the graph (M); twice as many on its lowest layer
BUILD_EFFORT = 80  # candidates looked at when a vector is linked (efConstruction)
BLOCK = 1 << 14  # vectors added at a time
SPARE = 8  # more than wanted, since half precision may swap neighbours
CLUSTER_SAMPLE = 64  # training vectors a list
LEAST_SAMPLE = 39  # below which faiss warns that a cluster is badly placed
CANDIDATES_PER_LIST = 4


class Approximate:
    """A faiss index of one shard: proposes vectors that are probably a query's nearest."""

    def __init__(self, path: Path, kind: str, shape: tuple[int, int]):
        faiss = require_faiss(kind)
        try:
            self._index = faiss.read_index(str(path))
        except RuntimeError:
            raise corrupt(path) from None
        if (self._index.ntotal, self._index.d) != shape:
            raise corrupt(path)
        self._kind = kind

    def propose(self, queries: Tensor, wanted: int, effort: int) -> np.ndarray:
        """Places (Q, C) of candidates, at least `wanted` columns, -1 where there are no more.

        `effort` is the graph's efSearch; an inverted file gives that many candidates, from one
        list for every four.
        """
        faiss = require_faiss(self._kind)
        faiss.omp_set_num_threads(torch.get_num_threads())
        effort = min(max(effort, wanted + SPARE), self._index.ntotal)
        count = effort
        if self._kind == "hnsw":
            self._index.hnsw.efSearch = effort
            count = min(wanted + SPARE, effort)
        else:
            self._index.nprobe = min(effort // CANDIDATES_PER_LIST + 1, self._index.nlist)
        return self._index.search(queries.numpy(), count)[1]


def write_approximate(vectors: np.ndarray, path: Path, kind: str) -> None:
    """Build the faiss index `kind` over `vectors` (N, D) and write it to `path`."""
    faiss = require_faiss(kind)
    faiss.omp_set_num_threads(torch.get_num_threads())
    index = _graph(faiss, vectors) if kind == "hnsw" else _inverted_file(faiss, vectors)
    blocks = range(0, len(vectors), BLOCK)
    for start in track(blocks, len(blocks), f"building {kind}"):
        index.add(vectors[start : start + BLOCK])
    try:
        faiss.write_index(index, str(path))
    except RuntimeError as error:
        raise OutputError(f"cannot write {path}: {str(error).splitlines()[0]}") from None


def require_faiss(kind: str) -> Any:
    """The faiss module; UsageError with the remedy where it is not installed."""
    try:
        import faiss
    except ImportError:
        raise UsageError(
            f"--index-type {kind} needs faiss: pip install 'cse-cli[faiss]'; "
            "exact, int8 and binary do without"
        ) from None
    return faiss


def _graph(faiss: Any, vectors: np.ndarray) -> Any:
    half = faiss.ScalarQuantizer.QT_fp16
    index = faiss.IndexHNSWSQ(vectors.shape[1], half, LINKS, faiss.METRIC_INNER_PRODUCT)
    index.hnsw.efConstruction = BUILD_EFFORT
    index.train(vectors[:1])  # half precision learns nothing, but faiss wants to be asked
    return index


def _inverted_file(faiss: Any, vectors: np.ndarray) -> Any:
    n, d = vectors.shape
    lists = min(int(4 * n**0.5), n // LEAST_SAMPLE)
    parts = max(m for m in range(1, max(1, d // 4) + 1) if d % m == 0)  # bytes of a code
    metric = faiss.METRIC_INNER_PRODUCT
    index = faiss.IndexIVFPQ(faiss.IndexFlatIP(d), d, lists, parts, 8, metric)
    count = min(n, max(CLUSTER_SAMPLE * lists, LEAST_SAMPLE * 256))
    sample = np.random.default_rng(0).choice(n, count, replace=False)
    index.train(vectors[np.sort(sample)])
    return index
