"""Enrolment: tokens of many edges at once, from a list of their labels.

For each edge two files lie in a directory afterwards, which a tool that sets machines up brings to
it: ``<label>.token``, and ``<label>.uuid``, which an edge that has no identity yet takes as its
``uuid.txt``. Planned whole before the first token is made; said again, it goes on where it ended.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Literal

from msgspec import Struct

from common.console.terminal import printable
from common.errors import UsageError
from common.names import is_sender_uuid
from receiver.metadata.model import records
from receiver.operator.views.sender_views import SenderView
from receiver.operator.views.token_views import TokenView
from receiver.scope import Scope

__all__ = ["EdgeFiles", "EnrolledEdge", "ListedEdge", "enrolment_plan", "read_edges"]

_COLUMNS = ("label", "scope", "sender")
_LABEL = re.compile(r"[^./\s][^/]{0,99}")
_TOKEN = re.compile(r"tsf_([0-9a-f]{8})_[\w-]+")
_SHOWN = 20


class ListedEdge(Struct, frozen=True, kw_only=True):
    """A line of the list.

    Attributes:
        line: counted from 1.
        label: of the edge.
        scope: patterns of devices that it may write; none: all.
        sender: uuid that it has already; None to have one made.
    """

    line: int
    label: str
    scope: tuple[str, ...] = ()
    sender: str | None = None


class EdgeFiles(Struct, frozen=True, kw_only=True):
    """What the directory has of an edge: the text of each of its files; None where it is not."""

    token: str | None = None
    uuid: str | None = None


class EnrolledEdge(Struct, frozen=True, kw_only=True):
    """An edge of the list, and its token.

    Attributes:
        label: of the edge.
        sender: uuid that the token is for.
        scope: patterns of devices that it may write; none: all.
        token: id of the token; None as long as it is not made.
        state: `made` by this call, or `kept` from one before.
    """

    label: str
    sender: str
    scope: tuple[str, ...] = ()
    token: str | None = None
    state: Literal["made", "kept"] = "made"


def read_edges(lines: Iterable[str]) -> list[ListedEdge]:
    """The edges of a list: CSV with a head of `label`, and if wanted `scope` and `sender`.

    Raises:
        UsageError: names each line that is wrong, or that has what another one has.
    """
    reader = csv.DictReader(lines, strict=True)
    try:
        head = [each.strip() for each in reader.fieldnames or ()]
        if "label" not in head or set(head) - set(_COLUMNS) or len(set(head)) < len(head):
            raise UsageError(
                f"line 1: {printable(','.join(head))[:80]}: expected a head with label, and if "
                "wanted scope (patterns between spaces) and sender (uuid)"
            )
        reader.fieldnames = head
        rows = [(reader.line_num, row) for row in reader]
    except csv.Error as error:
        raise UsageError(f"line {reader.line_num}: not valid CSV: {error}") from error
    problems: list[str] = []
    found: list[ListedEdge] = []
    for line, row in rows:
        try:
            found.append(_edge(line, row))
        except UsageError as error:
            problems.append(f"line {line}: {error.message}")
    problems += _repeated(found, "label", lambda row: row.label)
    problems += _repeated(found, "sender", lambda row: row.sender)
    _refuse(problems)
    return found


def _edge(line: int, row: Mapping[str | None, str | list[str] | None]) -> ListedEdge:
    texts = {key: value.strip() for key, value in row.items() if isinstance(value, str)}
    if None in row or len(texts) < len(row):
        raise UsageError("expected as many fields as the head has")
    label, sender = texts["label"], texts.get("sender") or None
    if not _LABEL.fullmatch(label) or printable(label) != label:
        raise UsageError(
            f"label {label[:60]!a}: expected 1 to 100 printable characters without /, the first "
            "no dot: files are named by it"
        )
    if sender is not None and not is_sender_uuid(sender):
        raise UsageError(f"sender {sender[:60]!a}: expected 32 lower-case hex digits")
    scope = tuple(texts.get("scope", "").split())
    Scope.asked(scope)
    return ListedEdge(line=line, label=label, scope=scope, sender=sender)


def _repeated(
    rows: Sequence[ListedEdge], what: str, key: Callable[[ListedEdge], str | None]
) -> Iterator[str]:
    first: dict[str, int] = {}
    for row in rows:
        value = key(row)
        if value is not None and first.setdefault(value, row.line) != row.line:
            yield f"line {row.line}: {what} {printable(value)} is that of line {first[value]}, too"


def enrolment_plan(
    rows: Sequence[ListedEdge],
    files: Mapping[str, EdgeFiles],
    senders: Iterable[SenderView],
    tokens: Iterable[TokenView],
    new_uuid: Callable[[], str],
    *,
    renew: bool = False,
    allow_deletes: bool = True,
    now: float = 0.0,
) -> list[EnrolledEdge]:
    """What is to be made, and what is there: of each edge, in the order of the list.

    Args:
        rows: of the list.
        files: label -> what the directory has.
        senders: that the centre knows.
        tokens: that are not revoked.
        new_uuid: makes one.
        renew: an edge that has a token gets another one; the old one stays good.
        allow_deletes: whether the tokens may delete; one that is there has to be so, too.
        now: seconds since the epoch; a token that has ended is none.

    Raises:
        UsageError: names each line that does not go with what is there.
    """
    standing = _Standing(senders, tokens, new_uuid, renew, allow_deletes, now)
    problems: list[str] = []
    plan: list[EnrolledEdge] = []
    for row in rows:
        try:
            plan.append(standing.edge(row, files.get(row.label, EdgeFiles())))
        except UsageError as error:
            problems.append(f"line {row.line}: {printable(row.label)}: {error.message}")
    uuids = {each.label: each.sender for each in plan}
    problems += _repeated(rows, "uuid", lambda row: uuids.get(row.label))
    _refuse(problems)
    return plan


class _Standing:
    """What the centre has of all edges."""

    def __init__(
        self,
        senders: Iterable[SenderView],
        tokens: Iterable[TokenView],
        new_uuid: Callable[[], str],
        renew: bool,
        allow_deletes: bool,
        now: float,
    ) -> None:
        self._allow_deletes = allow_deletes
        self._now = now
        self._labels = {
            each.label: each.uuid for each in senders if each.label and not each.removed
        }
        self._tokens = {each.id: each for each in tokens if each.role == records.SENDER}
        self._of_note = {each.note: each for each in self._tokens.values()}
        self._of_sender = {each.sender: each for each in self._tokens.values()}
        self._new_uuid = new_uuid
        self._renew = renew

    def edge(self, row: ListedEdge, files: EdgeFiles) -> EnrolledEdge:
        """What an edge gets; raises UsageError where that does not go with what is there."""
        uuid = self._uuid(row, files)
        if files.token is not None:
            return self._kept(row, uuid, files.token)
        there = self._of_note.get(row.label) or (uuid and self._of_sender.get(uuid))
        if there and not self._renew:
            raise UsageError(
                f"it has token {there.id} already, whose file is not here: revoke it, or give the "
                "directory that has it, or --renew to make another one beside it"
            )
        return EnrolledEdge(label=row.label, sender=uuid or self._new_uuid(), scope=row.scope)

    def _uuid(self, row: ListedEdge, files: EdgeFiles) -> str | None:
        kept = files.uuid
        if kept is not None and not is_sender_uuid(kept):
            raise UsageError("its .uuid file is damaged: expected 32 lower-case hex digits")
        before = self._of_note.get(row.label) if self._renew else None
        said = {
            "the list": row.sender,
            "its .uuid file": kept,
            "its token": None if before is None else before.sender,
        }
        uuids = {uuid for uuid in said.values() if uuid is not None}
        if len(uuids) > 1:
            each = ", ".join(f"{uuid} by {who}" for who, uuid in said.items() if uuid)
            raise UsageError(f"it is {each}: expected one uuid")
        known = self._labels.get(row.label)
        if known is not None and not uuids and files.token is None:
            # A sender says itself how it is called: that binds nobody.
            raise UsageError(
                f"sender {known} calls itself so: say in the column sender that it is this one, or "
                "which other one"
            )
        return next(iter(uuids), None)

    def _kept(self, row: ListedEdge, uuid: str | None, text: str) -> EnrolledEdge:
        found = _TOKEN.fullmatch(text)
        if found is None:
            raise UsageError("its .token file holds no token: remove it to have one made")
        token = self._tokens.get(found[1])
        if token is None:
            raise UsageError(
                f"the token {found[1]} of its file is none of this centre, or was revoked: remove "
                "the file to have another one made"
            )
        if uuid is not None and token.sender != uuid:
            raise UsageError(f"the token {token.id} of its file is for {token.sender}, not {uuid}")
        if set(token.scope) != set(row.scope):
            scope = " ".join(token.scope) or "all"
            raise UsageError(
                f"its token {token.id} has another scope, {scope}: revoke it and remove its file "
                "to have one with this scope"
            )
        if token.allow_deletes is not self._allow_deletes:
            other = "may" if token.allow_deletes else "may not"
            raise UsageError(
                f"its token {token.id} {other} delete: revoke it and remove its file to have "
                "another one made"
            )
        if token.expires is not None and token.expires <= self._now:
            raise UsageError(
                f"its token {token.id} has ended: remove its file to have another one made, by "
                "--renew"
            )
        assert token.sender is not None
        return EnrolledEdge(
            label=row.label,
            sender=token.sender,
            scope=row.scope,
            token=token.id,
            state="kept",
        )


def _refuse(problems: Sequence[str]) -> None:
    if problems:
        more = [f"and {len(problems) - _SHOWN} more"] if len(problems) > _SHOWN else []
        raise UsageError("\n".join([*problems[:_SHOWN], *more]))
