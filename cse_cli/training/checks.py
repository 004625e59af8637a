"""What a run's settings ask of its model, checked by configuration and tokenizer alone.

So a typing error is told before the corpus is read and any weight is loaded.
"""

from typing import Any

from cse_cli import checkpoint
from cse_cli.backbone import configure, load_tokenizer, outline
from cse_cli.config.generative import ReplacedTokensConfig
from cse_cli.encoder import check_layers
from cse_cli.layout import is_layout, read_layout
from cse_cli.loading import check_length, length_limit, locate
from cse_cli.methods.diffcse import check_family, check_vector_width
from cse_cli.methods.generator import check_vocabulary
from cse_cli.methods.resolve import Run


def backbone_folder(model: str) -> str:
    """What transformers is asked for: the backbone inside a checkpoint, or the name itself."""
    folder = checkpoint.resolve(locate(model))
    if is_layout(folder):
        return str(folder / read_layout(folder).backbone)
    return str(folder) if folder.exists() else model


def check_model(run: Run, model: str) -> tuple[Any, Any]:
    """(configuration, tokenizer) of the encoder that `run` trains from `model`.

    Raises UsageError for depths, lengths, block numbers, widths and generators that do not fit it,
    InputError for a model that is not there.
    """
    settings, folder = run.train, backbone_folder(model)
    config = configure(folder, num_layers=settings.num_layers, dropout=settings.dropout)
    tokenizer = load_tokenizer(folder)
    limit = length_limit(outline(config), tokenizer)
    check_length("--max-length", settings.max_length, limit)
    if settings.eval_length is not None:
        check_length("--eval-length", settings.eval_length, limit)
    for _, part in run.parts:
        check_layers(getattr(part, "neg_layer", ()), config.num_hidden_layers)
        if isinstance(part, ReplacedTokensConfig):
            if part.edited_as == "rtd":
                check_family(config.model_type)
                check_vector_width(settings.project_dim, config.hidden_size)
            check_vocabulary(folder, tokenizer, part.generator)
    return config, tokenizer
