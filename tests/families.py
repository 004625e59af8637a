"""Tiny random encoders of every family that the methods must work on."""

import json
from pathlib import Path

import torch

from tests.conftest import make_tiny_bert

FAMILIES = ["bert", "roberta", "distilbert", "xlm-roberta", "mpnet", "electra", "modernbert"]
WIDTH, LAYERS = 32, 3


def make_family(family: str, folder: Path) -> Path:
    """A model folder of `family`: random weights, 3 blocks, the tiny BERT's tokenizer."""
    from transformers import AutoConfig, AutoModelForMaskedLM

    make_tiny_bert(folder)
    vocabulary = json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"]
    common = {"vocab_size": len(vocabulary), "pad_token_id": 0}
    if family == "distilbert":
        sizes = {"dim": WIDTH, "n_layers": LAYERS, "n_heads": 2, "hidden_dim": 64}
    else:
        sizes = {
            "hidden_size": WIDTH,
            "num_hidden_layers": LAYERS,
            "num_attention_heads": 2,
            "intermediate_size": 64,
        }
    if family == "electra":
        sizes["embedding_size"] = 16
    if family == "modernbert":
        special = {"cls_token_id": 2, "bos_token_id": 2, "sep_token_id": 3, "eos_token_id": 3}
        dropout = dict.fromkeys(("attention_dropout", "mlp_dropout", "embedding_dropout"), 0.1)
        common |= special | dropout
    torch.manual_seed(1)
    config = AutoConfig.for_model(family, max_position_embeddings=64, **common, **sizes)
    AutoModelForMaskedLM.from_config(config).save_pretrained(folder)
    return folder
