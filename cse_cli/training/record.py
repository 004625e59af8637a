"""What a checkpoint says of its run: the record in `cse.json`, and the model card."""

import json
from typing import Any

from cse_cli.methods.catalog import CATALOG
from cse_cli.methods.resolve import Run
from cse_cli.versions import versions


def run_record(run: Run, encoder: Any, corpus: Any, selector: str, base: str) -> dict[str, Any]:
    """The fields of `cse.json` that are the same for every step of a run."""
    return {
        "method": run.train.method,
        "ingredients": run.ingredients,
        "model": base,
        "pooler": encoder.pooler,
        "dimension": encoder.dimension,
        "train_length": run.train.max_length,
        "eval_length": encoder.max_length,
        "seed": run.train.seed,
        "select": selector,
        "corpus": {"sentences": len(corpus), "fingerprint": corpus.fingerprint},
        "versions": versions(),
        "config": run.flat(),
    }


def model_card(record: dict[str, Any]) -> str:
    """README.md of a checkpoint: front matter for model hubs, then how to use it and what it is.

    `record` is what `cse.json` says of the checkpoint, its step and score included.
    """
    entry = CATALOG[record["method"]]
    step, score = record["step"], record["dev_score"]
    best = "the best of the evaluated steps" if step == record["best_step"] else "not the best step"
    scored = "" if score is None else f" Its score on `{record['select']}` was {score:.4f}."
    demo = (
        "\n**Trained from or on the built-in demo data: a demonstration, not a useful model.**\n"
        if record.get("demo")
        else ""
    )
    return f"""---
library_name: sentence-transformers
pipeline_tag: sentence-similarity
tags: [sentence-transformers, sentence-similarity, {record["method"]}]
---

# Sentence encoder trained with {record["method"]}
{demo}
{entry.title}. Trained from `{record["model"]}` on {record["corpus"]["sentences"]} sentences with
`cse train`; this is {best}, step {step}.{scored}
Pooler `{record["pooler"]}`, {record["dimension"]} dimensions, up to {record["eval_length"]} tokens.

```python
from sentence_transformers import SentenceTransformer

model = SentenceTransformer("path/to/this/folder")
embeddings = model.encode(["A sentence.", "Another one."])
```

{entry.citation}

<details><summary>Configuration</summary>

```json
{json.dumps(record["config"], indent=2)}
```
</details>
"""


def config_toml(values: dict[str, Any]) -> str:
    """Flat settings as TOML; what is None is left out."""
    lines = []
    for name, value in values.items():
        if value is None:
            continue
        if isinstance(value, tuple):
            value = list(value)
        # JSON's strings are TOML's, but TOML has no surrogates and wants DEL escaped
        shown = json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
        lines.append(f"{name.rstrip('_')} = {shown}")
    return "\n".join(lines) + "\n"
