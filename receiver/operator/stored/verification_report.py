"""What the last verification wrote into its directory, as far as people are told of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from common.decoders import from_json
from common.durable import Tree
from common.errors import TsferryError
from common.wire.base import CommitTs

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["ReportedProblem", "VerificationReport", "last_report"]

_NAME: Final = "report.json"
_LARGEST: Final = 16 << 20


class ReportedProblem(msgspec.Struct, frozen=True, kw_only=True):
    """A finding, as `report.json` has it."""

    severity: str
    check: str
    physical: str
    detail: str
    sender: str = ""
    path: str = ""
    device: str | None = None
    measurement: str | None = None


class VerificationReport(msgspec.Struct, frozen=True, kw_only=True):
    """A run of `tsferry-verify`; what it counts is explained with `report.json`.

    Attributes:
        engine: uuid of the engine that it was about; empty for plain files.
        commit: as of which the catalogue was read.
        scope: what was asked for, in words.
        begun: RFC 3339, UTC.
        seconds: that it took.
        files: that were looked at: proved, bad or unproved.
        proved: of these.
        bad: of these.
        unproved: of these.
        problems: findings between files.
        notes: findings that are no fault.
        bytes: of all files.
        points: that were decoded.
        passed_over: visible files that the scope left out.
        findings: all of them.
    """

    engine: str
    commit: CommitTs
    scope: str
    begun: str
    seconds: float
    files: int
    proved: int
    bad: int
    unproved: int
    problems: int
    notes: int
    bytes: int
    points: int
    passed_over: int = 0
    findings: list[ReportedProblem] = msgspec.field(default_factory=list)


def last_report(directory: Path) -> VerificationReport | str:
    """The report in a directory, or in words why there is none."""
    try:
        with Tree(directory) as tree:
            data = tree.read(_NAME, limit=_LARGEST)
    except OSError as error:
        return f"{directory / _NAME}: {error.strerror or error}"
    except TsferryError as error:
        return error.message
    try:
        return from_json(data, VerificationReport)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        return f"{directory / _NAME} is no report: {error}"
