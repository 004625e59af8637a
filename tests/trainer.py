"""A training step as `cse train` takes it, from the names of its ingredients; for tests."""

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from cse_cli.data.corpus import Corpus
from cse_cli.encoder import Encoder
from cse_cli.methods import INGREDIENTS
from cse_cli.methods.base import Ingredient
from cse_cli.methods.resolve import Run, resolve
from cse_cli.training.setup import Source, build_encoder, make_batch, open_run_corpus
from cse_cli.training.step import Batch, Outcome, StepConfig, training_step

COLUMNS = "sent0,sent1,hard_neg"


class Trainer:
    """Encoder, corpus and ingredients of one resolved run, and its steps one at a time."""

    def __init__(self, run: Run, encoder: Encoder, parts: list[Ingredient], corpus: Corpus):
        self.run, self.encoder, self.parts, self.corpus = run, encoder, parts, corpus
        self.config = StepConfig(
            temperature=run.train.temperature,
            contrastive_weight=run.train.contrastive_weight,
            seed=run.train.seed,
        )
        modules = torch.nn.ModuleList([encoder, *parts]).train()
        trained = [p for p in modules.parameters() if p.requires_grad]
        self.optimizer = torch.optim.AdamW(trained, 1e-3, weight_decay=0.0)

    def batch(self, step: int) -> Batch:
        return make_batch(step, self.corpus, self.parts, self.run)

    def measure(self, step: int = 1) -> Outcome:
        """Loss and gradients of a step, its dropout seeded by its number."""
        torch.manual_seed(step)
        self.optimizer.zero_grad()
        return training_step(self.batch(step), self.encoder, self.parts, self.config)

    def step(self, step: int) -> Outcome:
        """A whole step."""
        outcome = self.measure(step)
        self.optimizer.step()
        for part in self.parts:
            part.after_step(outcome.views)
        return outcome


def make_trainer(
    model: Path, file: Path, names: Sequence[str] = (), *, seed: int = 0, **settings: Any
) -> Trainer:
    """A trainer from the model folder on `file`; with hard negatives the file holds triplets."""
    values = {"batch_size": 8, "seed": seed, "model": str(model), "pooler": "cls", **settings}
    values["with_"] = tuple(names)
    values["train_file"] = (str(file),)
    if "hard-negatives" in names:
        values.setdefault("triplet_columns", COLUMNS)
    run = resolve(values)
    source = Source(str(model), run.train.train_file, "tiny", demo=False)
    torch.manual_seed(seed)
    on_this = {"device": "cpu", "precision": "fp32"}
    run = Run(run.train.__class__(**{**vars(run.train), **on_this}), run.parts)
    encoder = build_encoder(run, source, supervised="triplet_columns" in values)
    corpus = open_run_corpus(run, source, encoder.tokenizer)
    return Trainer(run, encoder, [make_part(n, c, encoder) for n, c in run.parts], corpus)


def make_part(name: str, config: Any, encoder: Encoder) -> Ingredient:
    module, _, attribute = INGREDIENTS[name].partition(":")
    part: Ingredient = getattr(import_module(module), attribute)(config, encoder)
    return part


def write_triplets(path: Path, sentences: Sequence[str], weights: Sequence[float] = ()) -> Path:
    """A .tsv of (sentence, the next but one, the one between), with weights where given."""
    n = len(sentences)
    columns = [*COLUMNS.split(","), *(["weight"] if weights else [])]
    rows = ["\t".join(columns)]
    for i, sentence in enumerate(sentences):
        row = [sentence, sentences[(i + 2) % n], sentences[(i + 1) % n]]
        rows.append("\t".join(row + ([str(weights[i])] if weights else [])))
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")
    return path
