"""The cache of vectors in a folder that several processes share, and what killed ones left."""

import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from cse_cli import embedding_cache as cache
from cse_cli.encoder import Encoder

TEXTS = ["a dog", "a cat"]


@pytest.fixture
def encoder(tiny_bert: Path) -> Encoder:
    return Encoder.load(str(tiny_bert), pooler="mean")


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_half_made_files_go_when_nobody_can_be_at_work_on_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CSE_CACHE", str(tmp_path))
    with cache.embedding_cache() as folder:
        for name, age in (("new.1.part", 0), ("old.2.part", cache.STALE + 60), ("old.npy", 9e6)):
            (folder / name).write_bytes(b"x")
            os.utime(folder / name, (time.time() - age,) * 2)
    assert names(folder) == ["new.1.part", "old.npy"]


def test_files_that_others_remove_or_own_end_nothing(
    encoder: Encoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stamping, removing and looking at files may fail; the vectors are given all the same."""
    monkeypatch.setenv("CSE_CACHE", str(tmp_path))
    monkeypatch.setattr(cache, "LIMIT", 1)

    def refuse(*_: Any, **__: Any) -> None:
        raise PermissionError(1, "Operation not permitted")

    with cache.embedding_cache() as folder:
        plain = cache.CachedEncoder(encoder, folder)(TEXTS)
        (folder / "gone.npy").symlink_to(folder / "nowhere")  # as if it went before it is looked at
        monkeypatch.setattr(os, "utime", refuse)
        monkeypatch.setattr(Path, "unlink", refuse)
        again = cache.CachedEncoder(encoder, folder)
        assert torch.equal(again(TEXTS), plain)
        assert again.encoded == 0


@pytest.mark.parametrize("broken", ["load", "replace"])
def test_a_file_that_cannot_be_read_or_put_in_its_place(
    encoder: Encoder,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    broken: str,
) -> None:
    plain = encoder.encode(TEXTS)
    cached = cache.CachedEncoder(encoder, tmp_path)
    if broken == "load":
        cached(TEXTS)
        cached.encoded = 0
    found = np.load

    def load(path: Path, *, mmap_mode: str, **rest: Any) -> Any:
        if mmap_mode == "r":
            raise PermissionError(13, "Permission denied")
        return found(path, mmap_mode=mmap_mode, **rest)

    def replace(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    with monkeypatch.context() as patch:
        patch.setattr(np, "load", load) if broken == "load" else patch.setattr(
            os, "replace", replace
        )
        assert torch.equal(cached(TEXTS), plain)
    assert cached.encoded == 2
    assert "damaged" not in capsys.readouterr().err
    assert len(names(tmp_path)) == (1 if broken == "load" else 0)


def test_two_processes_of_one_number_do_not_share_a_file(
    encoder: Encoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in two containers: each finishes its own."""
    plain, encode = encoder.encode(TEXTS), Encoder.encode
    inner = cache.CachedEncoder(encoder, tmp_path)
    nested: list[torch.Tensor] = []

    def meanwhile(self: Encoder, texts: list[str], **rest: bool) -> torch.Tensor:
        if not nested:
            nested.append(torch.empty(0))
            nested.append(inner(texts))
        return encode(self, texts, **rest)

    monkeypatch.setattr(Encoder, "encode", meanwhile)
    outer = cache.CachedEncoder(encoder, tmp_path)
    assert torch.equal(outer(TEXTS), plain)
    assert torch.equal(nested[1], plain)
    assert len(names(tmp_path)) == 1
