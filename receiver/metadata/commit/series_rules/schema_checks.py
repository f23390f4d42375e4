"""What an operation of the schema says by itself: names, columns, tags, TTL, without the tree."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from receiver.metadata.model.alterations import check_labels
from receiver.metadata.model.errors import (
    AliasTakenError,
    RefusedCommitError,
    SeriesExistsError,
    TtlRefusedError,
)
from receiver.metadata.model.paths import (
    MAX_NODES,
    MAX_PATH_TEXT,
    IllegalPathError,
    Nodes,
    quote_node,
)
from receiver.metadata.model.types import check_codes

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from receiver.metadata.model import records

__all__ = [
    "alias_taken",
    "check_alias",
    "check_lengths",
    "check_series",
    "check_ttl",
    "check_upload",
    "check_written",
]

_MAX_TTL: Final = (1 << 63) - 1
_CONTROL: Final = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_SHORT: Final = 16_384
"""Characters that the names of an operation may have together without a look at each."""


def check_upload(path: str, after: int | None) -> None:
    """See that files of a storage group can be uploaded so many milliseconds behind their load.

    Raises:
        RefusedCommitError: that is no time.
    """
    if after is not None and not -1 <= after <= _MAX_TTL:
        raise RefusedCommitError(f"{path}: {after} ms behind the load is no time to upload")


def check_ttl(path: str, ttl: int | None) -> None:
    """See that a time to live can be kept.

    Raises:
        TtlRefusedError: it is none.
    """
    if ttl is not None and not 1 <= ttl <= _MAX_TTL:
        raise TtlRefusedError(
            f"{path}: a TTL of {ttl} ms; it must be from 1 to {_MAX_TTL}, "
            "or none to keep files for ever",
            extra={"path": path},
        )


def check_series(op: records.SeriesCreated, device: Nodes) -> list[tuple[int, str]]:
    """Check what an operation says by itself; returns (position, alias) of those that have one."""
    path, names, count = op.device, op.names, len(op.names)
    if not count:
        raise RefusedCommitError(f"SeriesCreated: {path}: there is no series to make")
    if not count == len(op.types) == len(op.encodings) == len(op.compressions):
        raise _uneven(path)
    for optional in (op.aliases, op.tags, op.attributes, op.props):
        if optional is not None and len(optional) != count:
            raise _uneven(path)
    _check_not_empty(path, names)
    check_lengths(path, device, names)
    if count > 1 and len(set(names)) != count:
        raise SeriesExistsError(
            f"the series {path}.{quote_node(_double(names))} is twice in one operation",
            extra={"path": path},
        )
    check_codes(path, names, op.types, op.encodings, op.compressions)
    if op.tags or op.attributes:
        nothing: list[dict[str, str]] = [{}] * count
        for name, tags, attributes in zip(
            names, op.tags or nothing, op.attributes or nothing, strict=True
        ):
            check_labels(f"{path}.{quote_node(name)}", tags, attributes)
    return _check_aliases(op, device) if op.aliases else []


def _check_aliases(op: records.SeriesCreated, device: Nodes) -> list[tuple[int, str]]:
    aliases = [(at, alias) for at, alias in enumerate(op.aliases or ()) if alias is not None]
    texts = [alias for _, alias in aliases]
    _check_not_empty(f"{op.device}: an alias", texts)
    check_lengths(op.device, device, texts)
    names = set(op.names)
    for at, alias in aliases:
        if alias == op.names[at]:
            raise alias_taken(op.device, alias, "is the name of the series itself")
        if alias in names:
            raise alias_taken(op.device, alias, "is a series of the same operation")
    if len(set(texts)) != len(texts):
        raise alias_taken(op.device, _double(texts), "is twice in one operation")
    return aliases


def check_written(path: str, names: Iterable[str | None]) -> None:
    """See that new names can be read by whoever comes after the one who wrote them down.

    Names that come from elsewhere, in files or with the schema of a sender, are taken as they are:
    what one receiver has it can hand on to the next.

    Raises:
        IllegalPathError: one has control characters.
    """
    for name in names:
        found = None if name is None else _CONTROL.search(name)
        if found is not None:
            raise IllegalPathError(
                f"illegal path {path!r}: the control character {found[0]!a} in a name",
                extra={"path": path, "position": 0},
            )


def _check_not_empty(path: str, names: Sequence[str]) -> None:
    if "" in names:
        raise IllegalPathError(
            f"illegal path {path!r}: an empty name", extra={"path": path, "position": 0}
        )


def check_alias(path: str, alias: str) -> None:
    """See that a series can have an alias.

    Raises:
        IllegalPathError: it is empty.
    """
    _check_not_empty(f"{path}: an alias", [alias])


def check_lengths(path: str, device: Nodes, names: Sequence[str]) -> None:
    """See that the paths of new series stay within the limits, so that they can be read again.

    Raises:
        IllegalPathError: one has too many characters or nodes, or an empty name.
    """
    if "" in names:
        raise _too_long(path, "a series has an empty name")
    if len(device) >= MAX_NODES:
        raise _too_long(path, f"its series would have more than {MAX_NODES} nodes")
    if len(path) > _SHORT or sum(map(len, names)) > _SHORT:
        longest = max(names, key=len)
        if len(path) + len(quote_node(longest)) + 1 > MAX_PATH_TEXT:
            raise _too_long(path, f"a series would have more than {MAX_PATH_TEXT} characters")


def _too_long(path: str, why: str) -> IllegalPathError:
    shown = path if len(path) <= 200 else f"{path[:200]}..."
    return IllegalPathError(
        f"illegal path below {shown!r}: {why}", extra={"path": shown, "position": len(shown)}
    )


def _double(names: Sequence[str]) -> str:
    seen: set[str] = set()
    return next(name for name in names if name in seen or seen.add(name))  # type: ignore[func-returns-value]


def _uneven(path: str) -> RefusedCommitError:
    return RefusedCommitError(f"SeriesCreated: {path}: its columns are of different length")


def alias_taken(device: str, name: str, why: str) -> AliasTakenError:
    """The error about a name and an alias of a device that would be the same."""
    return AliasTakenError(
        f"{device}: the name {name!r} {why}", extra={"path": device, "name": name}
    )
