"""`cse train` as typed: what it prints, what it writes, and which words it takes."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file

from cse_cli import checkpoint
from cse_cli.encoder import Encoder
from cse_cli.heads import DenseHead
from tests.conftest import WORDS, make_tiny_bert
from tests.runs import SMALL, last_state, rows, same_checkpoint, same_state, train, weights


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # no pyproject.toml here


@pytest.fixture
def given(tiny_bert: Path, corpus_file: Path) -> tuple[object, ...]:
    """Model, corpus and sizes of a run that takes a second."""
    return ("--model", tiny_bert, "--train-file", corpus_file, *SMALL)


def pairs_file(folder: Path, n: int = 12) -> Path:
    """Sentence pairs with gold scores, as `--select` takes them."""
    lines = [f"{i % 5}\tthe {WORDS[i]} runs\ta {WORDS[-i]} sleeps" for i in range(1, n + 1)]
    path = folder / "pairs.tsv"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def test_standard_output_is_the_path_and_the_folder_is_whole(
    given: tuple[object, ...], tmp_path: Path
) -> None:
    out = tmp_path / "run"
    words = ("--select", pairs_file(tmp_path), "--max-steps", 6, "--eval-steps", 2, "--out", out)
    result = train(*given, *words)
    assert result.exit_code == 0, result.stderr
    assert result.stdout == f"{out}\n"

    found = rows(out)
    assert [row["step"] for row in found] == [1, 2, 3, 4, 5, 6]
    scores = {row["step"]: row["dev"] for row in found if "dev" in row}
    assert sorted(scores) == [2, 4, 6]
    assert {"loss", "lr", "gradient_norm", "alignment", "negative_cosine"} <= found[0].keys()
    assert [row["lr"] for row in found] == pytest.approx([1e-3 * (1 - i / 6) for i in range(6)])

    record = checkpoint.manifest(out)
    best = max(scores, key=lambda step: scores[step])
    assert (record["step"], record["dev_score"]) == (best, scores[best])
    assert record["select"] == "pairs.tsv"
    assert checkpoint.damage(out, hashes=True) is None
    kept = {path.name for path in (out / "train").glob("step-*")}
    assert kept == {f"step-{best}", "step-6"}
    assert last_state(out).name == "step-6"
    assert "batch_size = 16" in (out / "train" / "config.toml").read_text()


def test_the_checkpoint_opens_in_sentence_transformers(
    given: tuple[object, ...], tmp_path: Path, sentences: list[str]
) -> None:
    from sentence_transformers import SentenceTransformer

    out = tmp_path / "run"
    assert train(*given, "--select", "last", "--max-steps", 2, "--out", out).exit_code == 0
    theirs = SentenceTransformer(str(out), device="cpu").encode(sentences[:5])
    ours = Encoder.load(str(out)).encode(sentences[:5]).numpy()
    np.testing.assert_allclose(ours, theirs, atol=1e-5)


def test_json_says_what_came_out(given: tuple[object, ...], tmp_path: Path) -> None:
    out = tmp_path / "run"
    result = train(*given, "--select", "last", "--max-steps", 2, "--out", out, "--json")
    found = json.loads(result.stdout)
    assert (found["schema"], found["command"], found["checkpoint"]) == (1, "train", str(out))
    assert (found["step"], found["best_step"], found["dev_score"]) == (2, 2, None)
    assert found["config"]["max_steps"] == 2


def test_without_out_each_run_gets_a_new_folder(given: tuple[object, ...]) -> None:
    words = ("--select", "last", "--max-steps", 1)
    assert train(*given, *words).stdout == "runs/simcse\n"
    assert train(*given, *words).stdout == "runs/simcse-2\n"


def spread_bert(folder: Path) -> Path:
    """A tiny BERT whose larger weights keep its vectors apart, as those of a trained one are."""
    path = make_tiny_bert(folder) / "model.safetensors"
    tensors = {k: 5 * v if v.ndim == 2 else v for k, v in load_file(path).items()}
    save_file(tensors, path, metadata={"format": "pt"})
    return folder


def test_training_lowers_the_loss(given: tuple[object, ...], tmp_path: Path) -> None:
    out = tmp_path / "run"
    given = (*given, "--model", spread_bert(tmp_path / "model"))
    words = ("--select", "last", "--max-steps", 60, "--learning-rate", 3e-3)
    assert train(*given, *words, "--schedule", "constant", "--out", out).exit_code == 0
    losses = [row["loss"] for row in rows(out)]
    assert np.mean(losses[-5:]) < 0.7 * np.mean(losses[:5])


def test_the_same_seed_gives_the_same_weights_and_another_does_not(
    given: tuple[object, ...], tmp_path: Path
) -> None:
    words = (*given, "--select", "last", "--max-steps", 3)
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        assert train(*words, "--seed", seed, "--out", tmp_path / name).exit_code == 0
    assert same_state(tmp_path / "a", tmp_path / "b")
    assert same_checkpoint(tmp_path / "a", tmp_path / "b")
    assert not same_checkpoint(tmp_path / "a", tmp_path / "c")


def test_a_taken_folder_is_refused_until_it_is_overwritten(
    given: tuple[object, ...], tmp_path: Path
) -> None:
    out = tmp_path / "run"
    words = (*given, "--select", "last", "--max-steps", 2, "--out", out)
    assert train(*words).exit_code == 0
    before = weights(out)
    again = train(*words)
    assert again.exit_code == 2
    assert "--resume it or --overwrite it" in again.stderr
    assert train(*words, "--seed", 7, "--overwrite").exit_code == 0
    after = weights(out)
    assert any(not np.array_equal(before[name], after[name]) for name in before)


def test_a_folder_of_other_files_is_never_touched(
    given: tuple[object, ...], tmp_path: Path
) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "letter.txt").write_text("dear")
    for more in ((), ("--overwrite",)):
        result = train(*given, "--select", "last", "--out", tmp_path / "home", *more)
        assert result.exit_code == 2
        assert "not a run" in result.stderr
    assert [path.name for path in (tmp_path / "home").iterdir()] == ["letter.txt"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--resume",), "--resume needs the --out"),
        (("--resume", "--out", "nowhere"), "holds no run to --resume"),
        (("--resume", "--out", "run", "--learning-rate", 1), "leave --learning-rate out"),
        (("--out", "new", "--dropout", 0), "no dropout"),
        (("--out", "new", "--num-layers", 9), "--num-layers 9"),
        (("--out", "new", "--select", "stbs"), "did you mean 'stsb'"),
        (("--out", "new", "--precision", "fp16", "--device", "cpu"), "needs a GPU"),
        (("--out", "new", "--device", "cuda:7"), "no CUDA device"),
    ],
)
def test_wrong_words_end_with_2_and_a_remedy(
    given: tuple[object, ...], words: tuple[object, ...], message: str
) -> None:
    assert train(*given, "--select", "last", "--max-steps", 1, "--out", "run").exit_code == 0
    typed = words if "--resume" in words else (*given, "--select", "last", *words)
    result = train(*typed)
    assert result.exit_code == 2, result.stderr
    assert message in result.stderr
    assert result.stdout == ""


def test_no_augmentation_makes_the_anchor_its_own_positive(
    given: tuple[object, ...], tmp_path: Path
) -> None:
    out = tmp_path / "run"
    words = ("--no-augmentation", "--dropout", 0, "--select", "last", "--max-steps", 2)
    assert train(*given, *words, "--out", out).exit_code == 0
    assert [row["alignment"] for row in rows(out)] == pytest.approx([0, 0], abs=1e-6)


def test_a_weight_of_zero_moves_nothing(
    given: tuple[object, ...], tiny_bert: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    words = ("--contrastive-weight", 0, "--select", "last", "--max-steps", 2)
    assert train(*given, *words, "--out", out).exit_code == 0
    assert [row["loss"] for row in rows(out)] == [0, 0]
    start = Encoder.load(str(tiny_bert), pooler="cls").backbone.state_dict()
    for name, value in weights(out).items():
        assert torch.equal(torch.from_numpy(value), start[name])


def test_project_dim_is_kept_at_evaluation(given: tuple[object, ...], tmp_path: Path) -> None:
    out = tmp_path / "run"
    words = ("--project-dim", 5, "--select", "last", "--max-steps", 1, "--out", out)
    assert train(*given, *words).exit_code == 0
    assert Encoder.load(str(out)).encode(["the dog", "a cat"]).shape == (2, 5)


def test_num_layers_drops_the_upper_blocks(given: tuple[object, ...], tmp_path: Path) -> None:
    out = tmp_path / "run"
    words = ("--num-layers", 1, "--select", "last", "--max-steps", 1, "--out", out)
    assert train(*given, *words).exit_code == 0
    assert Encoder.load(str(out)).num_layers == 1
    assert not any(".layer.1." in name for name in weights(out))


def test_triplets_keep_the_tanh_head(tiny_bert: Path, sentences: list[str], tmp_path: Path) -> None:
    lines = ["sent0,sent1,hard_neg"]
    lines += [",".join(sentences[3 * i : 3 * i + 3]) for i in range(40)]
    file = tmp_path / "nli.csv"
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    out = tmp_path / "run"
    words = ("--triplet-columns", "sent0,sent1", "--select", "last", "--max-steps", 2)
    result = train("--model", tiny_bert, "--train-file", file, *SMALL, *words, "--out", out)
    assert result.exit_code == 0, result.stderr
    encoder = Encoder.load(str(out))
    assert encoder.keep_head
    assert any(isinstance(module, DenseHead) for module in encoder.head.modules())


@pytest.mark.parametrize("as_json", [False, True])
def test_a_dry_run_trains_nothing(given: tuple[object, ...], as_json: bool) -> None:
    result = train(*given, "--epochs", 2, "--dry-run", *(["--json"] if as_json else []))
    assert result.exit_code == 0, result.stderr
    assert not Path("runs").exists()
    if as_json:
        found = json.loads(result.stdout)
        assert found["steps"] == 2 * (200 // 16)
        assert found["corpus"]["rows"] == 200
        assert found["dropout"] == {
            "hidden_dropout_prob": 0.1,
            "attention_probs_dropout_prob": 0.1,
        }
        assert found["config"]["batch_size"] == 16
    else:
        assert "steps: 24" in result.stdout
        assert "batch_size = 16  # option" in result.stdout


def test_large_batches_in_chunks_take_the_same_first_step(
    given: tuple[object, ...], tmp_path: Path
) -> None:
    model = make_tiny_bert(tmp_path / "still", dropout=0.0)
    words = (*given, "--model", model, "--no-augmentation", "--select", "last", "--max-steps", 1)
    assert train(*words, "--out", tmp_path / "whole").exit_code == 0
    assert train(*words, "--out", tmp_path / "chunks", "--chunk-size", 3).exit_code == 0
    whole, chunked = rows(tmp_path / "whole")[0], rows(tmp_path / "chunks")[0]
    assert chunked["loss"] == pytest.approx(whole["loss"], rel=1e-6)
    assert chunked["gradient_norm"] == pytest.approx(whole["gradient_norm"], rel=1e-4)
