"""What differs between families: final norms, token dropout, blocks that cannot be told apart."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from cse_cli.backbone import block_output, find_blocks, find_final_norm, load_tokenizer
from cse_cli.data.tokens import Tokens
from cse_cli.encoder import Encoder
from cse_cli.errors import InputError
from tests.conftest import make_tiny_bert
from tests.odd_encoders import make_encoder

TEXTS = ["the dog runs", "a", "the small old man sees a red ball"]
PRE_NORM: list[tuple[str, dict[str, Any]]] = [
    ("megatron-bert", {}),
    ("roberta-prelayernorm", {}),
    ("esm", {"token_dropout": False}),
    ("xlm-roberta-xl", {}),
    ("xmod", {"pre_norm": True, "default_language": "en_XX"}),
    ("eurobert", {"num_key_value_heads": 2, "head_dim": 8}),
]
RELATIVE = {"relative_attention": True, "norm_rel_ebd": "layer_norm", "position_buckets": 8}
POST_NORM: list[tuple[str, dict[str, Any]]] = [("bert", {}), ("deberta-v2", RELATIVE)]


@pytest.mark.parametrize(("family", "settings"), [*PRE_NORM, *POST_NORM])
def test_the_final_norm_is_what_follows_the_last_block(
    family: str, settings: dict[str, Any], tmp_path: Path
) -> None:
    encoder = Encoder.load(str(make_encoder(tmp_path, family, **settings)), pooler="mean")
    norm = find_final_norm(encoder.backbone)
    found: list[torch.Tensor] = []
    last = find_blocks(encoder.backbone)[-1]
    last.register_forward_hook(lambda _module, _args, output: found.append(block_output(output)))
    ids = torch.tensor([[2, 7, 9, 11, 3]])
    with torch.no_grad():
        states = encoder.backbone(ids).last_hidden_state
        torch.testing.assert_close(norm(found[0]) if norm else found[0], states)
    assert (norm is None) == ((family, settings) in POST_NORM)


def test_esm_token_dropout_is_refused_where_training_starts(tmp_path: Path) -> None:
    folder = make_encoder(tmp_path, "esm", token_dropout=True, mask_token_id=4)
    encoder = Encoder.load(str(folder), pooler="mean")
    assert encoder.encode(TEXTS).isfinite().all()
    tokens = Tokens.from_rows(encoder.tokenize(TEXTS)[0], 0)
    with pytest.raises(InputError, match="token_dropout"):
        encoder.pooled(tokens)


def test_albert_is_pooled_by_cls_though_its_blocks_are_one(tmp_path: Path) -> None:
    encoder = Encoder.load(str(make_encoder(tmp_path, "albert", embedding_size=16)), pooler="cls")
    ids = encoder.tokenizer(TEXTS[0], return_tensors="pt")
    with torch.no_grad():
        expected = encoder.backbone(**ids).last_hidden_state[:, 0]
    torch.testing.assert_close(encoder.encode(TEXTS[:1]), expected)


def test_a_tokenizer_that_pads_on_the_left_pads_on_the_right_here(tmp_path: Path) -> None:
    path = make_tiny_bert(tmp_path / "left") / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"padding_side": "left"}))
    load_tokenizer(str(tmp_path / "left")).save_pretrained(tmp_path / "saved")
    saved = json.loads((tmp_path / "saved" / "tokenizer_config.json").read_text())
    assert saved["padding_side"] == "right"
