"""Does a sentence find its partner? Recall at 1, 5, 10 and mean reciprocal rank.

The retrieval experiment of DiffCSE (Chuang et al. 2022, Table 10), for any corpus in which it is
known which sentences belong together. What is ranked, and what counts as found: see
`cse_cli.maths.retrieval`.
"""

from collections.abc import Callable

from torch import Tensor

from cse_cli.data.partners import Partners
from cse_cli.errors import InputError
from cse_cli.maths import partner_ranks, recall_of
from cse_cli.progress import warn
from cse_cli.results import Table

RANKS = (1, 5, 10)

Encode = Callable[[list[str]], Tensor]


def evaluate_retrieval(
    encode: Encode,
    partners: Partners,
    *,
    model: str,
    task: str,
    split: str = "",
    match: str = "text",
) -> Table:
    """Rows `recall@1`, `recall@5`, `recall@10` and `mrr`; n is the number of queries.

    With `match` "text" distinct strings are ranked, so a partner that is the query's own string
    cannot be asked for: such queries are left out, with a warning. "index" ranks rows.
    Raises InputError where no query is left.
    """
    texts, pairs = partners.texts, partners.pairs
    if match == "text":
        pairs = [(own, other) for own, other in pairs if texts[own] != texts[other]]
        if left_out := len(partners.pairs) - len(pairs):
            warn(f"{task}: left out {left_out} queries whose partner is the same string")
    if not pairs:
        raise InputError(f"{task} holds no two different sentences that belong together")
    vectors = encode(texts)
    queries = vectors[[own for own, _ in pairs]]
    table = Table()
    ranks = partner_ranks(queries, vectors, pairs, texts, match)
    for k, recall in recall_of(ranks, RANKS).items():
        table.add(model, task, split, f"recall@{k}", recall, len(pairs))
    table.add(model, task, split, "mrr", ranks.reciprocal().mean().item(), len(pairs))
    return table
