"""Which options of `cse retrieve` go together: one that cannot act is refused, not ignored."""

from collections.abc import Collection, Mapping
from typing import Any

from cse_cli.cli.retrieve_options import JSON_LINES, STSB
from cse_cli.errors import UsageError

SEARCH, BUILD, EVAL = "search", "build", "eval"

# Where an option acts; those that are not here act everywhere.
_ACTS_IN = {
    **dict.fromkeys(("query", "k", "exclude_query", "candidates"), (SEARCH,)),
    **dict.fromkeys(("match", "output"), (SEARCH, EVAL)),
    **dict.fromkeys(
        ("corpus", "text_column", "encoding", "index", "index_type", "extend", "no_verify"),
        (SEARCH, BUILD),
    ),
    **dict.fromkeys(("groups", "data_dir"), (EVAL,)),
}
_NOT_IN = {
    SEARCH: "is for --eval",
    BUILD: "is for searching or --eval; without --query an index is only built",
    EVAL: "is for searching; --eval ranks its own sentences",
}
# What an option says something about: the others that it needs.
_NEEDS = {
    "text_column": ({"corpus"}, "names a column of --corpus FILE; give that"),
    "encoding": ({"corpus"}, "is that of --corpus FILE; give that"),
    "extend": ({"corpus", "index"}, "adds --corpus FILE to --index DIR; give both"),
    "no_verify": ({"index"}, "is about the files of --index DIR; give that"),
}


def check(given: Mapping[str, Any], typed: Collection[str]) -> None:
    """UsageError where the options `given`, of which some were `typed`, say nothing together."""
    from cse_cli.shards import process

    way = _way(given)
    for name in typed:
        if way not in _ACTS_IN.get(name, (way,)):
            raise UsageError(f"{_option(name)} {_NOT_IN[way]}")
        needed, told = _NEEDS.get(name, (set(), ""))
        if any(given[other] is None for other in needed):
            raise UsageError(f"{_option(name)} {told}")
    _check_values(given, typed, way)
    if process()[1] > 1 and way != BUILD:
        raise UsageError("torchrun builds an index (--corpus with --index); query it without")
    if given["index"] is not None and len(given["models"]) > 1:
        raise UsageError("--index holds the vectors of one checkpoint; give one")


def require_inexact(kind: str, candidates: int | None) -> None:
    """UsageError for --candidates of an index that compares a query with every vector."""
    if candidates is not None and kind == "exact":
        raise UsageError("--candidates is for an index that is not exact; see --index-type")


def _way(given: Mapping[str, Any]) -> str:
    """Whether a command line searches, only builds an index, or evaluates."""
    corpus, index = given["corpus"] is not None, given["index"] is not None
    if given["eval"] is not None:
        return EVAL
    if given["query"] is not None:
        if not (corpus or index):
            raise UsageError("--query needs something to search: --corpus FILE or --index DIR")
        return SEARCH
    if not (corpus and index):
        raise UsageError(
            "nothing to do: give --query to search, --corpus with --index to build, or --eval"
        )
    return BUILD


def _check_values(given: Mapping[str, Any], typed: Collection[str], way: str) -> None:
    """UsageError for a value that cannot act together with another one."""
    if way == EVAL:
        if given["groups"] is not None and given["eval"] == STSB:
            raise UsageError("--groups needs --eval FILE, the sentences that are in groups")
        if "data_dir" in typed and given["eval"] != STSB:
            raise UsageError(f"--data-dir is for --eval {STSB}")
        if given["format"] == JSON_LINES:
            raise UsageError("--format jsonl is for hits; --eval gives --format json")
    if way == BUILD and "format" in typed and given["format"] != "json":
        raise UsageError("--format of an index that is only built is json, or none")
    if given["exclude_query"] and given["match"] == "index":
        raise UsageError("--exclude-query leaves out a string; --match index ranks rows")


def _option(name: str) -> str:
    return "-k" if name == "k" else f"--{name.replace('_', '-')}"
