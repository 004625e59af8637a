"""Lanes: the same numbers beside each other as one after another."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor

from cse_cli.attention import use_fast_dropout
from cse_cli.data.tokens import Tokens
from cse_cli.encoder import Encoder
from cse_cli.lanes import LANES, beside, generator, through_lanes
from cse_cli.rows import LAUNCH
from tests.families import FAMILIES, make_family


@pytest.fixture
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def test_items_really_run_beside_each_other_and_come_back_in_order(two_threads: None) -> None:
    both = threading.Barrier(2, timeout=30)  # passed only by two lanes at the same time
    assert list(beside(lambda i: (both.wait(), i)[1], range(10), 2)) == list(range(10))
    assert torch.get_num_threads() == 2


def test_lanes_share_the_threads_and_take_over_the_modes(two_threads: None) -> None:
    def seen(_: int) -> tuple[int, bool, bool, bool]:
        modes = torch.is_inference_mode_enabled(), torch.is_grad_enabled()
        return torch.get_num_threads(), *modes, torch.is_autocast_enabled("cpu")

    assert set(beside(seen, range(4), 2)) == {(1, False, True, False)}
    with torch.no_grad(), torch.autocast("cpu"):
        assert set(beside(seen, range(4), 2)) == {(1, False, False, True)}
    with torch.inference_mode():
        assert {inference for _, inference, _, _ in beside(seen, range(4), 2)} == {True}
    torch.set_num_threads(5)
    assert list(beside(seen, [0], 4)) == [(5, False, True, False)]  # a single one gets all threads


def test_a_lane_that_fails_fails_the_whole_and_gives_the_threads_back(two_threads: None) -> None:
    with pytest.raises(ZeroDivisionError):
        list(beside(lambda i: 1 // i, [1, 0, 2], 2))
    assert torch.get_num_threads() == 2


@pytest.mark.parametrize("threads", [1, 2])
def test_gradients_through_lanes_are_those_of_one_pass(threads: int, two_threads: None) -> None:
    torch.set_num_threads(threads)
    x = torch.randn(7, 3, dtype=torch.float64, requires_grad=True)
    w = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    unused = torch.randn(2, dtype=torch.float64, requires_grad=True)
    rows = [torch.tensor([6, 0, 2]), torch.tensor([1, 3, 4, 5])]
    jobs = [lambda own: ((own @ w).sin(), own.exp())] * 2

    def lanes(x: Tensor, w: Tensor) -> Tensor:
        first, second = through_lanes(jobs, rows, x, [w, unused], draws=False)
        return first[:, :3] * second

    expected = ((x @ w).sin()[:, :3] * x.exp())[torch.cat(rows)]
    torch.testing.assert_close(lanes(x, w), expected)
    weights = torch.randn_like(expected)
    ours = torch.autograd.grad((lanes(x, w) * weights).sum(), [x, w, unused], allow_unused=True)
    theirs = torch.autograd.grad((expected * weights).sum(), [x, w])
    torch.testing.assert_close(ours[:2], theirs)
    assert ours[2] is None
    with torch.no_grad():
        torch.testing.assert_close(lanes(x, w), expected)


def test_a_lane_draws_from_a_generator_of_its_own_that_torch_seeds(two_threads: None) -> None:
    rows = [torch.arange(4), torch.arange(4, 8)]
    jobs = [lambda own: (torch.rand(own.shape, generator=generator()),)] * 2

    def draw() -> Tensor:
        return through_lanes(jobs, rows, torch.zeros(8, 5), [], draws=True)[0]

    assert generator() is None
    torch.manual_seed(3)
    with torch.no_grad():
        first, second = draw(), draw()
        torch.manual_seed(3)
        torch.set_num_threads(1)
        again = draw()
    assert torch.equal(first, again)
    assert not torch.equal(first, second)
    assert not torch.equal(first[:4], first[4:])
    assert generator() is None


@pytest.mark.parametrize("family", FAMILIES)
def test_a_training_pass_is_the_same_bits_on_one_thread_and_two(
    family: str, tmp_path: Path, two_threads: None
) -> None:
    encoder = Encoder.load(str(make_family(family, tmp_path)), pooler="cls", dropout=0.1)
    if not use_fast_dropout(encoder.backbone):
        pytest.skip("its attention draws from torch's own generator: it trains in one lane")
    encoder.lanes = LANES
    texts = ["the dog runs", "a", "the small old man sees a red ball", "woman eats", "a house"] * 4
    tokens = Tokens.from_rows(encoder.tokenize(texts)[0], encoder.tokenizer.pad_token_id)

    def run(threads: int) -> list[Tensor]:
        torch.set_num_threads(threads)
        torch.manual_seed(0)
        encoder.train().zero_grad()
        pooled = encoder.pooled(tokens, (1,))
        (pooled.last.square().sum() + pooled.layers[1].sum()).backward()
        gradients = [p.grad.clone() for p in encoder.parameters() if p.grad is not None]
        return [pooled.last.detach(), pooled.layers[1].detach(), *gradients]

    one, two = run(1), run(2)
    assert len(one) == len(two)
    assert all(torch.equal(a, b) for a, b in zip(one, two, strict=True))


def test_a_training_pass_in_bf16_gives_the_same_bits_each_time(
    tmp_path: Path, two_threads: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Gradients of casts of one weight may not be summed in an order that timing decides."""
    monkeypatch.setitem(LAUNCH, "cpu", 0)  # many groups a lane
    encoder = Encoder.load(str(make_family("bert", tmp_path)), pooler="cls", dropout=0.1)
    assert use_fast_dropout(encoder.backbone)
    encoder.lanes = LANES
    texts = ["the dog runs", "a", "the small old man sees a red ball", "woman eats", "a house"] * 9
    tokens = Tokens.from_rows(encoder.tokenize(texts)[0], encoder.tokenizer.pad_token_id)

    def run(threads: int) -> list[Tensor]:
        torch.set_num_threads(threads)
        torch.manual_seed(0)
        encoder.train().zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            pooled = encoder.pooled(tokens)
        pooled.last.float().square().sum().backward()
        return [p.grad.clone() for p in encoder.parameters() if p.grad is not None]

    first = run(1)  # in turns, too
    for _ in range(20):
        assert all(torch.equal(a, b) for a, b in zip(first, run(2), strict=True))


@pytest.mark.parametrize("family", FAMILIES)
def test_lanes_change_no_vector_and_no_gradient(
    family: str, tmp_path: Path, two_threads: None
) -> None:
    encoder = Encoder.load(str(make_family(family, tmp_path)), pooler="mean")
    texts = ["the dog runs", "a", "the small old man sees a red ball", "woman eats", "a house"]
    tokens = Tokens.from_rows(encoder.tokenize(texts)[0], encoder.tokenizer.pad_token_id)

    def run(lanes: int) -> list[Tensor]:
        encoder.lanes = lanes
        encoder.zero_grad()
        pooled = encoder.pooled(tokens, (1, 2))
        (pooled.last.square().sum() + pooled.layers[1].sum() + pooled.layers[2].sum()).backward()
        gradients = [p.grad.clone() for p in encoder.parameters() if p.grad is not None]
        return [pooled.last.detach(), *pooled.layers.values(), *gradients]

    for a, b in zip(run(1), run(LANES), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("fast", [True, False])
def test_clean_rows_have_no_dropout_beside_rows_that_have(
    family: str, fast: bool, tmp_path: Path, two_threads: None
) -> None:
    encoder = Encoder.load(str(make_family(family, tmp_path)), pooler="mean", dropout=0.5)
    if fast and use_fast_dropout(encoder.backbone):
        encoder.lanes = LANES
    texts = ["the dog runs", "a", "the small old man sees a red ball", "woman eats", "a house"] * 3
    tokens = Tokens.from_rows(encoder.tokenize(texts)[0], encoder.tokenizer.pad_token_id)
    wanted = encoder.eval().pooled(tokens, (1,))
    encoder.train()
    for clean in (1, 7, len(texts)):
        noisy = len(texts) - clean
        found = [encoder.pooled(tokens, (1,), clean) for _ in range(2)]
        torch.testing.assert_close(found[0].last[noisy:], wanted.last[noisy:])
        torch.testing.assert_close(found[0].layers[1][noisy:], wanted.layers[1][noisy:])
        assert torch.equal(found[0].last[noisy:], found[1].last[noisy:])
        for row in range(noisy):
            assert not torch.allclose(found[0].last[row], found[1].last[row])
    assert all(module.training for module in encoder.modules())


def test_vectors_do_not_depend_on_the_number_of_lanes(tiny_bert: Path, two_threads: None) -> None:
    encoder = Encoder.load(str(tiny_bert), pooler="first_last_mean", batch_tokens=12)
    texts = [f"the dog runs {'a house ' * i}" for i in range(12)]
    two = encoder.encode(texts)
    torch.set_num_threads(1)
    assert torch.equal(two, encoder.encode(texts))
