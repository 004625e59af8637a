"""Tiny random encoders that are not masked language models, or not of the common families."""

from pathlib import Path
from typing import Any

import torch

from tests.conftest import make_tiny_bert


def make_encoder(folder: Path, family: str, **settings: Any) -> Path:
    """A model folder of `family`: 3 random blocks, 32 wide, the tiny BERT's tokenizer."""
    from transformers import AutoConfig, AutoModel

    make_tiny_bert(folder)
    common = {
        "vocab_size": 80,
        "pad_token_id": 0,
        "hidden_size": 32,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "intermediate_size": 64,
        "max_position_embeddings": 64,
    }
    torch.manual_seed(1)
    model = AutoModel.from_config(AutoConfig.for_model(family, **common | settings))
    with torch.no_grad():  # or norms, whose weights are 1 and 0, would hardly show
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.05)
    model.save_pretrained(folder)
    return folder
