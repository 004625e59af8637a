"""BERT-whitening (Su et al. 2021): make a set of vectors isotropic with a linear map.

    y = (x - mu) U_k Lambda_k^{-1/2},    C = U Lambda U^T the covariance, eigenvalues descending

The covariance divides by N; dividing by N-1 scales all vectors alike and leaves cosines untouched.
"""

import torch

from cse_cli.errors import InputError, UsageError

_CHUNK = 8192  # rows taken to double precision at once


class Whitening:
    """Whitening to the `k` directions of largest variance, in the manner of scikit-learn.

    `Whitening(k).fit(x).transform(y)`; `k=None` keeps every direction. After `fit`:

    - `mean_` (D,), the mean mu;
    - `components_` (D, k), U_k, one direction a column;
    - `variances_` (k,), the eigenvalues in Lambda_k, descending;
    - `n_samples_`, how many vectors were fitted.

    Statistics are computed and kept in double precision; `transform` returns its input's dtype.
    """

    mean_: torch.Tensor
    components_: torch.Tensor
    variances_: torch.Tensor
    n_samples_: int

    def __init__(self, k: int | None = None) -> None:
        self.k = k

    def fit(self, x: torch.Tensor) -> "Whitening":
        """Estimate mean and covariance from `x` (N, D); returns self.

        Raises InputError unless N > D (fewer vectors cannot span the space) and the k directions
        kept all vary, UsageError unless 1 <= k <= D.
        """
        _check_vectors(x)
        n, width = x.shape
        k = width if self.k is None else self.k
        if not 1 <= k <= width:
            raise UsageError(f"whitening keeps 1 to {width} dimensions of these vectors, not {k}")
        if n <= width:
            raise InputError(
                f"whitening {width}-dimensional vectors needs more than {width} sentences to fit "
                f"on, got {n}"
            )
        mean = sum(chunk.double().sum(0) for chunk in x.split(_CHUNK)) / n
        variances, directions = torch.linalg.eigh(_covariance(x, mean))  # ascending
        variances, directions = variances.flip(0), directions.flip(1)
        rounding = variances[0] * width * torch.finfo(torch.float64).eps
        varying = int((variances > rounding).sum())
        if varying < k:
            raise InputError(
                f"the sentences to fit on vary in {varying} of {width} dimensions only; keep at "
                f"most that many, not {k}, or fit on more varied text"
            )
        self.mean_, self.n_samples_ = mean, n
        self.components_, self.variances_ = directions[:, :k], variances[:k]
        return self

    def transform(self, x: torch.Tensor) -> torch.Tensor:
        """Whiten `x` (N, D) with the fitted statistics: (N, k), in the dtype of `x`.

        Raises UsageError before `fit`, InputError for vectors of another width.
        """
        if not hasattr(self, "mean_"):
            raise UsageError("this Whitening is not fitted yet; call fit first")
        _check_vectors(x)
        if x.shape[1] != len(self.mean_):
            raise InputError(
                f"whitening was fitted on {len(self.mean_)}-dimensional vectors, got {x.shape[1]}"
            )
        kernel = self.components_ * self.variances_.rsqrt()  # (D, k)
        chunks = [((c.double() - self.mean_) @ kernel).to(x.dtype) for c in x.split(_CHUNK)]
        return torch.cat(chunks)


def _covariance(x: torch.Tensor, mean: torch.Tensor) -> torch.Tensor:
    total = x.new_zeros(len(mean), len(mean), dtype=torch.float64)
    for chunk in x.split(_CHUNK):
        centred = chunk.double() - mean
        total += centred.T @ centred
    return total / len(x)


def _check_vectors(x: torch.Tensor) -> None:
    if x.ndim != 2:
        raise InputError(f"whitening takes a matrix of vectors (N, D), got shape {tuple(x.shape)}")
    if not x.isfinite().all():
        raise InputError("whitening was given a vector that is not finite")
