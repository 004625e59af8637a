"""A persistent index of sentences and their vectors: built by streaming, searched by mapping.

`Corpus.scan` knows the sentences, `build_index` brings a folder up to date, `Index.open` maps it,
and a `Searcher` answers queries.
"""

from cse_cli.index.build import build_index
from cse_cli.index.corpus import Corpus
from cse_cli.index.kinds import KINDS
from cse_cli.index.search import Hit, Hits, Searcher
from cse_cli.index.store import Index

__all__ = ["KINDS", "Corpus", "Hit", "Hits", "Index", "Searcher", "build_index"]
