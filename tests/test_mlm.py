"""The masked-language-modelling auxiliary: its loss, its head, and what is trained."""

import dataclasses
import math
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.numpy import load_file
from torch import Tensor, nn

from cse_cli.data.tokens import Tokens
from cse_cli.dropout import dropout_off
from cse_cli.encoder import Encoder
from cse_cli.errors import UsageError
from cse_cli.methods.base import Needs, Views
from cse_cli.methods.edits import choose, corrupt, edit_counts
from cse_cli.methods.mlm import MaskedLM, MaskedLMConfig, masked_lm_on
from cse_cli.training.step import encode_views
from tests.families import FAMILIES, make_family
from tests.masked_models import without_head
from tests.runs import SMALL, rows, same_state, train
from tests.trainer import Trainer, make_trainer


@pytest.fixture
def with_mlm(tiny_bert: Path, corpus_file: Path):
    """Makes a trainer of SimCSE with the auxiliary on the tiny BERT."""

    def make(**settings: object) -> Trainer:
        return make_trainer(tiny_bert, corpus_file, ["masked-lm"], **settings)

    return make


def views_of(t: Trainer) -> Views:
    torch.manual_seed(0)
    return encode_views(t.batch(1), t.encoder, Needs(), t.config)[1]


def loss_without_dropout(t: Trainer, z: Views) -> Tensor:
    with dropout_off(t.encoder):
        loss = t.parts[0].loss(z, torch.empty(0))
    assert loss is not None
    return loss


def test_the_loss_is_a_loop_over_masked_tokens(with_mlm, tiny_bert: Path) -> None:
    from transformers import AutoModelForMaskedLM

    t = with_mlm()
    (part,) = t.parts
    z = views_of(t)
    both = Tokens.cat([z.tokens, z.moved])
    rng = z.rng("masked-lm")
    content = part.words.content(both)
    chosen = choose(content, edit_counts(content.sum(1), 0.15), rng)
    assert not chosen[:8].equal(chosen[8:])  # each view has masks of its own
    ids = corrupt(both.ids, chosen, part.words, rng)
    model = AutoModelForMaskedLM.from_pretrained(tiny_bert).eval()
    total, count = 0.0, 0
    for i, n in enumerate(both.lengths.tolist()):
        with torch.no_grad():
            logits = model(ids[i : i + 1, :n]).logits[0].double()
        for place in chosen[i].nonzero().flatten().tolist():
            scores = logits[place].tolist()
            total += math.log(sum(map(math.exp, scores))) - scores[both.ids[i, place]]
            count += 1
    assert count >= 16
    assert loss_without_dropout(t, z).item() == pytest.approx(0.1 * total / count, rel=1e-5)


def test_the_mean_over_processes_is_the_whole_loss(with_mlm) -> None:
    t = with_mlm()
    z = views_of(t)
    parts = [
        loss_without_dropout(t, dataclasses.replace(z, mine=mine))
        for mine in (slice(0, 4), slice(4, 8))
    ]
    torch.testing.assert_close(sum(parts) / 2, loss_without_dropout(t, z))


def test_chunks_change_nothing(with_mlm) -> None:
    t = with_mlm()
    z = views_of(t)
    t.encoder.eval()
    weight = t.encoder.backbone.get_input_embeddings().weight

    def gradient(chunk_size: int | None) -> Tensor:
        loss = t.parts[0].loss(dataclasses.replace(z, chunk_size=chunk_size), torch.empty(0))
        return torch.autograd.grad(loss, weight)[0]

    torch.testing.assert_close(gradient(3), gradient(None))


@pytest.mark.parametrize("family", FAMILIES)
def test_the_body_is_the_encoder_and_the_head_the_checkpoints(family: str, tmp_path: Path) -> None:
    from transformers import AutoModelForMaskedLM

    folder = make_family(family, tmp_path / family)
    encoder = Encoder.load(str(folder), pooler="cls")
    model = masked_lm_on(encoder)
    assert model.base_model is encoder.backbone
    embeddings = encoder.backbone.get_input_embeddings().weight
    assert model.get_output_embeddings().weight is embeddings
    ids = torch.tensor([[2, 6, 7, 4, 8, 3]])
    whole = AutoModelForMaskedLM.from_pretrained(folder)
    with torch.no_grad():
        torch.testing.assert_close(model.eval()(ids).logits, whole.eval()(ids).logits)
    part = MaskedLM(MaskedLMConfig(), encoder)
    own = {id(p) for p in part.parameters()} - {id(embeddings)}
    assert own
    assert not own & {id(p) for p in encoder.parameters()}


def test_a_checkpoint_without_a_head_gets_a_fresh_one_and_is_told(
    tiny_bert: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    encoder = Encoder.load(str(without_head(tmp_path / "bare", tiny_bert)), pooler="cls")
    model = masked_lm_on(encoder)
    assert "has no masked-language-model head: a fresh one" in capsys.readouterr().err
    assert model.get_output_embeddings().weight is encoder.backbone.get_input_embeddings().weight
    assert isinstance(model.get_output_embeddings(), nn.Linear)


def test_no_mask_token_is_refused(tiny_bert: Path) -> None:
    encoder = Encoder.load(str(tiny_bert), pooler="cls")
    encoder.tokenizer.mask_token = None
    with pytest.raises(UsageError, match="no mask token"):
        MaskedLM(MaskedLMConfig(), encoder)


def test_gradient_reaches_the_encoder_and_the_head(with_mlm) -> None:
    t = with_mlm(contrastive_weight=0.0)
    t.measure(1)
    for module in (t.encoder.backbone, t.parts[0].head):
        for key, parameter in module.named_parameters():
            assert parameter.grad is not None, key
            # A key's bias shifts all of a query's scores alike: its gradient is zero by nature.
            assert parameter.grad.abs().sum() > 0 or "key.bias" in key, key


def test_training_improves_the_prediction_of_masked_tokens(with_mlm) -> None:
    t = with_mlm(contrastive_weight=0.0, mlm_weight=1.0)
    losses = [t.step(step).terms["MaskedLM"].item() for step in range(1, 21)]
    assert sum(losses[-5:]) < sum(losses[:5])


def test_the_state_keeps_the_head_and_resuming_is_exact(
    tiny_bert: Path, corpus_file: Path, tmp_path: Path
) -> None:
    out, again = tmp_path / "run", tmp_path / "again"
    words = ("--model", tiny_bert, "--train-file", corpus_file, "--with", "masked-lm", *SMALL)
    result = train(*words, "--max-steps", 4, "--save-steps", 2, "--select", "last", "--out", out)
    assert result.exit_code == 0, result.stderr
    assert all(row["loss/MaskedLM"] > 0 and "mlm_accuracy" in row for row in rows(out))
    backbone = Encoder.load(str(tiny_bert), pooler="cls").backbone
    assert set(load_file(out / "model.safetensors")) == set(backbone.state_dict())
    assert load_file(out / "train" / "state" / "step-4" / "parts.safetensors")

    shutil.copytree(out, again)
    shutil.rmtree(again / "train" / "state" / "step-4")
    result = train("--resume", "--out", again)
    assert result.exit_code == 0, result.stderr
    assert same_state(out, again)
