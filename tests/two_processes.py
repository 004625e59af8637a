"""Two training steps with each ingredient: the program that `test_distributed.py` runs.

    python -m tests.two_processes MODEL CORPUS TRIPLETS OUT [NAME …]
    torchrun --nproc-per-node 2 -m tests.two_processes MODEL CORPUS TRIPLETS OUT [NAME …]

writes OUT/NAME.safetensors: loss, measured numbers and all gradients of both steps. Dropout is 0,
so that the rows' vectors do not depend on who encodes them; larger weights than a new BERT has keep
its vectors apart, and so gradients well above rounding; plain gradient descent in between, so that
queues and other memories are filled by a changed encoder.
"""

import sys
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from cse_cli.methods.resolve import resolve
from cse_cli.training import distributed, setup
from cse_cli.training.folder import RunFolder
from cse_cli.training.step import diagnostics, training_step

BATCH, RATE, SPREAD = 64, 1e-3, 5
NONE, BATCHNORM = "simcse", "batchnorm"  # plain SimCSE, and behind a head with BatchNorm


def measured(name: str, model: str, corpus: str, triplets: str, out: Path) -> dict[str, Tensor]:
    """What two steps of plain SimCSE with the ingredient `name` leave behind."""
    values: dict[str, object] = {"model": model, "pooler": "cls", "select": "last", "device": "cpu"}
    values |= {"train_file": (corpus,), "batch_size": BATCH, "precision": "fp32"}
    values["gradient_shares"] = 1
    if name == BATCHNORM:
        values["head"] = "batchnorm"  # its statistics must be those of the whole batch
    elif name != NONE:
        values["with_"] = (name,)
    if name == "hard-negatives":
        values |= {"train_file": (triplets,), "triplet_columns": "a,b,c"}
    training = setup.build(resolve(values), RunFolder(out), lambda row: None)
    modules = nn.ModuleList((training.encoder, *training.parts)).train()
    for parameter in training.encoder.backbone.parameters():
        if parameter.ndim == 2:
            parameter.data *= SPREAD
    if name == BATCHNORM:
        modules.double()  # normalising near-equal rows blows rounding up
    found: dict[str, Tensor] = {}
    for step in (1, 2):
        modules.zero_grad(set_to_none=True)
        outcome = training_step(
            training.batch(step), training.encoder, training.parts, training.step_config
        )
        found[f"{step}/loss"] = outcome.loss
        found[f"{step}/alignment"] = outcome.alignment
        for key, parameter in modules.named_parameters():
            if parameter.grad is not None:
                found[f"{step}/gradient/{key}"] = parameter.grad.clone()
                parameter.data -= RATE * parameter.grad
        for part in training.parts:
            part.after_step(outcome.views)
        for key, value in (diagnostics(training.parts) | outcome.shares).items():
            found[f"{step}/diagnostics/{key}"] = torch.as_tensor(value, dtype=torch.float64)
    return found


def main() -> None:
    """Measure every ingredient named, one after the other."""
    model, corpus, triplets, folder, *names = sys.argv[1:]
    torch.set_num_threads(1)
    setup.check_dropout = lambda *_: None  # the one that is 0 on purpose
    distributed.start("cpu")
    for name in names:
        found = measured(name, model, corpus, triplets, Path(folder))
        if distributed.rank() == 0:
            save_file(found, Path(folder) / f"{name}.safetensors")
    distributed.stop()


if __name__ == "__main__":
    main()
