"""What a corpus looks like before anything is trained on it: duplicates, lengths, what is lost.

Contrastive training takes every other sentence of a batch for a negative, so a corpus that repeats
itself pushes equal sentences apart, and one of single words teaches little. All numbers were
counted while the corpus was tokenised; a report reads no token.
"""

from typing import Any

import numpy as np

from cse_cli.data.corpus import Corpus

QUANTILES = {"min": 0.0, "p05": 0.05, "median": 0.5, "p95": 0.95, "max": 1.0}
MANY_DUPLICATES = 0.05
MANY_SINGLES = 0.2
MANY_TRUNCATED = 0.25
MANY_INCOMPLETE = 0.01


def corpus_report(corpus: Corpus) -> dict[str, Any]:
    """Counts of a corpus; shares are of its rows or, for tokens and lengths, of its sequences.

    Keys: `rows`, `sequences` (rows x columns), `columns`, `max_length`, `tokens` (special ones
    included), `blank` (input rows left out), `duplicates` (rows whose tokens, after truncation,
    equal an earlier row's) and `duplicate_share`, `truncated` (sequences) and `truncated_share`,
    `one_token_share` (sequences of a single token beside the special ones), `length` (tokens with
    special ones: min, p05, median, mean, p95, max).
    """
    meta = corpus.meta
    counts = np.array(meta.histogram)
    sequences = int(counts.sum())
    return {
        "rows": meta.rows,
        "sequences": sequences,
        "columns": list(meta.columns),
        "max_length": meta.max_length,
        "tokens": meta.tokens,
        "blank": meta.blank,
        "duplicates": meta.duplicates,
        "duplicate_share": meta.duplicates / meta.rows,
        "truncated": meta.truncated,
        "truncated_share": meta.truncated / sequences,
        "one_token_share": int(counts[meta.special + 1]) / sequences,
        "length": {
            **{name: _quantile(counts, share) for name, share in QUANTILES.items()},
            "mean": meta.tokens / sequences,
        },
    }


def corpus_warnings(report: dict[str, Any]) -> list[str]:
    """What a user should know before training on the corpus of `corpus_report`; often nothing."""
    found = []
    if report["duplicate_share"] >= MANY_DUPLICATES:
        found.append(
            f"{report['duplicates']:,} of {report['rows']:,} rows ({report['duplicate_share']:.1%})"
            f" repeat an earlier one (first {report['max_length']} tokens compared); "
            "in one batch they become negatives of each other"
        )
    if report["one_token_share"] >= MANY_SINGLES:
        found.append(
            f"{report['one_token_share']:.1%} of the sentences are a single token; "
            "is this one sentence a line?"
        )
    if report["truncated_share"] >= MANY_TRUNCATED:
        found.append(
            f"{report['truncated_share']:.1%} of the sentences are longer than "
            f"{report['max_length']} tokens and were cut there; --max-length sets it"
        )
    given = report["rows"] + report["blank"]
    # Blank lines of a plain text separate paragraphs; of rows of several columns they are a loss.
    if len(report["columns"]) > 1 and report["blank"] >= MANY_INCOMPLETE * given:
        found.append(
            f"{report['blank']:,} of {given:,} rows were left out: a column of theirs is empty"
        )
    return found


def _quantile(counts: np.ndarray, share: float) -> int:
    """The smallest length that at least `share` of the sequences do not exceed."""
    needed = max(1, int(np.ceil(share * counts.sum())))
    return int(np.searchsorted(np.cumsum(counts), needed))
