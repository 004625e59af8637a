"""Every subset of the ingredients takes a step on a toy encoder; those that cannot say why."""

import itertools
from pathlib import Path

import pytest

from cse_cli.errors import UsageError
from cse_cli.methods import CHANGE_LOGITS, INGREDIENTS
from tests.conftest import make_tiny_bert
from tests.trainer import make_trainer, write_triplets

SIZES = range(len(INGREDIENTS) + 1)


@pytest.mark.parametrize("size", SIZES)
def test_every_subset_trains(size: int, tmp_path: Path, sentences: list[str]) -> None:
    model = make_tiny_bert(tmp_path / "model")
    plain = tmp_path / "plain.txt"
    plain.write_text("\n".join(sentences[:16]) + "\n", encoding="utf-8")
    triplets = write_triplets(tmp_path / "triplets.tsv", sentences[:16])
    for names in itertools.combinations(INGREDIENTS, size):
        file = triplets if "hard-negatives" in names else plain
        options = {"noise_passes": 2} if "noise-study" in names else {}
        if set(names) >= CHANGE_LOGITS:
            with pytest.raises(UsageError, match="leave one out"):
                make_trainer(model, file, names, **options)
            continue
        trainer = make_trainer(model, file, names, **options)
        for step in (1, 2):
            outcome = trainer.step(step)
            assert outcome.loss.isfinite(), names
            gradients = [p.grad for p in trainer.encoder.backbone.encoder.parameters()]
            assert all(g is not None and g.isfinite().all() for g in gradients), names
