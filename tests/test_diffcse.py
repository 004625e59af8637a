"""DiffCSE: the conditioned discriminator, the frozen generator, the loss, and what a run keeps."""

import dataclasses
import json
import math
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.numpy import load_file
from torch import Tensor, nn

from cse_cli.backbone import find_blocks
from cse_cli.data.tokens import Tokens
from cse_cli.encoder import Encoder, dropout_off
from cse_cli.errors import InputError, UsageError
from cse_cli.maths import cosine, info_nce
from cse_cli.methods.base import Needs, Views, draw
from cse_cli.methods.diffcse import ReplacedTokens, conditioned
from cse_cli.methods.edited_views import EditedViews
from cse_cli.methods.edits import Vocabulary, mask
from cse_cli.methods.generator import Generator, check_vocabulary
from cse_cli.training.step import encode_views
from tests.conftest import make_tiny_bert
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
        with conditioned(encoder.backbone, vectors):
            hook = block.register_forward_pre_hook(look, with_kwargs=True)
            states = encoder.backbone(rows, **inputs).last_hidden_state
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


def test_the_conditioned_forward_is_the_blocks_on_a_changed_embedding(tiny_bert: Path) -> None:
    backbone = Encoder.load(str(tiny_bert), pooler="cls").backbone
    ids, vectors = torch.tensor([[2, 6, 7, 8, 3]]), torch.randn(1, 32)
    states = backbone.embeddings(ids)
    states = torch.cat([vectors[:, None], states[:, 1:]], 1)
    for layer in backbone.encoder.layer:
        found = layer(states)
        states = found if isinstance(found, Tensor) else found[0]
    with conditioned(backbone, vectors):
        torch.testing.assert_close(backbone(ids).last_hidden_state, states)


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
            inputs = {
                "input_ids": edited.ids[i : i + 1, :wide],
                "attention_mask": edited.mask[i : i + 1, :wide].long(),
            }
            scores = part.discriminator(inputs, vectors[i : i + 1])[0]
            for place, (kept, replaced) in enumerate(scores.tolist()):
                label = int(place < n and edited.ids[i, place] != drawn.original[i, place])
                total += math.log(math.exp(kept) + math.exp(replaced)) - (kept, replaced)[label]
                tokens += 1
                if place < n:
                    hits[label].append(int(replaced > kept) == label)
    expected = 0.5 * total / (1 if reduction == "sum" else tokens)
    assert found == pytest.approx(expected, rel=1e-5)
    seen = part.diagnostics()
    assert float(seen["rtd_accuracy_replaced"]) == pytest.approx(sum(hits[1]) / len(hits[1]))
    assert float(seen["rtd_accuracy_kept"]) == pytest.approx(sum(hits[0]) / len(hits[0]))
    assert float(seen["replaced_share"]) == pytest.approx(
        len(hits[1]) / (len(hits[0]) + len(hits[1]))
    )


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


# --------------------------------------------------------------------------------- the generator


def generator(folder: Path, encoder: Encoder) -> Generator:
    return Generator.load(str(folder), encoder.tokenizer, torch.device("cpu"), named=True)


def test_the_generator_is_frozen_without_dropout_and_in_no_state(diffcse) -> None:
    t = diffcse()
    model = t.parts[0].editor.generator.model
    assert not any(module.training for module in model.modules())  # after part.train()
    assert all(key.startswith("discriminator.") for key in t.parts[0].state_dict())


@pytest.mark.parametrize("family", FAMILIES)
def test_masks_are_filled_by_the_whole_models_own_logits(family: str, tmp_path: Path) -> None:
    folder = make_family(family, tmp_path / family)
    encoder = Encoder.load(str(folder), pooler="cls")
    g = generator(folder, encoder)
    ids = [[2, 6, 7, 8, 3], [2, 9, 3], [2, 10, 11, 12, 13, 14, 3]]
    tokens = Tokens.from_rows(ids, encoder.tokenizer.pad_token_id)
    edit = mask(tokens, 0.5, Vocabulary.of(encoder.tokenizer), draw(0, 1, "edit"))
    found = g.fill(edit, None)
    with torch.no_grad():
        logits = g.model(edit.tokens.ids, attention_mask=tokens.mask.long()).logits
    best = torch.where(edit.fill, logits[..., : g.size].argmax(-1), edit.tokens.ids)
    assert found.equal(best)
    assert found[~edit.fill].equal(tokens.ids[~edit.fill])


def test_a_token_drawn_does_not_depend_on_the_other_rows(diffcse) -> None:
    t = diffcse()
    editor = t.parts[0].editor
    tokens = t.batch(1).tokens
    edit, lots = editor.draw(tokens, draw(0, 1, "a"))
    whole = editor.fill(edit, lots).ids
    some = torch.tensor([5, 2])
    assert editor.fill(edit.select(some), lots[some]).ids.equal(whole[some])
    assert not editor.fill(edit, lots.flip(0)).ids.equal(whole)


def test_released_replaces_even_the_separator(diffcse) -> None:
    t = diffcse(edit="released", decode="argmax")
    editor = t.parts[0].editor
    tokens = t.batch(1).tokens
    edit, lots = editor.draw(tokens, draw(0, 1, "a"))
    filled = editor.fill(edit, lots)
    replaced = edit.replaced(filled.ids)
    ends = tokens.lengths - 1
    assert replaced[torch.arange(len(ends)), ends].any()
    assert filled.ids[:, 0].equal(tokens.ids[:, 0])
    assert not replaced[~tokens.mask].any()


def test_another_family_width_and_depth_can_be_the_generator(diffcse, tmp_path: Path) -> None:
    other = make_family("distilbert", tmp_path / "distilbert")
    t = diffcse(generator=str(other))
    assert t.parts[0].editor.generator.model.config.model_type == "distilbert"
    assert t.step(1).loss.isfinite()


def test_deletions_need_no_generator(diffcse) -> None:
    t = diffcse(edit="delete")
    assert t.parts[0].editor.generator is None
    assert t.step(1).loss.isfinite()


def test_ids_beyond_the_tokenizer_are_never_given(tiny_bert: Path) -> None:
    encoder = Encoder.load(str(tiny_bert), pooler="cls")
    g = generator(tiny_bert, encoder)
    tokens = Tokens.from_rows([[2, 6, 7, 3]], 0)
    edit = mask(tokens, 1.0, Vocabulary.of(encoder.tokenizer), draw(0, 1, "edit"))
    bias = g.model.get_output_embeddings().bias
    bias[-1] = 1e9
    assert (g.fill(edit, None)[edit.fill] == len(bias) - 1).all()
    g.size -= 1
    assert (g.fill(edit, None)[edit.fill] < len(bias) - 1).all()


# -------------------------------------------------------------------------------------- refusals


def other_words(folder: Path) -> Path:
    """A model folder whose tokenizer has two words changed about."""
    path = make_tiny_bert(folder) / "tokenizer.json"
    text = json.loads(path.read_text())
    words = text["model"]["vocab"]
    words["dog"], words["cat"] = words["cat"], words["dog"]
    path.write_text(json.dumps(text))
    return folder


def without_head(folder: Path, source: Path) -> Path:
    from transformers import AutoModel, AutoTokenizer

    AutoModel.from_pretrained(source, add_pooling_layer=False).save_pretrained(folder)
    AutoTokenizer.from_pretrained(source).save_pretrained(folder)
    return folder


def test_another_vocabulary_is_refused_before_any_weights_are_read(
    tmp_path: Path, corpus_file: Path
) -> None:
    start, other = make_tiny_bert(tmp_path / "start"), other_words(tmp_path / "other")
    for folder in (start, other):
        (folder / "model.safetensors").write_bytes(b"no weights")
    words = ("--method", "diffcse", "--model", start, "--train-file", corpus_file)
    result = train(*words, "--generator", other, "--select", "last", "--out", tmp_path / "run")
    assert result.exit_code == 2
    assert result.stderr.count("\n") == 1
    assert f"--generator {other}: its vocabulary is not that of" in result.stderr


def test_a_tokenizer_without_a_mask_is_refused(tiny_bert: Path) -> None:
    tokenizer = Encoder.load(str(tiny_bert), pooler="cls").tokenizer
    tokenizer.mask_token = None
    with pytest.raises(UsageError, match="no mask token"):
        check_vocabulary("start", tokenizer, None)


def test_models_without_a_head_are_told_apart(
    tiny_bert: Path, corpus_file: Path, tmp_path: Path
) -> None:
    bare = without_head(tmp_path / "bare", tiny_bert)
    with pytest.raises(InputError, match="lack a masked-language-model head"):
        make_trainer(tiny_bert, corpus_file, method="diffcse", generator=str(bare))
    with pytest.raises(UsageError, match="name a model that has one with --generator"):
        make_trainer(bare, corpus_file, method="diffcse")
    t = make_trainer(bare, corpus_file, method="diffcse", generator=str(tiny_bert))
    assert t.step(1).loss.isfinite()


def test_albert_is_refused(tmp_path: Path, corpus_file: Path) -> None:
    from transformers import AlbertConfig, AlbertForMaskedLM

    folder = make_tiny_bert(tmp_path / "albert")
    sizes = {"hidden_size": 32, "num_attention_heads": 2, "intermediate_size": 64}
    config = AlbertConfig(vocab_size=80, embedding_size=16, num_hidden_layers=2, **sizes)
    AlbertForMaskedLM(config).save_pretrained(folder)
    words = ("--method", "diffcse", "--model", folder, "--train-file", corpus_file)
    result = train(*words, "--select", "last", "--out", tmp_path / "run")
    assert result.exit_code == 2
    assert "albert" in result.stderr


def test_a_vector_of_another_width_is_refused(diffcse) -> None:
    with pytest.raises(UsageError, match=r"--project-dim 8: .* must be 32 wide"):
        diffcse(project_dim=8)


# ---------------------------------------------------------------------------------- Appendix B


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
