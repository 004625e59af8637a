"""`--compile`: padded to one shape it is the same function, and a compiled run trains."""

import shutil
from pathlib import Path

import pytest
import torch

from cse_cli.compiled import compile_encoder
from cse_cli.data.tokens import Tokens
from cse_cli.encoder import Encoder
from tests.conftest import make_tiny_bert
from tests.families import make_family
from tests.runs import SMALL, rows, train

TEXTS = ["the dog runs", "a", "the small old man sees a red ball", "woman eats"]


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[torch.Size]:
    """The shapes of ids that the compiled function is given; nothing is compiled."""
    shapes: list[torch.Size] = []

    def compile(function: object, **options: object) -> object:
        def run(ids: torch.Tensor, mask: torch.Tensor) -> object:
            shapes.append(ids.shape)
            return function(ids, mask)  # type: ignore[operator]

        return run

    monkeypatch.setattr(torch, "compile", compile)
    return shapes


@pytest.mark.parametrize("family", ["bert", "modernbert"])
@pytest.mark.parametrize("pooler", ["cls", "mean", "first_last_mean"])
def test_rows_of_one_shape_give_the_same_vectors(
    family: str, pooler: str, tmp_path: Path, seen: list[torch.Size]
) -> None:
    encoder = Encoder.load(str(make_family(family, tmp_path)), pooler=pooler)
    tokens = Tokens.from_rows(encoder.tokenize(TEXTS)[0], 0)
    plain = encoder.pooled(tokens, (1, 2))
    compile_encoder(encoder, 16)
    padded = encoder.pooled(tokens, (1, 2))
    assert seen == [(4, 16)]
    torch.testing.assert_close(padded.last, plain.last, rtol=1e-4, atol=1e-5)
    for layer in (1, 2):
        torch.testing.assert_close(padded.layers[layer], plain.layers[layer], rtol=1e-4, atol=1e-5)


def test_longer_rows_take_few_shapes(tiny_bert: Path, seen: list[torch.Size]) -> None:
    encoder = Encoder.load(str(tiny_bert), pooler="cls")
    compile_encoder(encoder, 4)
    for text in TEXTS:
        encoder.pooled(Tokens.from_rows(encoder.tokenize([text, text])[0], 0))
    assert set(seen) == {(2, 4), (2, 8), (2, 16)}


def test_texts_are_encoded_as_before(tiny_bert: Path, seen: list[torch.Size]) -> None:
    encoder = Encoder.load(str(tiny_bert), pooler="cls")
    compile_encoder(encoder, 16)
    encoder.encode(TEXTS)
    assert seen == []


@pytest.mark.skipif(shutil.which("g++") is None, reason="the compiler of torch needs g++")
def test_a_compiled_run_is_the_run_without_dropout(
    corpus_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    model = make_tiny_bert(tmp_path / "still", layers=1, dropout=0.0)
    given = ("--model", model, "--train-file", corpus_file, *SMALL, "--no-augmentation")
    given = (*given, "--select", "last", "--max-steps", 3)
    assert train(*given, "--out", "plain").exit_code == 0
    result = train(*given, "--compile", "--out", "compiled")
    assert result.exit_code == 0, result.stderr
    losses = [[row["loss"] for row in rows(Path(out))] for out in ("plain", "compiled")]
    assert losses[1] == pytest.approx(losses[0], rel=1e-4)
