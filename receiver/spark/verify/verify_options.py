"""What `tsferry-verify` was asked for; light, so that wrong options are named at once."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from common.console.cli import Program
from common.errors import (
    EXIT_INTERNAL,
    EXIT_LOCKED,
    EXIT_NOT_LOADED,
    EXIT_STOPPED,
    EXIT_UNREACHABLE,
    EXIT_USAGE,
)
from receiver.config import ENV_PREFIX, FILE, ReceiverConfig
from receiver.storage.reading.stored_place import ReceiverAddress

__all__ = ["MANY_BAD", "PROGRAM", "VerifyOptions"]

PROGRAM = Program(
    "tsferry-verify",
    ReceiverConfig,
    ENV_PREFIX,
    FILE,
    {
        0: "all is proved, nothing to look at",
        EXIT_INTERNAL: "bad files, problems, files that could not be judged, or the run could not "
        "be completed",
        EXIT_USAGE: "usage or configuration, or an extra is not installed",
        EXIT_NOT_LOADED: "no space for the report",
        EXIT_UNREACHABLE: "the receiver does not take the verdicts",
        EXIT_LOCKED: "the verdicts could not be committed: no receiver answers, and its directory "
        "is locked",
        EXIT_STOPPED: "interrupted",
    },
)
MANY_BAD = 10
"""Bad files from which on they may not be more than half of those that were judged."""


@dataclass(frozen=True, slots=True)
class VerifyOptions:
    """What was asked for, checked; the same for files of a receiver and others.

    Attributes:
        master: of Spark, None to let the environment decide.
        report: directory, absolute.
        as_json: print JSON.
        limit: seconds for a part of work.
        commit: tell the receiver.
        quarantine_many: however many are bad.
        receiver: that gives files to workers which have no other way to them.
    """

    master: str | None
    report: Path | None
    as_json: bool
    limit: float
    commit: bool
    quarantine_many: bool
    receiver: ReceiverAddress | None = None
