"""What evaluating commands start from: the data folder and an open encoder."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cse_cli.encoder import Encoder


def data_folder(option: Path | None) -> Path | None:
    """The SentEval folder: `--data-dir`, else CSE_DATA, else `data_dir` of [tool.cse], else None.

    Raises InputError where the folder that is configured does not exist.
    """
    from cse_cli.config.sources import project_settings
    from cse_cli.data.locate import resolve_data_dir

    folder = resolve_data_dir(option)
    if folder is None:
        configured = project_settings(Path("pyproject.toml")).get("data_dir")
        folder = resolve_data_dir(None if configured is None else str(configured))
    return folder


def open_encoder(
    name: str,
    *,
    pooler: str | None = None,
    max_length: int | None = None,
    normalize: bool | None = None,
    precision: str = "fp32",
    device: str = "auto",
    threads: int | None = None,
    batch_tokens: int | None = None,
) -> "Encoder":
    """The encoder at `name`, for evaluation, as the shared options ask for it.

    Raises UsageError for a device, precision, pooler or length that cannot be had, InputError
    where the model is missing or unusable.
    """
    import torch

    from cse_cli.encoder import Encoder
    from cse_cli.memory import keep_freed_memory
    from cse_cli.training.precision import choose_device, choose_precision

    if threads is not None:
        torch.set_num_threads(threads)
    device = choose_device(device)
    if device == "cpu":
        keep_freed_memory()
    return Encoder.load(
        name,
        pooler=pooler,
        max_length=max_length,
        normalize=normalize,
        precision=choose_precision(precision, device),
        device=device,
        batch_tokens=batch_tokens,
    )


def describe(encoder: "Encoder", given: str) -> dict[str, Any]:
    """What the encoder `given` on the command line turned out to be, for the table's `config`."""
    return {
        "model": encoder.name,
        "source": given,
        "pooler": encoder.pooler,
        "max_length": encoder.max_length,
        "normalize": encoder.normalize,
    }
