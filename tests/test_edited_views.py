"""Edited sentences as further positives or negatives (DiffCSE, Appendix B)."""

from pathlib import Path

import pytest
import torch

from cse_cli.dropout import dropout_off
from cse_cli.maths import cosine, info_nce
from cse_cli.methods.base import Needs
from cse_cli.methods.edited_views import EditedViews
from cse_cli.training.step import encode_views
from tests.trainer import Trainer, make_trainer, write_triplets


@pytest.fixture
def diffcse(tiny_bert: Path, corpus_file: Path):
    """Makes a trainer of DiffCSE on the tiny BERT."""

    def make(**settings: object) -> Trainer:
        return make_trainer(tiny_bert, corpus_file, method="diffcse", **settings)

    return make


def test_edited_sentences_as_negatives_are_further_columns(diffcse) -> None:
    t = diffcse(edited_as="negative", decode="argmax")
    (part,) = t.parts
    assert isinstance(part, EditedViews)
    outcome = t.measure(1)
    z = outcome.views
    assert z.further.shape == (8, 32)
    columns = part.negatives(z)
    torch.testing.assert_close(columns, cosine(z.h, z.further) / 0.05)
    s = cosine(z.h, z.p) / 0.05
    torch.testing.assert_close(outcome.loss, info_nce(torch.cat([s, columns], 1)).detach())


def test_edited_sentences_as_positives_are_a_second_term(diffcse) -> None:
    t = diffcse(edited_as="positive")
    outcome = t.measure(1)
    z = outcome.views
    assert t.parts[0].negatives(z) is None
    expected = info_nce(cosine(z.h, z.p) / 0.05) + info_nce(cosine(z.h, z.further) / 0.05)
    torch.testing.assert_close(outcome.loss, expected.detach())


def test_the_further_view_is_the_edited_anchors_encoded(diffcse) -> None:
    t = diffcse(edited_as="negative", head="tanh")
    batch = t.batch(1)
    assert not batch.further.ids.equal(batch.tokens.ids)
    for module in (t.encoder, *t.parts):
        module.eval()
    z = encode_views(batch, t.encoder, Needs(passes=1), t.config)[1]
    expected = t.encoder.head(t.encoder.pooled(batch.further).last)
    torch.testing.assert_close(z.further, expected)
    torch.testing.assert_close(z.h, t.encoder.head(t.encoder.pooled(batch.tokens).last))


def test_a_column_of_hard_negatives_beside_it_stays_itself(
    tiny_bert: Path, sentences: list[str], tmp_path: Path
) -> None:
    file = write_triplets(tmp_path / "triplets.tsv", sentences)
    names = ["hard-negatives"]
    t = make_trainer(tiny_bert, file, names, method="diffcse", edited_as="negative", head="tanh")
    batch = t.batch(1)
    with dropout_off(t.encoder):
        z = encode_views(batch, t.encoder, Needs(), t.config)[1]
        hard = t.encoder.head(t.encoder.pooled(batch.hard).last)
        further = t.encoder.head(t.encoder.pooled(batch.further).last)
    torch.testing.assert_close(z.hard, hard)
    torch.testing.assert_close(z.further, further)
