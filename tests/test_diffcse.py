"""DiffCSE: the conditioned discriminator, the frozen generator, the loss, and what a run keeps."""

import dataclasses
import math
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.numpy import load_file
from torch import Tensor, nn

from cse_cli.backbone import find_blocks
from cse_cli.data.tokens import Tokens
from cse_cli.dropout import dropout_off
from cse_cli.encoder import Encoder
from cse_cli.methods.base import Needs, Views
from cse_cli.methods.diffcse import ReplacedTokens, conditioned
from cse_cli.training.precision import autocast
from cse_cli.training.step import diagnostics, encode_views
from tests.families import FAMILIES, WIDTH, make_family
from tests.runs import SMALL, rows, same_checkpoint, same_state, train
from tests.trainer import Trainer, make_trainer


@pytest.fixture
def diffcse(tiny_bert: Path, corpus_file: Path):
    """Makes a trainer of DiffCSE on the tiny BERT."""

    def make(**settings: object) -> Trainer:
        return make_trainer(tiny_bert, corpus_file, method="diffcse", **settings)

    return make


def views_of(t: Trainer) -> Views:
    torch.manual_seed(0)
    return encode_views(t.batch(1), t.encoder, Needs(), t.config)[1]


def loss_without_dropout(part: ReplacedTokens, z: Views) -> Tensor:
    with dropout_off(part):
        loss = part.loss(z, torch.empty(0))
    assert loss is not None
    return loss


# --------------------------------------------------------------------------- the discriminator


@pytest.mark.parametrize("family", FAMILIES)
def test_the_vector_stands_in_for_the_first_token(family: str, tmp_path: Path) -> None:
    encoder = Encoder.load(str(make_family(family, tmp_path / family)), pooler="cls")
    ids = torch.tensor([[2, 6, 7, 8, 3], [2, 9, 10, 3, 0]])
    inputs = {"attention_mask": (ids != 0).long()}
    vectors = torch.randn(2, WIDTH, requires_grad=True)
    block = find_blocks(encoder.backbone)[0]
    seen: list[Tensor] = []

    def look(_module: nn.Module, args: tuple[Tensor, ...], kwargs: dict[str, Tensor]) -> None:
        seen.append(args[0] if args else kwargs["hidden_states"])

    def run(rows: Tensor, condition: bool) -> Tensor:
        if not condition:
            return encoder.backbone(rows, **inputs).last_hidden_state
        with conditioned(encoder.backbone) as states_given:
            hook = block.register_forward_pre_hook(look, with_kwargs=True)
            states = states_given(vectors, input_ids=rows, **inputs)
            hook.remove()
        return states

    hook = block.register_forward_pre_hook(look, with_kwargs=True)
    plain = run(ids, condition=False)
    hook.remove()
    changed = run(ids, condition=True)
    assert seen[1][:, 0].equal(vectors)
    assert seen[1][:, 1:].equal(seen[0][:, 1:])  # no other position is touched
    others = ids.clone()
    others[:, 0] = 11
    assert run(others, condition=True).equal(changed)  # what stood at position 0 is gone
    assert not changed[:, 1:].isclose(plain[:, 1:]).all()  # and the vector is read elsewhere
    changed[:, 1:3].square().sum().backward()
    assert (vectors.grad.abs().sum(1) > 0).all()
    assert run(ids, condition=False).equal(plain)  # the hook is gone


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_takes_a_step(family: str, tmp_path: Path, corpus_file: Path) -> None:
    t = make_trainer(make_family(family, tmp_path / family), corpus_file, method="diffcse")
    (part,) = t.parts
    before = [p.clone() for p in part.discriminator.parameters()]
    assert t.step(1).loss.isfinite()
    assert any(not a.equal(b) for a, b in zip(before, part.discriminator.parameters(), strict=True))


def test_the_conditioned_forward_is_the_blocks_on_a_changed_embedding(tiny_bert: Path) -> None:
    backbone = Encoder.load(str(tiny_bert), pooler="cls").backbone
    ids, vectors = torch.tensor([[2, 6, 7, 8, 3]]), torch.randn(1, 32)
    states = backbone.embeddings(ids)
    states = torch.cat([vectors[:, None], states[:, 1:]], 1)
    for layer in backbone.encoder.layer:
        found = layer(states)
        states = found if isinstance(found, Tensor) else found[0]
    with conditioned(backbone) as states_given:
        torch.testing.assert_close(states_given(vectors, input_ids=ids), states)


def test_the_discriminator_starts_as_the_encoder_and_leaves_it(diffcse) -> None:
    t = diffcse()
    copied, own = t.parts[0].discriminator.backbone, t.encoder.backbone
    for a, b in zip(copied.parameters(), own.parameters(), strict=True):
        assert torch.equal(a, b)
        assert a is not b
    t.step(1)
    assert not all(
        torch.equal(a, b) for a, b in zip(copied.parameters(), own.parameters(), strict=True)
    )


# -------------------------------------------------------------------------------------- the loss


@pytest.mark.parametrize("reduction", ["mean", "sum", "released"])
@pytest.mark.parametrize("edit", ["mask", "insert", "delete", "released"])
def test_the_loss_is_a_loop_over_tokens(diffcse, edit: str, reduction: str) -> None:
    t = diffcse(edit=edit, rtd_reduction=reduction, rtd_weight=0.5)
    (part,) = t.parts
    z = views_of(t)
    found = loss_without_dropout(part, z).item()

    both = Tokens.cat([z.tokens, z.moved])
    drawn, lots = part.editor.draw(both, z.rng("replaced-tokens"))
    edited = part.editor.fill(drawn, lots)
    vectors, width = torch.cat([z.h, z.p]), edited.ids.shape[1]
    total, tokens, hits = 0.0, 0, {0: [], 1: []}
    with dropout_off(part), torch.no_grad():
        for i, n in enumerate(edited.lengths.tolist()):
            wide = width if reduction == "released" else n
            row = edited.select(slice(i, i + 1)).narrowed(wide)
            scores = part.discriminator(row, vectors[i : i + 1], padding=True)[0]
            for place, (kept, replaced) in enumerate(scores.tolist()):
                label = int(place < n and edited.ids[i, place] != drawn.original[i, place])
                total += math.log(math.exp(kept) + math.exp(replaced)) - (kept, replaced)[label]
                tokens += 1
                if place < n:
                    hits[label].append(int(replaced > kept) == label)
    expected = 0.5 * total / (1 if reduction == "sum" else tokens)
    assert found == pytest.approx(expected, rel=1e-5)
    seen = diagnostics(t.parts)
    assert float(seen["rtd_accuracy_replaced"]) == pytest.approx(sum(hits[1]) / len(hits[1]))
    assert float(seen["rtd_accuracy_kept"]) == pytest.approx(sum(hits[0]) / len(hits[0]))
    assert float(seen["replaced_share"]) == pytest.approx(
        len(hits[1]) / (len(hits[0]) + len(hits[1]))
    )


@pytest.mark.parametrize(("kind", "ratio"), [("mask", 0.3), ("insert", 0.15), ("delete", 0.15)])
@pytest.mark.parametrize("named", ["itself", "all"])
def test_masks_and_other_edits_have_a_share_of_their_own(
    diffcse, kind: str, ratio: float, named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cse_cli.methods.editor.kind_of_edit", lambda _name, _rng: kind)
    editor = diffcse(edit=kind if named == "itself" else "all").parts[0].editor
    ids = torch.full((4, 42), 9)
    ids[:, 0], ids[:, -1] = 2, 3
    rows = Tokens(ids, torch.full((4,), 42), ids == 9, 0)
    drawn, _ = editor.draw(rows, torch.Generator().manual_seed(0))
    count = round(40 * ratio)
    if kind == "mask":
        assert drawn.fill.sum(1).tolist() == [count] * 4
    else:
        grown = count if kind == "insert" else -count
        assert (drawn.tokens.lengths - rows.lengths).tolist() == [grown] * 4


@pytest.mark.parametrize("reduction", ["mean", "sum", "released"])
def test_the_mean_over_processes_is_the_whole_loss(diffcse, reduction: str) -> None:
    t = diffcse(edit="insert", rtd_reduction=reduction)
    (part,) = t.parts
    z = views_of(t)
    whole = loss_without_dropout(part, z)
    (expected,) = torch.autograd.grad(whole, z.p, retain_graph=True)
    gradients, losses = [], []
    for mine in (slice(0, 4), slice(4, 8)):
        loss = loss_without_dropout(part, dataclasses.replace(z, mine=mine))
        losses.append(loss.detach())
        gradients.append(torch.autograd.grad(loss, z.p, retain_graph=True)[0])
    torch.testing.assert_close(sum(losses) / 2, whole)
    torch.testing.assert_close(sum(gradients) / 2, expected)


def test_chunks_bound_memory_and_change_nothing(diffcse) -> None:
    t = diffcse()
    part = t.parts[0].eval()  # also in the backward pass, which computes chunks anew
    z = views_of(t)

    def gradient(chunk_size: int | None) -> tuple[Tensor, list[Tensor]]:
        loss = part.loss(dataclasses.replace(z, chunk_size=chunk_size), torch.empty(0))
        wanted = [z.h, *part.discriminator.output.parameters()]
        return loss.detach(), list(torch.autograd.grad(loss, wanted, retain_graph=True))

    (loss, whole), (again, chunked) = gradient(None), gradient(3)
    torch.testing.assert_close(again, loss)
    for a, b in zip(whole, chunked, strict=True):
        torch.testing.assert_close(b, a)


def test_chunks_replay_their_dropout(diffcse) -> None:
    t = diffcse()
    (part,) = t.parts
    z = views_of(t)

    def gradient(chunk_size: int | None) -> Tensor:
        torch.manual_seed(5)
        loss = part.loss(dataclasses.replace(z, chunk_size=chunk_size), torch.empty(0))
        return torch.autograd.grad(loss, z.h, retain_graph=True)[0]

    torch.testing.assert_close(gradient(1000), gradient(None))
    assert not gradient(None).isclose(gradient(3)).all()  # dropout was on


def test_a_step_on_two_threads_is_the_same_bits_each_time(diffcse) -> None:
    """Generator and discriminator go in lanes, too; bf16 casts may not depend on timing."""

    def gradients(precision: str, threads: int) -> list[Tensor]:
        torch.set_num_threads(threads)
        t = diffcse()
        t.config = dataclasses.replace(t.config, autocast=autocast(precision, "cpu"))
        t.measure(1)
        modules = (t.encoder, t.parts[0])
        return [p.grad.clone() for m in modules for p in m.parameters() if p.grad is not None]

    before = torch.get_num_threads()
    try:
        for precision in ("fp32", "bf16"):
            first, again = gradients(precision, 2), gradients(precision, 2)
            assert len(first) == len(again)
            assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
        for one, two in zip(gradients("fp32", 1), gradients("fp32", 2), strict=True):
            torch.testing.assert_close(one, two, rtol=1e-3, atol=1e-3)  # the same draws
    finally:
        torch.set_num_threads(before)


def test_gradient_reaches_encoder_head_and_discriminator_but_not_the_generator(diffcse) -> None:
    t = diffcse(contrastive_weight=0.0)
    t.measure(1)
    for module in (t.encoder.head, t.parts[0].discriminator):
        assert all(p.grad.abs().sum() > 0 for p in module.parameters() if p.grad is not None)
    assert t.parts[0].discriminator.output.weight.grad.abs().sum() > 0
    assert t.encoder.backbone.encoder.layer[0].attention.self.value.weight.grad.abs().sum() > 0
    frozen = list(t.parts[0].editor.generator.model.parameters())
    assert all(p.grad is None and not p.requires_grad for p in frozen)
    trained = {id(p) for p in (*t.encoder.parameters(), *t.parts[0].parameters())}
    assert not any(id(p) in trained for p in frozen)


def test_batchnorm_sees_both_views_at_once(diffcse) -> None:
    t = diffcse()
    assert t.run.train.head == "batchnorm"
    z = views_of(t)
    rows = torch.cat([z.h, z.p])
    torch.testing.assert_close(rows.mean(0), torch.zeros(32), atol=1e-5, rtol=0)
    torch.testing.assert_close(rows.var(0, correction=0), torch.ones(32), atol=1e-3, rtol=0)
    assert z.h.mean(0).abs().max() > 1e-3
    plain = diffcse(head="tanh")  # the ablation without BatchNorm
    assert not [m for m in plain.encoder.head.modules() if isinstance(m, nn.BatchNorm1d)]
    assert plain.step(1).loss.isfinite()


# ---------------------------------------------------------------------------------- a whole run


@pytest.fixture(scope="module")
def run_folder(
    tiny_bert: Path, corpus_file: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    out = tmp_path_factory.mktemp("diffcse") / "run"
    words = ("--model", tiny_bert, "--train-file", corpus_file, "--method", "diffcse", *SMALL)
    result = train(*words, "--max-steps", 4, "--save-steps", 2, "--select", "last", "--out", out)
    assert result.exit_code == 0, result.stderr
    return out


def test_the_saved_encoder_is_the_encoder_alone(run_folder: Path, tiny_bert: Path) -> None:
    saved = load_file(run_folder / "model.safetensors")
    backbone = Encoder.load(str(tiny_bert), pooler="cls").backbone
    assert set(saved) == set(backbone.state_dict())
    assert not Encoder.load(str(run_folder)).keep_head


def test_the_state_keeps_discriminator_and_projector_with_their_moments(run_folder: Path) -> None:
    state = run_folder / "train" / "state" / "step-4"
    parts, encoder = (
        load_file(state / "parts.safetensors"),
        load_file(state / "encoder.safetensors"),
    )
    assert {key.split(".")[1] for key in parts} == {"discriminator"}
    assert any(key.startswith("head.1.running") for key in encoder)
    moments = load_file(state / "optimizer.safetensors")
    trained = [k for k in (*parts, *encoder) if "running" not in k and "num_batches" not in k]
    assert len({key.split("/")[0] for key in moments}) == len(trained)


def test_a_resumed_run_ends_bit_for_bit_alike(run_folder: Path, tmp_path: Path) -> None:
    again = tmp_path / "again"
    shutil.copytree(run_folder, again)
    shutil.rmtree(again / "train" / "state" / "step-4")
    result = train("--resume", "--out", again)
    assert result.exit_code == 0, result.stderr
    assert same_state(run_folder, again)
    assert same_checkpoint(run_folder, again)


def test_metrics_tell_the_detectors_accuracy(run_folder: Path) -> None:
    for row in rows(run_folder):
        assert 0 < row["replaced_share"] < 0.5
        assert 0 <= row["rtd_accuracy_kept"] <= 1
        assert row["loss/ReplacedTokens"] > 0
