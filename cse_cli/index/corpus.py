"""The sentences to be indexed: read once to know them, then streamed."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from cse_cli.data.locate import cache_folder
from cse_cli.data.readers import Tally, iter_rows
from cse_cli.data.sources import Source, digest, find_source, spooled


@dataclass(frozen=True)
class Corpus:
    """A sentence file: `rows` sentences, `blank` lines left out, known by its `sha256`."""

    source: Source
    column: str | None
    encoding: str
    sha256: str
    rows: int
    blank: int

    @classmethod
    def scan(cls, name: str, *, column: str | None = None, encoding: str = "utf-8") -> "Corpus":
        """Read the file once, for its digest and the number of sentences in it.

        `name` may be `-`, which is kept in a temporary file. Raises InputError for a file that is
        missing, empty or unreadable, UsageError for a column or encoding that does not exist.
        """
        source = spooled(find_source(name), cache_folder() / "spool")
        tally = Tally()
        rows = sum(1 for _ in _texts(source, column, encoding, tally))
        known = digest(source, cache_folder() / "digests")
        return cls(source, column, encoding, known, rows, tally.blank)

    def texts(self) -> Iterator[str]:
        """The sentences in their order."""
        return _texts(self.source, self.column, self.encoding, Tally())

    @property
    def identity(self) -> dict[str, Any]:
        """What makes it the same corpus wherever the file lies.

        The same bytes are other sentences in a file of another kind.
        """
        return {
            "sha256": self.sha256,
            "kind": self.source.kind,
            "compressed": self.source.compressed,
            "column": self.column,
            "encoding": self.encoding,
        }


def _texts(source: Source, column: str | None, encoding: str, tally: Tally) -> Iterator[str]:
    wanted = [column] if column else None
    return (row[0] for row in iter_rows([source], wanted, encoding=encoding, tally=tally))
