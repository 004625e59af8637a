"""Edited sentences x'' = G(x'): an edit drawn for a batch, and the generator that fills it."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor

from cse_cli.config.generative import ReplacedTokensConfig
from cse_cli.data.tokens import Tokens
from cse_cli.encoder import Encoder
from cse_cli.loading import length_limit
from cse_cli.methods.edits import Edit, Vocabulary, edit, kind_of_edit
from cse_cli.methods.generator import Generator, check_vocabulary


class Editor:
    """Edits token rows as `config` says; holds the generator, which deletions do not need."""

    def __init__(self, config: ReplacedTokensConfig, encoder: Encoder):
        source = encoder.backbone.name_or_path
        check_vocabulary(source, encoder.tokenizer, config.generator)
        self.config = config
        self.words = Vocabulary.of(encoder.tokenizer)
        self.limit = length_limit(encoder.backbone, encoder.tokenizer)
        self.generator: Generator | None = None
        if config.edit != "delete":
            self.generator = Generator.load(
                config.generator or source,
                encoder.tokenizer,
                encoder.device,
                named=config.generator is not None,
            )
            self.limit = min(self.limit, self.generator.limit(encoder.tokenizer))

    def draw(self, tokens: Tokens, rng: torch.Generator) -> tuple[Edit, Tensor]:
        """The edit of all rows of a batch, and the lots (R, T) that decide the generator's ids."""
        config = self.config
        kind = kind_of_edit(config.edit, rng)
        ratio = config.edit_ratio if kind in ("insert", "delete") else config.mask_ratio
        drawn = edit(kind, tokens, ratio, self.words, rng, self.limit)
        return drawn, torch.rand(drawn.fill.shape, generator=rng)

    def fill(
        self,
        drawn: Edit,
        lots: Tensor,
        autocast: Callable[[], AbstractContextManager[object]] = nullcontext,
    ) -> Tokens:
        """The rows x'' of an edit, filled by the generator."""
        rows = drawn.tokens
        if self.generator is None:
            return rows
        sampled = lots if self.config.decode == "sample" else None
        ids = self.generator.fill(drawn, sampled, autocast)
        return Tokens(ids, rows.lengths, rows.starts, rows.pad_id)
