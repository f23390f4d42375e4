"""A database's own session library, spoken to over a pipe (see ``java/IotdbClient.java``)."""

from __future__ import annotations

import base64
import dataclasses
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

__all__ = ["Client", "Field", "Refused", "Rows", "Value"]

Value = tuple[str, str]
"""A type's name and the text of the value, as Java parses it."""


class Refused(Exception):
    """The database's answer to a statement that it did not carry out."""


@dataclasses.dataclass(frozen=True, slots=True)
class Field:
    """A value of a row: as the client wrote it, texts and blobs as bytes."""

    type: str
    text: str
    raw: bytes | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Rows:
    """A query's answer: names and types of the columns, rows of (time, fields or None)."""

    columns: list[tuple[str, str]]
    rows: list[tuple[int, list[Field | None]]]


class Client:
    """One session."""

    def __init__(self, command: list[str], log: Path) -> None:
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True
            )
        self._expect_ok()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(60)

    def execute(self, sql: str) -> None:
        """Carry out a statement that has no rows.

        Raises:
            Refused: the database did not.
        """
        self._until_available("execute", _encode(sql))

    def record(
        self, device: str, at: int, values: Mapping[str, Value], *, aligned: bool = False
    ) -> None:
        """Insert one row of a device of the tree model."""
        words = [_encode(device), str(at), "aligned" if aligned else "plain"]
        for name, (kind, text) in values.items():
            words += [_encode(name), kind, _encode(text)]
        self._until_available("record", *words)

    def query(self, sql: str) -> Rows:
        """Ask for rows."""
        self._send("query", _encode(sql))
        head = self._line()
        if head[0] != "columns":
            raise RuntimeError(f"the client answered {head}")
        columns = [
            (_decode(name).decode(), kind)
            for name, kind in zip(head[1::2], head[2::2], strict=True)
        ]
        return Rows(columns, list(self._rows()))

    def _rows(self) -> Iterator[tuple[int, list[Field | None]]]:
        while (words := self._line()) != ["end"]:
            yield int(words[0]), [_field(word) for word in words[1:]]

    def _until_available(self, *words: str) -> None:
        """A region that was made just now may not have its leader yet."""
        for _ in range(10):
            self._send(*words)
            try:
                return self._expect_ok()
            except Refused as refusal:
                if "no available" not in str(refusal):
                    raise
                time.sleep(0.5)
        raise TimeoutError(words[0])

    def _send(self, *words: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("\t".join(words) + "\n")
        self._process.stdin.flush()

    def _line(self) -> list[str]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("the client has ended; see its log")
        words = line.rstrip("\n").split("\t")
        if words[0] == "error":
            raise Refused(_decode(words[1]).decode())
        return words

    def _expect_ok(self) -> None:
        words = self._line()
        if words != ["ok"]:
            raise RuntimeError(f"the client answered {words}")


def _field(word: str) -> Field | None:
    if word == "-":
        return None
    kind, text = word.split(":", 1)
    return Field(kind, text, _decode(text) if text.startswith("=") else None)


def _encode(text: str) -> str:
    return "=" + base64.b64encode(text.encode()).decode()


def _decode(word: str) -> bytes:
    return base64.b64decode(word[1:])
