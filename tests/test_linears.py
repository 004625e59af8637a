"""Linear layers by oneDNN: PyTorch's numbers, only where they are due, and nothing left behind."""

import copy

import pytest
import torch
from torch import nn
from torch.nn.functional import linear as plain

from cse_cli import linears
from cse_cli.linears import fast_linears, linear

TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 2e-2, torch.float64: 0.0}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[torch.dtype]:
    """The dtypes of the products that were asked of oneDNN's operator, in a stand-in for it."""
    calls: list[torch.dtype] = []

    def operator(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor | None, *_: object):
        calls.append(w.dtype)
        return plain(x, w, b)

    real = linears._operator
    monkeypatch.setattr(linears, "_operator", lambda dtype: operator if real(dtype) else None)
    return calls


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("shape", [(1, 24), (7, 24), (3, 5, 24), (4, 1, 24), (0, 24)])
@pytest.mark.parametrize("biased", [True, False])
def test_linear_is_pytorchs(dtype: torch.dtype, shape: tuple[int, ...], biased: bool) -> None:
    x, w = torch.randn(shape, dtype=dtype), torch.randn(10, 24, dtype=dtype) / 5
    b = torch.randn(10, dtype=dtype) if biased else None
    with torch.inference_mode():
        found, wanted = linear(x, w, b), plain(x, w, b)
    assert found.shape == wanted.shape
    assert found.dtype == dtype
    torch.testing.assert_close(found, wanted, atol=TOLERANCE[dtype], rtol=TOLERANCE[dtype])


def test_linear_takes_rows_that_do_not_lie_side_by_side() -> None:
    x, w = torch.randn(6, 8, 24), torch.randn(24, 10)
    torch.testing.assert_close(linear(x[:, :1], w.T), plain(x[:, :1], w.T))
    torch.testing.assert_close(linear(x.transpose(0, 1), w.T), plain(x.transpose(0, 1), w.T))


def test_without_the_operator_it_is_pytorchs_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
    monkeypatch.setattr(linears, "_operator", linears._operator.__wrapped__)  # not from its cache
    assert linears._operator(torch.float32) is None
    x, layer = torch.randn(3, 24), nn.Linear(24, 10)
    with torch.inference_mode(), fast_linears(layer):
        assert torch.equal(layer(x), plain(x, layer.weight, layer.bias))


def test_bf16_is_left_to_pytorch_where_the_processor_lacks_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: False)
    assert linears._operator.__wrapped__(torch.bfloat16) is None
    assert linears._operator.__wrapped__(torch.float32) is not None


@pytest.mark.parametrize(("dtype", "due"), [(torch.float32, True), (torch.float64, False)])
def test_layers_ask_the_operator_where_it_knows_their_type(
    asked: list[torch.dtype], dtype: torch.dtype, due: bool
) -> None:
    layers = nn.Sequential(nn.Linear(24, 10), nn.GELU(), nn.Linear(10, 2, bias=False)).to(dtype)
    with torch.inference_mode(), fast_linears(layers):
        layers(torch.randn(3, 24, dtype=dtype))
    assert asked == [dtype] * (2 * due)


def test_autocast_is_left_to_itself(asked: list[torch.dtype]) -> None:
    layer = nn.Linear(24, 10)
    casting = torch.autocast("cpu", dtype=torch.bfloat16)
    with torch.inference_mode(), casting, fast_linears(layer):
        assert layer(torch.randn(3, 24)).dtype == torch.bfloat16
    assert not asked


def test_layers_are_afterwards_what_they_were(asked: list[torch.dtype]) -> None:
    class Doubled(nn.Linear):
        """A layer of somebody else's, which computes something of its own."""

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return 2 * super().forward(x)

    layers = nn.ModuleList([nn.Linear(24, 10), Doubled(24, 10)])
    before = [list(vars(layer)) for layer in layers]

    def fail() -> None:
        """Look at the layers inside of the context, and leave it by an error."""
        with fast_linears(layers):
            assert ["forward" in vars(layer) for layer in layers] == [True, False]
            with fast_linears(layers):  # inside of itself it changes nothing more
                layers[0](torch.randn(3, 24))
            assert len(asked) == 1
            layers[0](torch.randn(3, 24))
            assert len(asked) == 2
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert [list(vars(layer)) for layer in layers] == before
    copied = copy.deepcopy(layers[0])
    copied(torch.randn(3, 24)).sum().backward()
    assert copied.weight.grad is not None
    assert layers[0].weight.grad is None
