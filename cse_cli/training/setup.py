"""From a resolved run to something that trains: encoder, corpus, ingredients, selector.

What is cheap to check is checked first: the folder, the configuration of the model, the layers,
the corpus and the evaluation data, and only then the weights.
"""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch

from cse_cli import checkpoint
from cse_cli.attention import use_fast_dropout
from cse_cli.compiled import compile_encoder
from cse_cli.data.builtin import DEMO_NOTICE
from cse_cli.data.corpus import Corpus, open_corpus
from cse_cli.data.order import order
from cse_cli.data.report import corpus_report, corpus_warnings
from cse_cli.encoder import Encoder
from cse_cli.errors import InputError, UsageError
from cse_cli.heads import build_head
from cse_cli.lanes import LANES
from cse_cli.loading import load_encoder
from cse_cli.memory import keep_freed_memory
from cse_cli.methods import INGREDIENTS
from cse_cli.methods.base import Ingredient
from cse_cli.methods.resolve import Run
from cse_cli.progress import warn
from cse_cli.training import distributed
from cse_cli.training.checks import check_model
from cse_cli.training.folder import RunFolder
from cse_cli.training.loop import Progress, Training
from cse_cli.training.precision import autocast
from cse_cli.training.record import model_card, run_record
from cse_cli.training.select import choose_selector
from cse_cli.training.step import Batch, StepConfig, further, move

View = Callable[[dict[str, Any]], None]


@dataclass(frozen=True)
class Source:
    """Where a run starts from: what to load, and what to call it; `demo` marks built-in data."""

    model: str
    files: tuple[str, ...]
    name: str
    demo: bool


def find_source(run: Run) -> Source:
    """The model and files of the run; the built-in demo for what is not given."""
    model, files = run.train.model, run.train.train_file
    if model is not None and files:
        return Source(model, files, model, demo=False)
    from cse_cli.data.builtin import demo_corpus, demo_model

    name = model or "the built-in demo model"
    return Source(model or str(demo_model()), files or (str(demo_corpus()),), name, demo=True)


def open_run_corpus(run: Run, source: Source, tokenizer: Any) -> Corpus:
    """The token store of the run's files, with a warning of what it should not look like.

    InputError where it holds less than one batch.
    """
    columns = run.train.triplet_columns
    corpus = open_corpus(
        list(source.files),
        tokenizer,
        max_length=run.train.max_length,
        text_column=run.train.text_column,
        triplet_columns=columns.split(",") if columns else None,
        weight_column=run.train.weight_column,
        encoding=run.train.encoding,
    )
    if len(corpus) < run.train.batch_size:
        raise InputError(
            f"{', '.join(source.files)}: {len(corpus)} sentences are fewer than a batch of "
            f"{run.train.batch_size}; lower --batch-size"
        )
    for line in corpus_warnings(corpus_report(corpus)):
        warn(line)
    return corpus


def total_steps(run: Run, sentences: int) -> int:
    """Steps of the whole run; what does not fill a batch at an epoch's end is dropped."""
    return run.train.max_steps or run.train.epochs * (sentences // run.train.batch_size)


def build(run: Run, folder: RunFolder, view: View) -> Training:
    """Everything the loop needs. Raises UsageError and InputError as its pieces do."""
    source = find_source(run)
    _, tokenizer = check_model(run, source.model)
    corpus = open_run_corpus(run, source, tokenizer)
    data_dir = Path(run.train.data_dir) if run.train.data_dir else None
    selector = choose_selector(
        run.train.select, data_dir, lambda n: _sample(corpus, tokenizer, n, run.train.seed)
    )

    if source.demo:
        warn(DEMO_NOTICE)
    elif selector.name == "demo":
        warn(
            "the best step is chosen on the built-in demo pairs: NOT a benchmark; --data-dir gives "
            "STS-B, --select another measure"
        )

    torch.manual_seed(run.train.seed)
    encoder = build_encoder(run, source, supervised=len(corpus.columns) > 1)
    parts = [_ingredient(name, config, encoder) for name, config in run.parts]
    given = len(corpus.columns) > 1 or any(
        type(p).positive is not Ingredient.positive for p in parts
    )
    torch.manual_seed(run.train.seed + 1_000_003 * distributed.rank())
    if run.train.augmentation and not given:
        check_dropout(encoder, corpus)
    if run.train.compile:
        compile_encoder(encoder, run.train.max_length)

    record = run_record(run, encoder, corpus, selector.name, source.name) | {"demo": source.demo}
    return Training(
        config=run.train,
        encoder=encoder,
        parts=parts,
        step_config=StepConfig(
            temperature=run.train.temperature,
            contrastive_weight=run.train.contrastive_weight,
            augmentation=run.train.augmentation,
            seed=run.train.seed,
            chunk_size=run.train.chunk_size,
            gradient_shares=run.train.gradient_shares,
            autocast=autocast(run.train.precision, run.train.device),
        ),
        batch=lambda step: make_batch(step, corpus, parts, run),
        total=total_steps(run, len(corpus)),
        corpus=corpus.fingerprint,
        selector=selector,
        folder=folder,
        save=lambda progress, score: _save(folder, encoder, record, progress, score),
        view=view,
    )


def build_encoder(run: Run, source: Source, *, supervised: bool) -> Encoder:
    """The encoder with its training head, on its device, in float32."""
    settings = run.train
    encoder = load_encoder(
        source.model,
        pooler=settings.pooler,
        max_length=settings.eval_length,
        num_layers=settings.num_layers,
        dropout=settings.dropout,
        normalize=False,
    )
    if settings.device == "cpu":
        keep_freed_memory()
        encoder.lanes = LANES if use_fast_dropout(encoder.backbone) else 1
    if encoder.keep_head:
        warn(f"{source.name}: its dense layer is replaced by the training head")
    head = settings.head or ("tanh" if encoder.pooler == "cls" else "none")
    encoder.head = build_head(head, encoder.width, settings.project_dim)
    encoder.keep_head = head == "linear" or (supervised and head == "tanh")
    return encoder.to(settings.device)


def _ingredient(name: str, config: Any, encoder: Encoder) -> Ingredient:
    """The ingredient `name`, built from its import string, on the encoder's device."""
    module, _, attribute = INGREDIENTS[name].partition(":")
    part: Ingredient = getattr(import_module(module), attribute)(config, encoder)
    return part.to(encoder.device)


def make_batch(step: int, corpus: Corpus, parts: list[Ingredient], run: Run) -> Batch:
    """The token rows of `step` (1, 2, …): a random sample, a pure function of seed and step."""
    size = run.train.batch_size
    per_epoch = len(corpus) // size
    epoch, place = divmod(step - 1, per_epoch)
    rows = order(len(corpus), run.train.seed, epoch)[place * size : (place + 1) * size]
    tokens = corpus.batch(rows, 0)
    positives = corpus.batch(rows, 1) if len(corpus.columns) > 1 else None
    return Batch(
        step=step,
        tokens=tokens,
        moved=move(tokens, positives, parts, run.train.seed, step),
        hard=corpus.batch(rows, 2) if len(corpus.columns) > 2 else None,
        weights=None if corpus.weights is None else torch.from_numpy(corpus.weights[rows]),
        further=further(tokens, parts, run.train.seed, step),
    )


@torch.no_grad()
def check_dropout(encoder: Encoder, corpus: Corpus) -> None:
    """Refuse an encoder whose two training-mode passes agree: its two views would be one."""
    # Enough rows that even a small rate drops something in one of them.
    tokens = corpus.batch(np.arange(min(len(corpus), 64)), 0)
    modes = encoder.training
    encoder.train()
    with torch.random.fork_rng():
        first, second = encoder.pooled(tokens).last, encoder.pooled(tokens).last
    encoder.train(modes)
    if torch.equal(first, second):
        raise UsageError(
            f"{encoder.name} has no dropout, so its two views of a sentence would be the same; "
            "set it with --dropout 0.1"
        )


def _sample(corpus: Corpus, tokenizer: Any, n: int, seed: int) -> list[str]:
    """`n` sentences of the corpus, drawn by the seed, decoded from their tokens."""
    rows = order(len(corpus), seed, -1)[:n]
    tokens = corpus.batch(rows, 0)
    kept = [ids[:length] for ids, length in zip(tokens.ids, tokens.lengths, strict=True)]
    return list(tokenizer.batch_decode(kept, skip_special_tokens=True))


def _save(
    folder: RunFolder,
    encoder: Encoder,
    record: dict[str, Any],
    progress: Progress,
    score: float | None,
) -> None:
    """Write this step's checkpoint; publish it where it is the best, and drop what is neither."""
    step = progress.step
    full = record | {"step": step, "dev_score": score, "best_step": progress.best_step}
    checkpoint.save(folder.step(step), encoder, full, model_card(full))
    if progress.best_step == step:
        checkpoint.publish(folder.step(step), folder.root)
    folder.keep_steps(progress.best_step, step)
