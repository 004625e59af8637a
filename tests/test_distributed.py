"""Two processes of 32 equal one of 64, for every ingredient; and a run under torchrun."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from cse_cli import checkpoint
from cse_cli.errors import UsageError
from cse_cli.methods import INGREDIENTS
from cse_cli.training import distributed
from tests.conftest import make_tiny_bert
from tests.runs import SMALL, environment, last_state, rows, same_state
from tests.two_processes import BATCHNORM, NONE

NAMES = [NONE, BATCHNORM, *INGREDIENTS]
ROOT = Path(__file__).parents[1]


def run(words: list[object], *, processes: int, cwd: Path) -> "subprocess.CompletedProcess[str]":
    """`python -m …` as one process, or as several under torchrun."""
    start = [sys.executable, "-m"]
    if processes > 1:
        start += ["torch.distributed.run", "--standalone", "--nproc-per-node", str(processes), "-m"]
    return subprocess.run(
        [*start, *map(str, words)],
        cwd=cwd,
        env=environment(PYTHONPATH=str(ROOT)),
        capture_output=True,
        text=True,
        timeout=300,
    )


@pytest.fixture(scope="module")
def one_and_two(
    tmp_path_factory: pytest.TempPathFactory, sentences: list[str]
) -> tuple[Path, Path]:
    """Folders with what one process and what two measured, a file for each ingredient."""
    place = tmp_path_factory.mktemp("processes")
    model = make_tiny_bert(place / "model", layers=4, dropout=0.0)
    corpus, triplets = place / "corpus.txt", place / "triplets.csv"
    corpus.write_text("\n".join(sentences) + "\n", encoding="utf-8")
    third = [",".join((a, sentences[i - 1], sentences[i - 2])) for i, a in enumerate(sentences)]
    triplets.write_text("\n".join(["a,b,c", *third]) + "\n", encoding="utf-8")
    folders = []
    for processes in (1, 2):
        out = place / f"by-{processes}"
        out.mkdir()
        words = ["tests.two_processes", model, corpus, triplets, out, *NAMES]
        done = run(words, processes=processes, cwd=place)
        assert done.returncode == 0, done.stderr
        folders.append(out)
    return folders[0], folders[1]


@pytest.mark.parametrize("name", NAMES)
def test_two_processes_equal_one(one_and_two: tuple[Path, Path], name: str) -> None:
    one, two = (load_file(folder / f"{name}.safetensors") for folder in one_and_two)
    assert one.keys() == two.keys()
    for step in ("1", "2"):
        assert two[f"{step}/loss"].item() == pytest.approx(one[f"{step}/loss"].item(), rel=1e-5)
        keys = [key for key in one if key.startswith(f"{step}/gradient/")]
        first, second = (torch.cat([found[k].flatten() for k in keys]) for found in (one, two))
        assert first.norm() > 0
        assert (first - second).norm() <= 1e-5 * first.norm()
        for key in (key for key in one if key.startswith(f"{step}/diagnostics/")):
            assert two[key].item() == pytest.approx(one[key].item(), rel=1e-5, nan_ok=True), key


def test_what_is_counted_row_by_row_is_counted_on_both(one_and_two: tuple[Path, Path]) -> None:
    for name, key in (("replaced-tokens", "rtd_accuracy_kept"), ("masked-lm", "mlm_accuracy")):
        assert f"1/diagnostics/{key}" in load_file(one_and_two[1] / f"{name}.safetensors")


def test_the_second_step_differs_from_the_first(one_and_two: tuple[Path, Path]) -> None:
    found = load_file(one_and_two[1] / f"{NONE}.safetensors")
    assert found["1/loss"] != found["2/loss"]


def test_a_run_under_torchrun_prints_and_writes_once(
    tiny_bert: Path, corpus_file: Path, tmp_path: Path
) -> None:
    given = ["cse_cli", "train", "--model", tiny_bert, "--train-file", corpus_file, *SMALL]
    given += ["--select", "uniformity", "--eval-steps", 2, "--save-steps", 2]
    done = run([*given, "--max-steps", 4, "--out", "whole"], processes=2, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "whole\n"
    assert done.stderr.count("step 4/4") == 1
    whole = tmp_path / "whole"
    assert [row["step"] for row in rows(whole)] == [1, 2, 3, 4]
    assert checkpoint.damage(whole, hashes=True) is None
    random = load_file(last_state(whole) / "random.safetensors")["cpu"]
    assert len(random) == 2
    assert not torch.equal(random[0], random[1])  # each process draws its own dropout

    # Resuming from the state of step 2 gives every process its own random state back.
    text = (whole / "train" / "metrics.jsonl").read_text()
    config = (whole / "train" / "config.toml").read_text()
    cut = tmp_path / "cut" / "train"
    cut.mkdir(parents=True)
    (cut / "metrics.jsonl").write_text(text)
    (cut / "config.toml").write_text(config)
    (cut / "state").mkdir()
    (whole / "train" / "state" / "step-2").rename(cut / "state" / "step-2")
    done = run(["cse_cli", "train", "--resume", "--out", "cut"], processes=2, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert same_state(tmp_path / "cut", whole)
    kept = [[json.loads(line)["loss"] for line in text.splitlines()]]
    assert [row["loss"] for row in rows(tmp_path / "cut")] == kept[0]


def test_an_error_of_one_process_ends_all(
    tiny_bert: Path, corpus_file: Path, tmp_path: Path
) -> None:
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "letter.txt").write_text("dear")
    given = ["cse_cli", "train", "--model", tiny_bert, "--train-file", corpus_file, *SMALL]
    done = run([*given, "--select", "last", "--out", "taken"], processes=2, cwd=tmp_path)
    assert done.returncode != 0
    assert done.stderr.count("holds files that are not a run") == 1
    assert "a bug in cse" not in done.stderr
    assert done.stdout == ""


def test_a_batch_that_cannot_be_shared_is_refused() -> None:
    from cse_cli.cli.training import check_share

    check_share(64, 4)
    with pytest.raises(UsageError, match="multiple of 3"):
        check_share(64, 3)


def test_shared_encoding_gives_every_process_all_vectors(monkeypatch: pytest.MonkeyPatch) -> None:
    def encode(texts: list[str]) -> torch.Tensor:
        return torch.tensor([[float(len(text))] for text in texts]).view(-1, 1)

    assert distributed.shared(encode) is encode
    texts = ["a", "bbb", "cc", "a", "dddd", "eeeee"]
    monkeypatch.setattr(distributed, "world", lambda: 2)
    parts: dict[int, torch.Tensor] = {}
    for rank in (0, 1):  # what each process would hand in
        monkeypatch.setattr(distributed, "rank", lambda rank=rank: rank)
        monkeypatch.setattr(distributed, "gather", lambda rows: torch.cat([rows, rows]))
        monkeypatch.setattr(
            distributed, "gather", lambda rows, rank=rank: parts.setdefault(rank, rows).repeat(2, 1)
        )
        distributed.shared(encode)(texts)
    monkeypatch.setattr(distributed, "gather", lambda rows: torch.cat([parts[0], parts[1]]))
    assert torch.equal(distributed.shared(encode)(texts), encode(texts))


def test_encode_under_torchrun_writes_a_shard_a_process(tiny_bert: Path, tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_text("the dog\na house\nthe man sees\n")
    words = ["cse_cli", "encode", tiny_bert, "x.txt", "--pooler", "cls", "--out"]
    for processes, name in ((1, "one.npy"), (2, "two.npy")):
        done = run([*words, name], processes=processes, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
    shards = [np.load(path) for path in sorted(tmp_path.glob("two-*.npy"))]
    assert [len(shard) for shard in shards] == [1, 2]
    np.testing.assert_allclose(np.concatenate(shards), np.load(tmp_path / "one.npy"), atol=1e-6)
