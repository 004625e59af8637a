"""Heads: what stands between the pooled vector and the loss.

`tanh`       g(x) = tanh(W x + b), random at the start (Gao et al. 2021); dropped at evaluation in
             unsupervised training, kept in supervised training.
`batchnorm`  BN_noaffine(W2 relu(BN(W1 x))), W1 (2D, D), W2 (D, 2D), no bias (Chuang et al. 2022,
             DiffCSE); dropped at evaluation.
`linear`     W x + b onto `--project-dim` dimensions; kept at evaluation.
`none`       the pooled vector itself.
"""

from torch import Tensor, nn

HEADS = ("tanh", "batchnorm", "linear", "none")


class DenseHead(nn.Module):
    """One linear layer, (R, D) -> (R, K), with or without the tanh behind it."""

    def __init__(self, width: int, out: int, *, tanh: bool):
        super().__init__()
        self.linear = nn.Linear(width, out)
        self.activation = nn.Tanh() if tanh else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        """Rows (R, D) -> (R, K)."""
        return self.activation(self.linear(x))


def batchnorm_projector(width: int) -> nn.Sequential:
    """DiffCSE's projector, (R, D) -> (R, D); its statistics run over all rows it is given."""
    return nn.Sequential(
        nn.Linear(width, 2 * width, bias=False),
        nn.BatchNorm1d(2 * width),
        nn.ReLU(),
        nn.Linear(2 * width, width, bias=False),
        nn.BatchNorm1d(width, affine=False),
    )


def build_head(kind: str, width: int, project_dim: int | None = None) -> nn.Module:
    """The head named `kind` over vectors of `width`; `project_dim` is `linear`'s output width."""
    if kind == "tanh":
        return DenseHead(width, width, tanh=True)
    if kind == "batchnorm":
        return batchnorm_projector(width)
    if kind == "linear":
        return DenseHead(width, project_dim or width, tanh=False)
    return nn.Identity()
