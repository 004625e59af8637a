"""Which loss term pulls how hard: each term's share of the gradient norm at the seam.

    share_t = |d l_t / d v| / sum_u |d l_u / d v|,    v all pooled vectors of the step

One more backward pass through head and losses for each term, none through the encoder. A term that
does not pass through the vectors has the share 0: masked language modelling trains the encoder by a
pass of its own.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from cse_cli.lanes import graphs_kept
from cse_cli.training import distributed


def gradient_shares(terms: Mapping[str, Tensor], leaves: Sequence[Tensor]) -> dict[str, Tensor]:
    """The share of each of the weighted `terms` (scalars with their graph), adding up to 1.

    `leaves` are the pooled vectors; the graph is kept for the step's own backward pass.
    """
    norms = {name: _norm(term, leaves) for name, term in terms.items()}
    total = torch.stack(list(norms.values())).sum()
    return {name: norm / total for name, norm in norms.items()}


def _norm(term: Tensor, leaves: Sequence[Tensor]) -> Tensor:
    if not term.requires_grad:
        return torch.zeros((), device=term.device)
    with graphs_kept():
        found = torch.autograd.grad(term, leaves, retain_graph=True, allow_unused=True)
    gradients = [gradient for gradient in found if gradient is not None]
    distributed.average_(gradients)  # a term may be that of a process's own rows
    squares = [gradient.square().sum() for gradient in gradients]
    return torch.stack(squares).sum().sqrt() if squares else torch.zeros((), device=term.device)
