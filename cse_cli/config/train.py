"""The settings of a training run that belong to no single ingredient."""

from dataclasses import dataclass

from cse_cli.config.fields import option

METHOD, MODEL, DATA = "Method", "Model", "Data"
OPTIMISATION, EVALUATION, ENGINE = "Optimisation", "Evaluation", "Engine"
SEEDS = 2**32 - 1  # the largest seed: NumPy's, and far from where torch's end


@dataclass(frozen=True)
class TrainConfig:
    """One run of `cse train`; defaults are those of unsupervised SimCSE on BERT-base."""

    method: str = option(
        "simcse", "Method to train by; `cse methods` describes each.", panel=METHOD
    )
    with_: tuple[str, ...] = option(
        (),
        "Ingredient to add to the method (repeatable, in order).",
        panel=METHOD,
        metavar="NAME",
    )
    temperature: float = option(
        0.05, "Temperature of the contrastive loss.", panel=METHOD, above=0, high=10
    )
    contrastive_weight: float = option(
        1.0,
        "Weight of the contrastive term; 0 trains by the other terms alone.",
        panel=METHOD,
        low=0,
    )
    augmentation: bool = option(
        True,
        "Use a second dropout view as the positive; off, the anchor is its own positive.",
        panel=METHOD,
    )
    model: str | None = option(
        None, "Encoder to start from: hub id, model folder or checkpoint.", panel=MODEL
    )
    pooler: str | None = option(
        None,
        "From token states to one vector (default: the checkpoint's, else cls).",
        panel=MODEL,
        choices=("cls", "mean", "max", "first_last_mean", "layer1_last_mean", "top2_mean"),
    )
    head: str | None = option(
        None,
        "Head between pooler and loss (default: tanh for cls, none for other poolers).",
        panel=MODEL,
        choices=("tanh", "batchnorm", "linear", "none"),
    )
    project_dim: int | None = option(
        None,
        "Replace the head by a linear layer onto this many dimensions, kept at evaluation.",
        panel=MODEL,
        low=1,
    )
    num_layers: int | None = option(
        None, "Keep only the encoder's lowest blocks.", panel=MODEL, low=1
    )
    dropout: float | None = option(
        None,
        "Dropout rate of the encoder (default: the model's own).",
        panel=MODEL,
        low=0,
        high=0.99,
    )
    train_file: tuple[str, ...] = option(
        (),
        "Training text: .txt, .csv, .tsv, .jsonl, each also .gz, or - (repeatable).",
        panel=DATA,
        metavar="FILE",
    )
    text_column: str | None = option(
        None,
        "Column that holds the sentence in .csv, .tsv and .jsonl files (default: text, or the only"
        " one).",
        panel=DATA,
    )
    triplet_columns: str | None = option(
        None, "Columns ANCHOR,POSITIVE[,NEGATIVE] of a supervised file.", panel=DATA
    )
    weight_column: str | None = option(
        None, "Column with the weight of each row's hard negative.", panel=DATA
    )
    encoding: str = option("utf-8", "Text encoding of the training files.", panel=DATA)
    max_length: int = option(
        32, "Training length in tokens, special ones included.", panel=DATA, low=3
    )
    batch_size: int = option(
        64, "Sentences a step (over all processes).", panel=OPTIMISATION, low=2
    )
    learning_rate: float = option(3e-5, "Peak learning rate.", panel=OPTIMISATION, above=0)
    epochs: int = option(1, "Passes over the corpus.", panel=OPTIMISATION, low=1)
    max_steps: int | None = option(
        None, "Stop after this many steps (overrides --epochs).", panel=OPTIMISATION, low=1
    )
    schedule: str = option(
        "linear",
        "Learning rate after the warm-up.",
        panel=OPTIMISATION,
        choices=("linear", "cosine", "constant"),
    )
    warmup: float = option(
        0.0,
        "Warm-up: a share of the steps below 1, or a number of steps.",
        panel=OPTIMISATION,
        low=0,
    )
    clip: float = option(
        1.0, "Clip the gradient's norm here; 0 does not clip.", panel=OPTIMISATION, low=0
    )
    weight_decay: float = option(0.0, "AdamW's weight decay.", panel=OPTIMISATION, low=0)
    seed: int = option(42, "Seed of every random draw.", panel=OPTIMISATION, low=0, high=SEEDS)
    select: str = option(
        "stsb",
        "What picks the best step: stsb, transfer, uniformity, last or a PAIRS.tsv file.",
        panel=EVALUATION,
    )
    data_dir: str | None = option(
        None, "SentEval folder for --select (default: CSE_DATA).", panel=EVALUATION
    )
    eval_steps: int = option(125, "Steps between evaluations.", panel=EVALUATION, low=1)
    eval_length: int | None = option(
        None,
        "Evaluation length in tokens (default: the model's, at most 512).",
        panel=EVALUATION,
        low=3,
    )
    gradient_shares: int = option(
        0,
        "Log each loss term's share of the gradient every so many steps; 0 never does.",
        panel=EVALUATION,
        low=0,
    )
    save_steps: int = option(
        125, "Steps between resume states; 0 writes only the last.", panel=EVALUATION, low=0
    )
    precision: str = option(
        "auto",
        "Arithmetic of the encoder; auto takes bf16 where the processor has it.",
        panel=ENGINE,
        choices=("auto", "fp32", "bf16", "fp16"),
    )
    device: str = option("auto", "Device: auto, cpu, cuda or cuda:N.", panel=ENGINE)
    threads: int | None = option(
        None, "Processor threads (default: all cores).", panel=ENGINE, low=1, high=1024
    )
    chunk_size: int | None = option(
        None,
        "Rows encoded at a time (gradient cache): large batches in small memory.",
        panel=ENGINE,
        low=1,
    )
    compile: bool = option(False, "Compile the encoder (worth it on a GPU).", panel=ENGINE)
    deterministic: bool = option(
        False, "Deterministic GPU kernels, at some cost in speed.", panel=ENGINE
    )
