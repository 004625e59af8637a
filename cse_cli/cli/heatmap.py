"""`cse probe-smoothing --heatmap`: the cosines between the tokens of one sentence."""

from typing import TYPE_CHECKING, Any

from cse_cli.cli.options import Loading
from cse_cli.cli.probes import Probe, open_each
from cse_cli.errors import UsageError

if TYPE_CHECKING:
    from cse_cli.encoder import Encoder
    from cse_cli.tasks.smoothing import TokenMatrix


def special_ids(encoder: "Encoder", ignored: bool) -> list[int]:
    """The ids of [CLS] and [SEP], or of what the model has in their place; none unless ignored."""
    names = ("cls_token_id", "sep_token_id", "bos_token_id", "eos_token_id")
    found = [getattr(encoder.tokenizer, name, None) for name in names]
    return sorted({i for i in found if i is not None}) if ignored else []


def matrices(
    models: dict[str, str], loading: Loading, sentence: str, layer: int, no_special: bool
) -> Probe:
    """The token-by-token cosines of `sentence` under each model, side by side (SSCL Figure 5).

    Raises UsageError for a layer that a model does not have.
    """
    from functools import partial

    from cse_cli.results import Table
    from cse_cli.tasks.smoothing import token_matrix

    found, table = [], Table()
    for label, encoder in open_each(models, loading):
        top = encoder.num_layers
        if not -top - 1 <= layer <= top:
            raise UsageError(
                f"--layer {layer}: {label} has the layers 0 … {top}, or -1 for the last"
            )
        matrix = token_matrix(
            encoder.stream,
            sentence,
            model=label,
            layer=layer,
            names=partial(_token_names, encoder),
            ignore=special_ids(encoder, no_special),
        )
        found.append(matrix)
        table.extend(matrix.rows())

    def draw() -> Any:
        from cse_cli.figures import Matrix, draw_token_matrices

        return draw_token_matrices(
            [Matrix(f"{m.model}, layer {m.layer}", m.tokens, m.cosines) for m in found]
        )

    return Probe(table, [_readable(matrix) for matrix in found], draw)


def _token_names(encoder: "Encoder", ids: list[int]) -> list[str]:
    """What each token reads as; its name in the vocabulary where it has no text of its own."""
    names = encoder.tokenizer.convert_ids_to_tokens(ids)
    return [
        encoder.tokenizer.decode([i]).strip() or name for i, name in zip(ids, names, strict=True)
    ]


def _readable(matrix: "TokenMatrix") -> tuple[str, Any]:
    """The matrix as a frame with the tokens on both sides."""
    import pandas as pd

    lines = [
        [token, *(f"{cosine:.2f}" for cosine in row)]
        for token, row in zip(matrix.tokens, matrix.cosines, strict=True)
    ]
    frame = pd.DataFrame(lines, columns=["", *matrix.tokens])
    return f"{matrix.model}, layer {matrix.layer}: cosine between tokens", frame
