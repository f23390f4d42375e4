"""What came of a round, for people, for machines, and as an exit code."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec

from common.console.terminal import counted, printable, size_text
from common.errors import (
    EXIT_HELD,
    EXIT_INTERNAL,
    EXIT_LOCKED,
    EXIT_NOT_LOADED,
    EXIT_STOPPED,
    EXIT_UNREACHABLE,
    EXIT_USAGE,
    NotFoundError,
    TsferryError,
)
from common.wire import HeldRecords, VerifiedFiles
from sender.kept.seen_looks.looks import EdgeLook
from sender.round.round_words.shown_rounds import ReasonShown, RoundShown, VerifiedShown
from sender.schema.standing import SchemaReport
from sender.select.found import Why
from sender.send.remote import Remote

__all__ = [
    "FileDevice",
    "FileOffset",
    "FileReason",
    "RoundReport",
    "as_text",
    "kept_deletions",
    "of_held_records",
    "overdue",
    "verified_json",
    "worst",
]

_DONE = ("sent", "deleted", "already", "resources", "bytes", "retired")
"""What counts what was done, in a report."""
_BY_WEIGHT = (
    EXIT_INTERNAL,
    EXIT_USAGE,
    EXIT_STOPPED,
    EXIT_LOCKED,
    EXIT_UNREACHABLE,
    EXIT_NOT_LOADED,
    EXIT_HELD,
)
"""Where several codes apply, the first of these is the one: what ended the round, then what it
could not do."""


def worst(codes: list[int]) -> int:
    """The exit code of a command that several receivers ended with different ones."""
    for code in _BY_WEIGHT:
        if code in codes:
            return code
    return max(codes, default=0)


class FileReason(msgspec.Struct, frozen=True):
    """A file and what became of it, in words."""

    file: str
    """Its path, below its data directory."""
    reason: str


class FileDevice(msgspec.Struct, frozen=True):
    """A file and the device that another sender owns; the device is None for a clash of content."""

    file: str
    device: str | None
    reason: str = ""


class FileOffset(msgspec.Struct, frozen=True):
    """A file whose transfer went on from an offset (bytes)."""

    file: str
    offset: int


@dataclass
class RoundReport:
    """One round with one receiver.

    Attributes:
        receiver: its name.
        tasks: ids of the tasks that were committed, in order.
        sent: files that travelled and are loaded.
        deleted: files deleted at the receiver; replaced ones are not counted.
        already: files that the receiver had loaded already.
        resources: loaded files of which the database had written another `.resource`.
        bytes: bytes that travelled.
        resumed: files whose transfer went on in the middle.
        seconds: that the round took.
        retired: gone files that stay at the receiver, off this sender's list.
        held: deletions that wait, and why.
        held_records: likewise, records of deletion files that wait for the receiver's operator.
        kept_deletions: files whose deletion file shrank or vanished, which withdraws nothing.
        conflicts: files with a device of another owner, or other content under their path.
        refused: files whose name, size, or device the receiver does not allow.
        failed: files that were not loaded for another reason; the next round tries again.
        quarantined: files that the receiver put aside.
        expired: files that the receiver does not keep: past a TTL, or deleted by its operator.
        changed: files that changed or vanished under way; the next round looks at them again.
        wanted: files that the receiver had loaded, found bad, and asked for again in this round.
        lost: files that neither side has any more, until the receiver's operator acknowledges them.
        verified: how many of what it has loaded the receiver has verified, at the check; None from
            one that does not tell.
        waiting: files that are not closed, or not ready.
        overdue: those of them that have been so for longer than `wait_alarm`, and why.
        unmounted: data directories that do not count now, and why.
        error: what ended the round early.
        guarded: whether the receiver holds ends until its operator lets them through.
        up_to_date: listed files with nothing to do.
        pending_files: closed files that are not loaded after the round.
        pending_bytes: of these.
        complete_until: data time before which nothing of this node is unloaded; None if unknown.
        looked: whether the three above were found out in this round.
        schema: what became of the schema log; None if there is none here.
        token_until: when the token ends, as the receiver said; None for never.
        certificate_until: when its certificate ends; None if it has none.
        client_certificate_until: when the certificate ends that is shown to it; None without one.
        address: that answered the check; None if none did.
        failing_since: when the first of the rounds ended that have all ended early since, this one
            too; None if this one came to its end.
    """

    receiver: str
    tasks: list[str] = field(default_factory=list)
    sent: int = 0
    deleted: int = 0
    already: int = 0
    resources: int = 0
    bytes: int = 0
    resumed: list[FileOffset] = field(default_factory=list)
    seconds: float = 0.0
    retired: int = 0
    held: list[FileReason] = field(default_factory=list)
    held_records: list[FileReason] = field(default_factory=list)
    kept_deletions: list[FileReason] = field(default_factory=list)
    conflicts: list[FileDevice] = field(default_factory=list)
    refused: list[FileReason] = field(default_factory=list)
    failed: list[FileReason] = field(default_factory=list)
    quarantined: list[FileReason] = field(default_factory=list)
    expired: list[FileReason] = field(default_factory=list)
    changed: list[FileReason] = field(default_factory=list)
    wanted: list[FileReason] = field(default_factory=list)
    lost: list[FileReason] = field(default_factory=list)
    verified: VerifiedFiles | None = None
    waiting: int = 0
    overdue: list[FileReason] = field(default_factory=list)
    unmounted: list[FileReason] = field(default_factory=list)
    error: TsferryError | None = None
    guarded: bool = False
    up_to_date: int = 0
    pending_files: int = 0
    pending_bytes: int = 0
    complete_until: int | None = None
    looked: bool = False
    schema: SchemaReport | None = None
    token_until: float | None = None
    certificate_until: float | None = None
    client_certificate_until: float | None = None
    address: str | None = None
    failing_since: float | None = None

    def behind(self, begun: RoundReport) -> RoundReport:
        """Of a round that began anew: with what had been done before that."""
        return replace(
            self,
            **{
                each: getattr(begun, each) + getattr(self, each)
                for each in (*_DONE, "tasks", "resumed", "wanted", "seconds")
            },
        )

    @property
    def exit_code(self) -> int:
        """0 if all that is closed is loaded, or what stands most in the way."""
        codes = []
        if self.error is not None:
            codes.append(_code_of(self.error))
        kinds = (
            self.conflicts,
            self.refused,
            self.failed,
            self.quarantined,
            self.unmounted,
            self.overdue,
        )
        if any(kinds) or self.lost:
            codes.append(EXIT_NOT_LOADED)
        if self.guarded or self.held_records:
            codes.append(EXIT_HELD)
        return worst(codes)

    @property
    def quiet(self) -> bool:
        """Whether there was nothing to do and nothing to tell."""
        return not (self.tasks or self.exit_code)

    def as_json(self) -> RoundShown:
        """The object that `sync --json` prints."""
        shown: RoundShown = {
            "receiver": self.receiver,
            "address": self.address,
            "task": self.tasks[-1] if self.tasks else None,
            "tasks": self.tasks,
            "sent": self.sent,
            "deleted": self.deleted,
            "already": self.already,
            "resources": self.resources,
            "bytes": self.bytes,
            "resumed": [{"file": each.file, "offset": each.offset} for each in self.resumed],
            "seconds": round(self.seconds, 3),
            "retired": self.retired,
            "held": _reasons([*self.held_records, *self.held]),
            "kept_deletions": _reasons(self.kept_deletions),
            "conflicts": [
                {"file": each.file, "device": each.device, "reason": each.reason}
                for each in self.conflicts
            ],
            "refused": _reasons(self.refused),
            "failed": _reasons(self.failed),
            "quarantined": _reasons(self.quarantined),
            "expired": _reasons(self.expired),
            "changed": _reasons(self.changed),
            "wanted": _reasons(self.wanted),
            "lost": _reasons(self.lost),
            "verified": verified_json(self.verified),
            "waiting": self.waiting,
            "overdue": _reasons(self.overdue),
            "unmounted": _reasons(self.unmounted),
            "pending": {"files": self.pending_files, "bytes": self.pending_bytes},
            "complete_until": self.complete_until,
            "schema": None if self.schema is None else self.schema.as_json(),
            "error": None,
            "exit_code": self.exit_code,
        }
        if self.error is not None:
            shown["error"] = {"type": self.error.slug, "message": self.error.message}
        return shown


def verified_json(found: VerifiedFiles | None) -> VerifiedShown | None:
    """How many files are loaded there, and verified: `files`, `verified`."""
    return None if found is None else {"files": found.files, "verified": found.verified}


def of_held_records(found: Iterable[HeldRecords]) -> list[FileReason]:
    """Deletions that the receiver holds, as a report names them."""
    return [
        FileReason(
            f"deletion files of {each.group}", f"{each.reason} ({counted(each.files, 'file')})"
        )
        for each in found
    ]


def kept_deletions(look: EdgeLook, remote: Remote) -> list[FileReason]:
    """Files whose deletion file shrank or vanished, where what it says is looked at."""
    if remote.config.deletion_files == "wait" or remote.entry.source != "directories":
        return []
    return [FileReason(path.text, reason) for path, reason in look.kept_deletions]


def overdue(look: EdgeLook, alarm: float, now: float) -> list[FileReason]:
    """The files that have waited too long, and why; those outside the filter wait for nothing.

    Args:
        look: at the local files.
        alarm: seconds; 0 for never.
        now: seconds since the epoch.
    """
    late = []
    for each in look.scan.waiting if alarm else ():
        since = look.waits_since(each)
        came = None if each.why is Why.FILTERED else _came(each.data_dir / each.text, since)
        if came is not None and now - came > alarm:
            late.append(FileReason(each.text, f"has waited {_days(now - came)}: {each.reason}"))
    return late


def _came(path: Path, since: float) -> float | None:
    """When a file's last byte, its name or its rights came; None if it is not there.

    The last two are as old as the first look that saw it wait: whoever makes another link to it, as
    backups do each night, makes nothing come.
    """
    try:
        found = os.lstat(path)
    except (OSError, ValueError):
        return None
    return max(found.st_mtime, min(found.st_ctime, since or found.st_ctime))


def _days(seconds: float) -> str:
    hours = round(seconds / 3600)
    return f"{hours} hours" if hours < 48 else f"{hours // 24} days"


def _reasons(found: list[FileReason]) -> list[ReasonShown]:
    return [{"file": each.file, "reason": each.reason} for each in found]


def _code_of(error: TsferryError) -> int:
    """The exit code for what ended a round early.

    What a receiver says of itself, such as that its disk fails, is a receiver that refuses.
    """
    theirs = "status" in error.extra and error.exit_code == EXIT_INTERNAL
    if theirs or isinstance(error, NotFoundError):  # there is no such call at that address
        return EXIT_UNREACHABLE
    return error.exit_code


_SHOWN = 10
_PROBLEMS = ("lost", "wanted", "quarantined", "refused", "failed", "held", "overdue")


def as_text(report: RoundShown) -> str:
    """The object of a round for people: what was done, then a line for each thing to see to."""
    lines = [
        f"{report['receiver']}: {counted(report['sent'], 'file')} loaded "
        f"({size_text(report['bytes'])} sent, "
        f"{report['seconds']:.1f} s)"
    ]
    counts = (
        (report["already"], "were there already"),
        (report.get("resources", 0), "whose .resource alone was told"),
        (report["deleted"], "deleted"),
        (report["retired"], "gone here and kept there"),
        (len(report["resumed"]), "resumed in the middle"),
        (report["waiting"], "waiting (status says why)"),
        (len(report["changed"]), "changed under way, left for the next round"),
        (
            len(report.get("kept_deletions", ())),
            "whose deletion file shrank or vanished (status says which)",
        ),
        (len(report["expired"]), "that the receiver does not keep (quarantine list says why)"),
    )
    lines[0] += "".join(f", {number} {text}" for number, text in counts if number)
    for each in report["conflicts"][:_SHOWN]:
        what = f"device {each['device']} belongs to another" if each["device"] else each["reason"]
        lines.append(f"  conflict: {each['file']}: {what}")
    problems: dict[str, list[ReasonShown]] = {key: report.get(key, []) for key in _PROBLEMS}  # type: ignore[misc]  # each is one
    for key, found in (*problems.items(), ("unmounted", report.get("unmounted", []))):
        lines += [f"  {key}: {each['file']}: {each['reason']}" for each in found[:_SHOWN]]
    for key, length in (
        ("conflicts", len(report["conflicts"])),
        *((key, len(found)) for key, found in problems.items()),
    ):
        if length > _SHOWN:
            lines.append(f"  ... and {length - _SHOWN} more {key} (--json lists them all)")
    schema = report.get("schema")
    if schema is not None and schema["problem"] is not None:
        lines.append(f"  schema: {schema['problem']}")
    elif schema is not None and schema["unapplied"]:
        lines.append(
            f"  schema: {counted(schema['unapplied'], 'record')} not applied (status says why)"
        )
    if report["error"] is not None:
        lines.append(f"  error: {report['error']['message']}")
    return "\n".join(map(printable, lines))
