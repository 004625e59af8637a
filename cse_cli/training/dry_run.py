"""`--dry-run`: what a run would do, without training a step."""

from typing import Any

from cse_cli.backbone import dropout_rates
from cse_cli.data.builtin import DEMO_NOTICE
from cse_cli.data.report import corpus_report
from cse_cli.methods.resolve import Run
from cse_cli.progress import warn
from cse_cli.training.checks import check_model
from cse_cli.training.setup import find_source, open_run_corpus, total_steps

MIB = 2**20
TRAINED, FROZEN = 16, 4  # bytes a parameter: weight, gradient, two moments; or the weight alone
# What ingredients hold beside the encoder: trained and frozen models of its size, and further
# activations, as a share of those of both views. A generator is counted as large as the encoder.
BESIDE: dict[str, tuple[int, int, float]] = {
    "momentum-queue": (0, 1, 0.0),
    "off-dropout": (0, 0, 0.5),
    "masked-lm": (0, 0, 1.0),
    "hard-negatives": (0, 0, 0.5),
    "replaced-tokens": (1, 1, 1.0),
}


def _beside(name: str, config: Any) -> tuple[int, int, float]:
    """What the ingredient `name` holds beside the encoder, with its settings."""
    if name == "replaced-tokens" and config.edited_as != "rtd":
        return 0, 1, 0.5  # no discriminator, and one row more a sentence
    if name == "noise-study" and config.noise_study.endswith("-"):
        return 0, 0, float(config.noise_passes)
    return BESIDE.get(name, (0, 0, 0.0))


def describe(run: Run) -> dict[str, Any]:
    """Steps, tokens, a memory estimate, dropout rates, the corpus's duplicates and lengths."""
    source = find_source(run)
    if source.demo:
        warn(DEMO_NOTICE)
    config, tokenizer = check_model(run, source.model)
    corpus = open_run_corpus(run, source, tokenizer)
    steps = total_steps(run, len(corpus))
    report = corpus_report(corpus)
    return {
        "steps": steps,
        "sentences": steps * run.train.batch_size,
        "tokens_per_step": round(2 * run.train.batch_size * float(corpus.lengths.mean())),
        "memory_mib": memory_estimate(run, config),
        "dropout": dropout_rates(config),
        "ingredients": run.ingredients,
        "corpus": report,
    }


def memory_estimate(run: Run, config: Any) -> int:
    """MiB that training needs, roughly: weights, gradients, two moments, and activations.

    Activations by Korthikanti et al. (2022), Eq. 2: s b h (34 + 5 a s / h) bytes a block at two
    bytes a number, for both views or for one chunk of the gradient cache; what ingredients add is
    in `BESIDE`.
    """
    width, length = config.hidden_size, run.train.max_length
    depth = config.num_hidden_layers
    inner = getattr(config, "intermediate_size", 4 * width)
    parameters = config.vocab_size * width + depth * (4 * width * width + 2 * width * inner)
    rows = run.train.chunk_size or 2 * run.train.batch_size
    size = 4 if run.train.precision == "fp32" else 2
    share = 34 + 5 * config.num_attention_heads * length / width
    activations = depth * length * rows * width * share * size / 2
    beside = [_beside(name, part) for name, part in run.parts]
    trained, frozen, further = (sum(column) for column in zip((1, 0, 1.0), *beside, strict=True))
    weights = parameters * (TRAINED * trained + FROZEN * frozen)
    return round((weights + activations * further) / MIB)
