"""What a snapshot key-value store does, whatever keeps its keys."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from common.errors import TooLargeError
from receiver.metadata.model.errors import KeyRefusedError

__all__ = [
    "MAX_KEY",
    "MAX_VALUE",
    "KeyAddition",
    "SnapshotKV",
    "check_keys",
    "check_prefixes",
    "check_something",
]

MAX_KEY = 4096
"""Bytes of a key in UTF-8."""
MAX_VALUE = 1 << 20
"""Bytes of a value in UTF-8: with its key it must fit into one request of etcd (1.5 MiB)."""

KeyAddition = Callable[[int], tuple[str, str]]
"""Gives a further (key, value) of a commit, once the timestamp of the commit is known."""


class SnapshotKV(Protocol):
    """Texts by key, readable as of any timestamp that the history reaches back to.

    `ts` is a timestamp as commits have it; None is the newest state. At a timestamp between two
    commits the older one counts, at one that is still to come the newest. Keys come in the order
    of their code points, which is that of their UTF-8 bytes.

    All of a commit is visible, or nothing, at any timestamp; its own is greater than any before.
    """

    def load(self, key: str, ts: int | None = None) -> str:
        """The value of a key.

        Raises:
            KeyMissingError: there was none (yet, or any more).
            HistoryGoneError: the history does not reach back to `ts`; `extra["oldest"]` is the
                first timestamp that can be asked for.
            UnreachableError: the store does not answer.
        """

    def load_with_prefix(self, prefix: str, ts: int | None = None) -> tuple[list[str], list[str]]:
        """The keys that begin with a prefix ("" for all), in order, and their values."""

    def save(self, key: str, value: str) -> int:
        """Set a key; returns the timestamp of the commit."""
        return self.multi_save_and_remove_with_prefix({key: value}, ())

    def multi_save(self, kvs: Mapping[str, str], *additions: KeyAddition) -> int:
        """Set keys together; returns the timestamp of the commit.

        Args:
            kvs: key -> value.
            additions: each is called with the timestamp and gives one more key; a later one takes
                precedence over an earlier, and over `kvs`. What one raises leaves this method,
                and nothing is written.

        Raises:
            KeyRefusedError: a key is empty or too long, or there is nothing to write.
            TooLargeError: a value is larger than `MAX_VALUE`.
            RefusedCommitError: the allocator gave a timestamp that does not follow the newest.
            KeyConflictError: another process wrote meanwhile; nothing was written, try again.
            UnreachableError: the store does not answer; nothing was written, nor will it be.
            UnknownOutcomeError: the store took the commit and has not answered since.
        """
        return self.multi_save_and_remove_with_prefix(kvs, (), *additions)

    def multi_save_and_remove_with_prefix(
        self, saves: Mapping[str, str], removals: Sequence[str], *additions: KeyAddition
    ) -> int:
        """Remove all keys with one of the prefixes, then set keys; otherwise as `multi_save`."""

    def close(self) -> None:
        """Let go of connections; closing twice is harmless."""


def check_something(
    saves: Mapping[str, str], removals: Sequence[str], additions: Sequence[KeyAddition]
) -> None:
    """Check that a commit says anything.

    Raises:
        KeyRefusedError: it does not.
    """
    if not saves and not removals and not additions:
        raise KeyRefusedError("there is nothing to write: no keys, no prefixes, no additions")


def check_keys(saves: Mapping[str, str]) -> None:
    """Check keys and values that are to be set.

    Raises:
        KeyRefusedError: a key is empty, too long, or no text that can be stored.
        TooLargeError: a value is larger than `MAX_VALUE`.
    """
    for key, value in saves.items():
        if not key:
            raise KeyRefusedError("a key is empty; expected 1 to 4096 bytes of UTF-8")
        _check_size(key, "key")
        try:
            size = len(value.encode())
        except UnicodeEncodeError as error:
            raise KeyRefusedError(f"the value of {key!r} is no Unicode text: {error}") from error
        if size > MAX_VALUE:
            raise TooLargeError(f"the value of {key!r} has {size} bytes; at most {MAX_VALUE}")


def check_prefixes(removals: Sequence[str]) -> None:
    """Check prefixes whose keys are to go; the same errors as `check_keys`."""
    for prefix in removals:
        _check_size(prefix, "prefix")


def _check_size(text: str, what: str) -> None:
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        raise KeyRefusedError(f"{what} {text!r} is no Unicode text: {error}") from error
    if size > MAX_KEY:
        raise KeyRefusedError(f"{what} {text[:40]!r}... has {size} bytes; at most {MAX_KEY}")
