"""The training step against brute force, its variants, and the seam in chunks."""

import math
from pathlib import Path

import pytest
import torch
from torch import Tensor

from cse_cli.config.ingredients import LayerNegativesConfig
from cse_cli.data.tokens import Tokens
from cse_cli.dropout import dropout_off
from cse_cli.encoder import Encoder
from cse_cli.errors import UsageError
from cse_cli.heads import build_head
from cse_cli.methods.base import Needs, Views, draw
from cse_cli.methods.sscl import LayerNegatives
from cse_cli.training.step import Batch, StepConfig, encode_views, objective, training_step
from tests.conftest import make_tiny_bert

TAU = 0.05


@pytest.fixture(scope="module")
def deep_bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_bert(tmp_path_factory.mktemp("deep") / "model", layers=4)


def make(folder: Path, head: str = "tanh") -> Encoder:
    encoder = Encoder.load(str(folder), pooler="cls")
    torch.manual_seed(0)
    encoder.head = build_head(head, encoder.width)
    return encoder.train()


def make_batch(encoder: Encoder, sentences: list[str], n: int = 6) -> Batch:
    ids = encoder.tokenize(sentences[:n])[0]
    tokens = Tokens.from_rows(ids, encoder.tokenizer.pad_token_id)
    return Batch(step=1, tokens=tokens, moved=tokens)


def naive_cosine(a: Tensor, b: Tensor) -> float:
    dot = sum(float(x) * float(y) for x, y in zip(a, b, strict=True))
    norm = math.sqrt(sum(float(x) ** 2 for x in a)) * math.sqrt(sum(float(y) ** 2 for y in b))
    return dot / norm


def naive_loss(h: Tensor, p: Tensor, extra: list[list[Tensor]]) -> float:
    """InfoNCE of anchors `h` and positives `p`; `extra[i]` are row i's further negatives."""
    total = 0.0
    for i in range(len(h)):
        top = math.exp(naive_cosine(h[i], p[i]) / TAU)
        below = sum(math.exp(naive_cosine(h[i], p[j]) / TAU) for j in range(len(p)))
        below += sum(math.exp(naive_cosine(h[i], q) / TAU) for q in extra[i])
        total -= math.log(top / below)
    return total / len(h)


def views(encoder: Encoder, batch: Batch, needs: Needs, **config: object) -> Views:
    torch.manual_seed(1)
    return encode_views(batch, encoder, needs, StepConfig(**config))[1]  # type: ignore[arg-type]


def test_no_ingredient_is_brute_force_info_nce(tiny_bert: Path, sentences: list[str]) -> None:
    encoder = make(tiny_bert)
    z = views(encoder, make_batch(encoder, sentences), Needs())
    loss, terms, s = objective(z, [])
    assert loss.requires_grad
    assert not torch.equal(z.h, z.p)  # dropout is the augmentation
    assert loss.item() == pytest.approx(naive_loss(z.h, z.p, [[] for _ in z.h]), rel=1e-5)
    assert list(terms) == ["contrastive"]
    assert s.shape == (6, 6)


def test_without_augmentation_the_anchor_is_its_own_positive(
    tiny_bert: Path, sentences: list[str]
) -> None:
    encoder = make(tiny_bert)
    z = views(encoder, make_batch(encoder, sentences), Needs(), augmentation=False)
    assert torch.equal(z.h, z.p)
    _, _, s = objective(z, [])
    torch.testing.assert_close(s.diagonal(), torch.full((6,), 1 / TAU))


@pytest.mark.parametrize("blocks", [("2",), ("penultimate", "1")])
@pytest.mark.parametrize("variant", ["paper", "literal", "released"])
def test_sscl_variants_are_their_equations(
    deep_bert: Path, sentences: list[str], blocks: tuple[str, ...], variant: str
) -> None:
    encoder = make(deep_bert)
    part = LayerNegatives(LayerNegativesConfig(neg_layer=blocks, variant=variant), encoder)
    z = views(encoder, make_batch(encoder, sentences), part.needs)
    loss, _, _ = objective(z, [part])
    n, layers = len(z.h), [z.layers[b] for b in part.blocks]
    if variant == "paper":
        extra = [[row for states in layers for row in states] for _ in range(n)]
        expected = naive_loss(z.h, z.p, extra)
    elif variant == "literal":
        extra = [[states[i] for states in layers for _ in range(n)] for i in range(n)]
        expected = naive_loss(z.h, z.p, extra)
    else:
        both = layers + [z.positive_layers[b] for b in part.blocks]
        extra = [[row for states in both for row in states] for _ in range(n)]
        plain = naive_loss(z.h, z.p, [[] for _ in range(n)])
        expected = (naive_loss(z.h, z.p, extra) + plain) / 2
    assert loss.item() == pytest.approx(expected, rel=1e-5)


def test_sscl_takes_pooled_states_of_its_block_through_the_head(
    deep_bert: Path, sentences: list[str]
) -> None:
    encoder = make(deep_bert)
    batch = make_batch(encoder, sentences)
    with dropout_off(encoder.backbone):
        z = views(encoder, batch, Needs(layers=frozenset({2})))
        states = encoder.backbone(
            batch.tokens.ids, attention_mask=batch.tokens.mask.long(), output_hidden_states=True
        ).hidden_states
    torch.testing.assert_close(z.layers[2], encoder.head(states[2][:, 0]))
    torch.testing.assert_close(z.h, encoder.head(states[4][:, 0]))


def test_a_layer_the_encoder_lacks_is_refused(tiny_bert: Path) -> None:
    with pytest.raises(UsageError, match="1 … 1"):
        LayerNegatives(LayerNegativesConfig(neg_layer=("2",)), make(tiny_bert))


def gradients(encoder: Encoder, batch: Batch, needs_layers: bool, **config: object) -> list[Tensor]:
    parts = []
    if needs_layers:
        parts = [LayerNegatives(LayerNegativesConfig(neg_layer=("1", "3")), encoder)]
    encoder.zero_grad()
    torch.manual_seed(5)
    training_step(batch, encoder, parts, StepConfig(**config))  # type: ignore[arg-type]
    return [p.grad.clone() for p in encoder.parameters() if p.grad is not None]


@pytest.mark.parametrize("chunk", [1, 4, 5, 12])
@pytest.mark.parametrize("head", ["tanh", "batchnorm"])
def test_gradient_cache_gives_the_same_gradients_without_dropout(
    tmp_path: Path, sentences: list[str], chunk: int, head: str
) -> None:
    encoder = make(make_tiny_bert(tmp_path / "m", layers=4, dropout=0.0), head).double()
    batch = make_batch(encoder, sentences)
    whole = gradients(encoder, batch, True)
    cached = gradients(encoder, batch, True, chunk_size=chunk)
    assert len(whole) == len(cached) > 0
    both = torch.cat([g.flatten() for g in whole]), torch.cat([g.flatten() for g in cached])
    assert (both[0] - both[1]).norm() <= 1e-10 * both[0].norm()


def test_gradient_cache_replays_dropout_chunk_by_chunk(
    deep_bert: Path, sentences: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    encoder = make(deep_bert)
    batch = make_batch(encoder, sentences)
    passes: list[Tensor] = []
    pooled = Encoder.pooled

    def spy(self: Encoder, tokens: Tokens, layers: tuple[int, ...] = (), clean: int = 0) -> object:
        found = pooled(self, tokens, layers, clean)
        passes.append(found.last.detach().clone())
        return found

    monkeypatch.setattr(Encoder, "pooled", spy)
    gradients(encoder, batch, False, chunk_size=5)
    first, second = passes[: len(passes) // 2], passes[len(passes) // 2 :]
    assert len(first) == 3  # 12 rows in chunks of 5
    for a, b in zip(first, second, strict=True):
        assert torch.equal(a, b)
    assert not torch.equal(first[0][:1], first[1][1:2])


def test_a_weight_of_zero_leaves_no_gradient(tiny_bert: Path, sentences: list[str]) -> None:
    encoder = make(tiny_bert)
    for gradient in gradients(
        encoder, make_batch(encoder, sentences), False, contrastive_weight=0.0
    ):
        assert not gradient.any()


def test_draws_depend_on_seed_step_and_name_only() -> None:
    def numbers(*key: object) -> list[float]:
        return torch.rand(3, generator=draw(*key)).tolist()  # type: ignore[arg-type]

    first = numbers(1, 2, "a")
    torch.rand(10)
    assert numbers(1, 2, "a") == first
    assert first not in (numbers(2, 2, "a"), numbers(1, 3, "a"), numbers(1, 2, "b"))
