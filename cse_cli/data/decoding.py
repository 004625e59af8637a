"""The text of a file, decoded block by block, with every fault told by its line.

Bad bytes, NULs and broken gzip are found here once, for plain text, tables and JSON alike.
"""

import codecs
import zlib
from collections.abc import Iterator
from typing import IO

from cse_cli.data.sources import BLOCK, Source
from cse_cli.errors import InputError


class DecodedText:
    """The text of one file, block by block; a bad byte, a NUL or a broken gzip is told by line.

    pandas reads from it as from an open file.
    """

    def __init__(self, source: Source, file: IO[bytes], encoding: str):
        self.name = source.label
        self._stored = file
        self._bytes = source.unpacked(file)
        self._encoding = encoding
        self._decoder = codecs.getincrementaldecoder(encoding)()
        self._lines = 0  # whole lines given out so far
        self._first = True
        self.position = 0  # stored bytes consumed; stays 0 on a pipe

    def read(self, size: int = BLOCK) -> str:
        """The next text, at most `size` bytes of it; an empty string at the end only."""
        while True:
            data = self._read_bytes(size)
            text = self._decode(data)
            if self._first and text:
                self._first = False
                text = text.removeprefix("\ufeff")
            if (nul := text.find("\0")) >= 0:
                line = self._lines + 1 + text.count("\n", 0, nul)
                raise InputError(
                    f"{self.name}, line {line}: holds a NUL byte, so it is no text in "
                    f"{self._encoding}; if it is UTF-16, say --encoding utf-16"
                )
            self._lines += text.count("\n")
            if text or not data:
                return text

    def __iter__(self) -> Iterator[str]:
        """Lines without their ends."""
        pieces: list[str] = []  # of a line that spans blocks; joined once, so never quadratic
        while block := self.read():
            head, *rest = block.split("\n")
            pieces.append(head)
            if rest:
                yield "".join(pieces).removesuffix("\r")
                for line in rest[:-1]:
                    yield line.removesuffix("\r")
                pieces = [rest[-1]]
        if last := "".join(pieces).removesuffix("\r"):
            yield last

    def _read_bytes(self, size: int) -> bytes:
        try:
            data = self._bytes.read(size)
            if self._stored.seekable():
                self.position = self._stored.tell()
            return data
        except (EOFError, zlib.error, OSError) as error:
            what = "broken gzip" if self._bytes is not self._stored else "cannot be read"
            raise InputError(f"{self.name}, after line {self._lines}: {what} ({error})") from error

    def _decode(self, data: bytes) -> str:
        try:
            return self._decoder.decode(data, final=not data)
        except UnicodeError as error:
            line = self._lines + 1
            if isinstance(error, UnicodeDecodeError):
                line += error.object[: error.start].count(b"\n")
            raise InputError(
                f"{self.name}, line {line}: not {self._encoding}; "
                "name the file's encoding with --encoding (latin-1, cp1252, utf-16, …)"
            ) from error
