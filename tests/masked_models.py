"""Model folders that a masked language model is asked of, and that cannot be one."""

import json
from pathlib import Path

from tests.conftest import make_tiny_bert


def other_words(folder: Path) -> Path:
    """A model folder whose tokenizer has two words changed about."""
    path = make_tiny_bert(folder) / "tokenizer.json"
    text = json.loads(path.read_text())
    words = text["model"]["vocab"]
    words["dog"], words["cat"] = words["cat"], words["dog"]
    path.write_text(json.dumps(text))
    return folder


def without_head(folder: Path, source: Path) -> Path:
    from transformers import AutoModel, AutoTokenizer

    AutoModel.from_pretrained(source, add_pooling_layer=False).save_pretrained(folder)
    AutoTokenizer.from_pretrained(source).save_pretrained(folder)
    return folder
