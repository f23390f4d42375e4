"""Errors as they travel: problem+json (RFC 9457) of the error tree, and back."""

from __future__ import annotations

from common.errors import Permanent, Transient, TsferryError, by_slug
from common.wire.base import Count, Struct


class Problem(Struct, frozen=True, kw_only=True):
    """An error as RFC 9457 has it; `type` is `urn:tsferry:<slug>` of the error tree."""

    type: str = "about:blank"
    """`urn:tsferry:` and the kind of the error."""
    title: str = ""
    """The kind, in words."""
    status: int = 500
    """HTTP status."""
    detail: str = ""
    """What was found, where, and what to do."""
    retry_after: float | None = None
    """Seconds after which another try may help; None where none is named."""
    offset: Count | None = None
    device: str | None = None
    path: str | None = None
    line: Count | None = None
    """Of a statement, where it is wrong; from 1 up, as the column."""
    column: Count | None = None
    """Of a statement, where it is wrong; from 1 up."""


_MAX_RETRY_AFTER = 86_400.0


def to_problem(error: TsferryError, *, path: str | None = None) -> Problem:
    """An error of ours as the other side will read it. Whatever is in the error, this works."""
    offset, device = error.extra.get("offset"), error.extra.get("device")
    line, column = error.extra.get("line"), error.extra.get("column")
    where = error.extra.get("path") if path is None else path
    return Problem(
        type=f"urn:tsferry:{error.slug}",
        title=error.slug.replace("-", " "),
        status=error.http_status,
        detail=_utf8(error.message),
        retry_after=error.retry_after,
        offset=offset if isinstance(offset, int) else None,
        device=None if device is None else _utf8(str(device)),
        path=None if where is None else _utf8(str(where)),
        line=line if isinstance(line, int) else None,
        column=column if isinstance(column, int) else None,
    )


def _utf8(text: str) -> str:
    """Text that JSON can carry: names from a disk may hold bytes that are no UTF-8."""
    return text.encode("utf-8", "backslashreplace").decode()


def from_problem(problem: Problem) -> TsferryError:
    """The error that a problem document stands for.

    One of a kind that is not known here (a newer peer's, a proxy's) is judged by its status.
    """
    slug = problem.type.removeprefix("urn:tsferry:")
    kind = by_slug(slug)
    if kind is TsferryError and slug != TsferryError.slug:
        kind = Permanent if 400 <= problem.status < 500 else Transient
    extra: dict[str, object] = {
        key: value
        for key in ("offset", "device", "path", "line", "column")
        if (value := getattr(problem, key)) is not None
    }
    detail = problem.detail or problem.title or f"HTTP status {problem.status}"
    pause = problem.retry_after
    if pause is not None:
        pause = min(max(pause, 0.0), _MAX_RETRY_AFTER)  # the other side's word puts nobody to sleep
    return kind(detail, retry_after=pause, extra=extra)
