"""The encoder against transformers and sentence-transformers."""

import json
from pathlib import Path

import pytest
import torch
from torch import nn

from cse_cli import checkpoint
from cse_cli.attention import use_short_attention
from cse_cli.data.tokens import Tokens
from cse_cli.dropout import dropout_off
from cse_cli.encoder import Encoder, check_layer
from cse_cli.errors import UsageError
from cse_cli.heads import DenseHead
from cse_cli.pooling import POOLER_LAYERS, pool
from cse_cli.rows import LAUNCH
from tests.conftest import make_tiny_bert
from tests.families import FAMILIES, make_family

TEXTS = ["the dog runs", "a", "the small old man sees a red ball", "the dog runs", "woman eats"]


def rows(encoder: Encoder, texts: list[str]) -> Tokens:
    return Tokens.from_rows(encoder.tokenize(texts)[0], encoder.tokenizer.pad_token_id)


@pytest.mark.parametrize("pooler", POOLER_LAYERS)
def test_encode_equals_pooling_of_plain_hidden_states(tiny_bert: Path, pooler: str) -> None:
    encoder = Encoder.load(str(tiny_bert), pooler=pooler)
    vectors = encoder.encode(TEXTS)
    for text, vector in zip(TEXTS, vectors, strict=True):
        ids = encoder.tokenizer(text, return_tensors="pt")
        with torch.no_grad():
            states = encoder.backbone(**ids, output_hidden_states=True).hidden_states
        expected = pool(states, ids["attention_mask"], pooler)[0]
        torch.testing.assert_close(vector, expected, rtol=1e-5, atol=1e-6)


def test_encode_keeps_order_and_merges_duplicates(tiny_bert: Path) -> None:
    encoder = Encoder.load(str(tiny_bert), pooler="mean", batch_tokens=8)
    seen: list[int] = []
    forward = encoder.backbone.forward
    encoder.backbone.forward = lambda **kw: seen.append(len(kw["input_ids"])) or forward(**kw)
    vectors = encoder.encode(TEXTS)
    assert sum(seen) == 4  # the repeated sentence once
    assert torch.equal(vectors[0], vectors[3])
    one_by_one = torch.cat([encoder.encode([text]) for text in TEXTS])
    torch.testing.assert_close(vectors, one_by_one, rtol=1e-5, atol=1e-6)


def test_encode_of_nothing_is_empty(tiny_bert: Path) -> None:
    assert Encoder.load(str(tiny_bert), pooler="cls").encode([]).shape == (0, 32)


def test_encode_restores_every_mode(tiny_bert: Path) -> None:
    encoder = Encoder.load(str(tiny_bert), pooler="cls").train()
    encoder.backbone.encoder.layer[0].eval()
    before = [module.training for module in encoder.modules()]
    encoder.encode(TEXTS)
    assert [module.training for module in encoder.modules()] == before
    assert encoder.encode(TEXTS).equal(encoder.encode(TEXTS))


def test_stream_gives_every_hidden_state(tiny_bert: Path) -> None:
    encoder = Encoder.load(str(tiny_bert), pooler="mean", batch_tokens=12)
    seen = []
    for batch in encoder.stream(TEXTS, lambda batch: batch):
        with torch.no_grad():
            states = encoder.backbone(
                batch.ids, attention_mask=batch.mask.long(), output_hidden_states=True
            ).hidden_states
        assert len(batch.states) == encoder.num_layers + 1
        kept = batch.mask.bool()
        for ours, theirs in zip(batch.states, states, strict=True):
            torch.testing.assert_close(ours[kept], theirs[kept], rtol=1e-5, atol=1e-6)
        seen += batch.index.tolist()
    assert sorted(seen) == list(range(len(TEXTS)))


def test_truncation_is_told_with_its_share(
    tiny_bert: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    encoder = Encoder.load(str(tiny_bert), pooler="cls", max_length=5)
    encoder.encode(["the dog runs", "the dog runs the house"])
    assert "1 of 2 texts (50.0%) were cut at 5 tokens" in capsys.readouterr().err


def test_pooled_rows_do_not_depend_on_grouping(
    tiny_bert: Path, sentences: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    encoder = Encoder.load(str(tiny_bert), pooler="mean")
    tokens = rows(encoder, sentences[:40])
    found = []
    for launch in (0, 1 << 20):
        monkeypatch.setitem(LAUNCH, "cpu", launch)
        found.append(encoder.pooled(tokens, layers=(1,)))
    torch.testing.assert_close(found[0].last, found[1].last, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(found[0].layers[1], found[1].layers[1], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("family", FAMILIES)
def test_captured_layers_are_the_hidden_states_in_every_family(family: str, tmp_path: Path) -> None:
    encoder = Encoder.load(str(make_family(family, tmp_path)), pooler="mean")
    tokens = rows(encoder, TEXTS)
    pooled = encoder.pooled(tokens, layers=(1, 2))
    for batch in encoder.stream(TEXTS, lambda batch: batch):
        for layer in (1, 2):
            expected = pool((batch.states[layer],), batch.mask, "mean")
            torch.testing.assert_close(
                pooled.layers[layer][batch.index], expected, rtol=1e-4, atol=1e-5
            )
        last = pool(batch.states, batch.mask, "mean")
        torch.testing.assert_close(pooled.last[batch.index], last, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("family", FAMILIES)
def test_padding_never_changes_a_vector(family: str, tmp_path: Path) -> None:
    encoder = Encoder.load(str(make_family(family, tmp_path)), pooler="mean")
    short = encoder.tokenize(["the dog runs"])[0]
    alone = encoder.pooled(Tokens.from_rows(short, encoder.tokenizer.pad_token_id)).last
    padded = Tokens.from_rows(short, encoder.tokenizer.pad_token_id).widened(20)
    long = rows(encoder, ["the small old man sees a red ball and a house"])
    both = encoder.pooled(Tokens.cat([padded, long])).last
    torch.testing.assert_close(alone[0], both[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_dropout_is_off_in_the_whole_encoder_and_on_again(tiny_bert: Path, attention: str) -> None:
    encoder = Encoder.load(str(tiny_bert), pooler="cls").train()
    encoder.backbone.set_attn_implementation(attention)
    tokens = rows(encoder, TEXTS)
    with dropout_off(encoder.backbone):
        assert torch.equal(encoder.pooled(tokens).last, encoder.pooled(tokens).last)
    assert not torch.equal(encoder.pooled(tokens).last, encoder.pooled(tokens).last)


def test_dropout_off_restores_even_when_the_block_fails(tiny_bert: Path) -> None:
    module = nn.Sequential(nn.Dropout(0.5), nn.Linear(2, 2)).train()
    with pytest.raises(RuntimeError), dropout_off(module):
        raise RuntimeError
    assert all(part.training for part in module.modules())


@pytest.mark.parametrize("asked", [0, 6, 7, -1, "first", "2.5"])
def test_layers_out_of_range_are_refused_with_the_range(asked: object) -> None:
    with pytest.raises(UsageError, match=r"1 … 5 or 'penultimate'"):
        check_layer(asked, 6)  # type: ignore[arg-type]


def test_layers_in_range_are_taken() -> None:
    assert [check_layer(x, 6) for x in ("1", 5, "penultimate")] == [1, 5, 5]


def test_fingerprint_tells_encoders_apart(tiny_bert: Path) -> None:
    first = Encoder.load(str(tiny_bert), pooler="cls").fingerprint
    assert first == Encoder.load(str(tiny_bert), pooler="cls").fingerprint
    assert first != Encoder.load(str(tiny_bert), pooler="mean").fingerprint
    other = Encoder.load(str(tiny_bert), pooler="cls")
    with torch.no_grad():
        next(other.backbone.parameters()).add_(1e-3)
    assert other.fingerprint != first


@pytest.mark.parametrize(
    ("key", "value"),
    [("num_attention_heads", 4), ("hidden_act", "relu"), ("layer_norm_eps", 1e-3)],
)
def test_fingerprint_tells_configurations_apart(tmp_path: Path, key: str, value: object) -> None:
    folder = make_tiny_bert(tmp_path)
    first = Encoder.load(str(folder), pooler="cls").fingerprint
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {key: value}))
    assert Encoder.load(str(folder), pooler="cls").fingerprint != first


def test_fingerprint_tells_kept_heads_apart(tiny_bert: Path) -> None:
    found = set()
    for tanh in (True, False):
        torch.manual_seed(0)
        encoder = Encoder.load(str(tiny_bert), pooler="cls")
        encoder.head, encoder.keep_head = DenseHead(32, 32, tanh=tanh), True
        found.add(encoder.fingerprint)
    assert len(found) == 2


@pytest.mark.parametrize("pooler", ["cls", "first_last_mean"])
def test_fingerprint_does_not_depend_on_place_or_writer(
    tiny_bert: Path, tmp_path: Path, pooler: str
) -> None:
    encoder = Encoder.load(str(tiny_bert), pooler=pooler)
    use_short_attention(encoder.backbone)
    checkpoint.save(tmp_path / "again", encoder, {"step": 1}, "# card\n")
    again = Encoder.load(str(tmp_path / "again"))
    assert again.fingerprint == encoder.fingerprint
    assert again.fingerprint == Encoder.load(str(tiny_bert), pooler=pooler).fingerprint


def test_bf16_stays_close_to_fp32(tiny_bert: Path, sentences: list[str]) -> None:
    exact = Encoder.load(str(tiny_bert), pooler="mean").encode(sentences)
    rough = Encoder.load(str(tiny_bert), pooler="mean", precision="bf16").encode(sentences)
    cosine = torch.nn.functional.cosine_similarity(exact, rough)
    assert rough.dtype == torch.float32
    assert cosine.min() > 0.99
