"""Attention for short rows: attention's numbers, in every family that can be switched to it."""

from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention

from cse_cli.attention import ATTENTION, _attention, has_short_attention, use_fast_dropout
from cse_cli.data.tokens import Tokens
from cse_cli.dropout import dropout_off
from cse_cli.encoder import Encoder
from tests.families import FAMILIES, make_family
from tests.odd_encoders import make_encoder

TEXTS = ["the dog runs", "a", "the small old man sees a red ball", "woman eats"]


@pytest.mark.parametrize("kind", ["none", "bool", "additive"])
def test_attention_is_attention(kind: str) -> None:
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 2, 4, 6, 8, dtype=torch.float64)
    seen = torch.ones(2, 1, 6, 6, dtype=torch.bool)
    seen[1, :, :, 4:] = False
    bias = torch.zeros(seen.shape, dtype=torch.float64).masked_fill(~seen, -1e300)
    mask = {"none": None, "bool": seen, "additive": bias}[kind]
    expected = scaled_dot_product_attention(q, k, v, attn_mask=mask).transpose(1, 2)
    almost_never = 1e-4  # rounds to 7 / 65536: with this seed nothing is dropped below
    torch.manual_seed(0)
    found, _ = _attention(nn.Module(), q, k, v, mask, dropout=almost_never)
    torch.testing.assert_close(found * (1 - 7 / 65536), expected)
    mean = torch.stack(
        [_attention(nn.Module(), q, k, v, mask, dropout=0.3)[0] for _ in range(4000)]
    )
    torch.testing.assert_close(mean.mean(0), expected, atol=0.05, rtol=0.0)


def test_heads_of_key_and_value_are_shared_in_their_order() -> None:
    torch.manual_seed(0)
    q, (k, v) = torch.randn(2, 4, 6, 8), torch.randn(2, 2, 2, 6, 8)
    expected = scaled_dot_product_attention(q, k, v, enable_gqa=True).transpose(1, 2)
    torch.testing.assert_close(_attention(nn.Module(), q, k, v, None)[0], expected)


GROUPED = {"num_key_value_heads": 2, "head_dim": 8}


@pytest.mark.parametrize(
    ("family", "settings", "switched"),
    [
        ("eurobert", GROUPED, True),
        ("qwen3", GROUPED, False),
        ("opt", {"ffn_dim": 64, "word_embed_proj_dim": 32}, False),
    ],
)
def test_grouped_and_causal_encoders_keep_their_vectors(
    family: str, settings: dict[str, int], switched: bool, tmp_path: Path
) -> None:
    folder = str(make_encoder(tmp_path, family, **settings))
    encoder = Encoder.load(folder, pooler="mean")
    exact = encoder.encode(TEXTS)
    half = Encoder.load(folder, pooler="mean", precision="bf16")
    assert (torch.cosine_similarity(exact, half.encode(TEXTS)) > 0.999).all()
    assert use_fast_dropout(encoder.backbone) == switched
    tokens = Tokens.from_rows(encoder.tokenize(TEXTS)[0], 0)
    torch.testing.assert_close(encoder.pooled(tokens).last.detach(), exact, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_trains_with_it_and_is_saved_without(family: str, tmp_path: Path) -> None:
    encoder = Encoder.load(str(make_family(family, tmp_path / "m")), pooler="mean")
    tokens = Tokens.from_rows(encoder.tokenize(TEXTS)[0], 0)
    before = encoder.pooled(tokens).last
    use_fast_dropout(encoder.backbone)
    assert not [m for m in encoder.backbone.modules() if type(m) is nn.Dropout]
    torch.testing.assert_close(encoder.pooled(tokens).last, before)
    encoder.train()
    assert not torch.equal(encoder.pooled(tokens).last, encoder.pooled(tokens).last)
    with dropout_off(encoder.backbone):
        torch.testing.assert_close(encoder.pooled(tokens).last, before)
    encoder.backbone.save_pretrained(tmp_path / "saved")
    assert ATTENTION not in (tmp_path / "saved" / "config.json").read_text()


@pytest.mark.parametrize("family", FAMILIES)
def test_bf16_vectors_on_a_processor_are_those_of_float32_roughly(
    family: str, tmp_path: Path
) -> None:
    folder = str(make_family(family, tmp_path))
    exact = Encoder.load(folder, pooler="mean")
    half = Encoder.load(folder, pooler="mean", precision="bf16")
    assert not has_short_attention(exact.backbone)
    sdpa = exact.backbone.config._attn_implementation == "sdpa"
    assert has_short_attention(half.backbone) == sdpa
    cosines = torch.cosine_similarity(exact.encode(TEXTS), half.encode(TEXTS))
    assert (cosines > 0.999).all()
