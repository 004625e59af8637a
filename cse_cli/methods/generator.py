"""The frozen generator: any masked language model that shares the encoder's vocabulary."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor

from cse_cli.backbone import load_config, load_tokenizer, load_weights
from cse_cli.errors import InputError, UsageError
from cse_cli.lanes import beside
from cse_cli.loading import length_limit
from cse_cli.methods.edits import Edit
from cse_cli.methods.passes import length_groups, model_inputs, wanted_logits


def masked_lm_config(source: str) -> Any:
    """The configuration of a hub id or folder; InputError where its family has no masked LM."""
    from transformers import AutoModelForMaskedLM

    config = load_config(source)
    if type(config) not in AutoModelForMaskedLM._model_mapping:
        raise InputError(f"{source}: a {config.model_type} model is no masked language model")
    return config


def load_masked_lm(source: str) -> tuple[Any, bool]:
    """(masked language model, whether its head was in the checkpoint) of a hub id or folder."""
    from transformers import AutoModelForMaskedLM

    model, report = load_weights(AutoModelForMaskedLM, source, masked_lm_config(source))
    return model, not report["missing_keys"]


def check_vocabulary(source: str, tokenizer: Any, generator: str | None) -> None:
    """Refuse a `generator` whose tokens are not those of the encoder at `source`; no weights read.

    Raises UsageError where the encoder has no mask token or the vocabularies differ, InputError
    where `generator` is not there or no masked language model.
    """
    if tokenizer.mask_token_id is None:
        raise UsageError(f"{source}: its tokenizer has no mask token, which replaced-tokens needs")
    if generator is None:
        return
    masked_lm_config(generator)
    other = load_tokenizer(generator)
    same = other.get_vocab() == tokenizer.get_vocab()
    if not same or other.mask_token_id != tokenizer.mask_token_id:
        raise UsageError(
            f"--generator {generator}: its vocabulary is not that of {source}; take a masked "
            "language model with the same tokenizer"
        )


def draw_tokens(logits: Tensor, lots: Tensor | None) -> Tensor:
    """One id for each row of `logits` (M, V): drawn by `lots` (M,) in [0, 1), or the likeliest.

    The draw inverts the distribution function, so one number a position decides it.
    """
    if lots is None:
        return logits.argmax(-1)
    if torch.are_deterministic_algorithms_enabled():
        logits, lots = logits.cpu(), lots.cpu()  # a GPU's running sum is refused there
    reached = logits.softmax(-1).cumsum(-1)  # (M, V)
    wanted = lots[:, None] * reached[:, -1:]
    found = torch.searchsorted(reached, wanted, right=True).squeeze(-1)
    return found.clamp_max(logits.shape[-1] - 1)


class Generator:
    """Fills [MASK]s without gradient, in evaluation mode.

    No `nn.Module` on purpose: what is frozen stays out of the optimiser, the resume state and
    `train()`. `size` is the tokenizer's; ids beyond it (padding of a vocabulary) are never given.
    """

    def __init__(self, model: Any, size: int):
        self.model = model.eval().requires_grad_(False)
        self.size = size

    @classmethod
    def load(cls, source: str, tokenizer: Any, device: torch.device, *, named: bool) -> "Generator":
        """The generator at `source`; `named` by an option, or else the encoder's own start.

        Raises UsageError where the start has no head to fill masks with, InputError where the
        named model has none.
        """
        model, whole = load_masked_lm(source)
        if not whole and named:
            raise InputError(f"--generator {source}: the weights lack a masked-language-model head")
        if not whole:
            raise UsageError(
                f"{source} has no masked-language-model head to edit sentences with; name a model "
                "that has one with --generator"
            )
        return cls(model.to(device), len(tokenizer))

    def limit(self, tokenizer: Any) -> int:
        """The longest row, in tokens, that it has positions for."""
        return length_limit(self.model, tokenizer)

    @torch.no_grad()
    def fill(
        self,
        edit: Edit,
        lots: Tensor | None,
        autocast: Callable[[], AbstractContextManager[object]] = nullcontext,
    ) -> Tensor:
        """The rows x'' (R, T): `edit.tokens` with the generator's ids at `edit.fill`.

        `lots` (R, T) in [0, 1) draw them; without lots they are the likeliest ones.
        """
        device = self.model.device
        filled = edit.tokens.ids.clone()
        asked = edit.fill.any(1).nonzero().squeeze(1)
        tokens = edit.tokens.select(asked)

        with wanted_logits(self.model) as logits_at:

            def drawn(part: tuple[Tensor, int]) -> tuple[Tensor, int, Tensor, Tensor]:
                """A group's rows, their width, where they are filled and with which ids."""
                group, width = part
                rows = asked[group]
                where = edit.fill[rows, :width]
                with autocast():
                    logits = logits_at(model_inputs(tokens, group, width, device), where.to(device))
                chosen = lots[rows, :width][where].to(device) if lots is not None else None
                ids = draw_tokens(logits[:, : self.size].float(), chosen).cpu()
                return rows, width, where, ids

            groups = list(length_groups(tokens, device)) if len(asked) else []
            lanes = torch.get_num_threads() if device.type == "cpu" else 1
            for rows, width, where, ids in beside(drawn, groups, lanes):
                filled[rows, :width] = filled[rows, :width].masked_scatter(where, ids)
        return filled
