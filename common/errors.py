"""The error tree: what went wrong, whether trying again helps, and how it leaves the process.

Three branches, and every error of ours is in one of them:

* `Permanent`: the same call will fail again until somebody changes something.
* `Transient`: the same call may succeed later; `retry_after` says when, where that is known.
* `Integrity`: bytes are not what they should be; retrying means sending them afresh.

A class carries the exit code of a command that ends with it, the HTTP status of a server that
answers with it, and the `slug` by which both ends name it (problem+json `type`). The message says
what was found, where, and what to do.
"""

from __future__ import annotations

from typing import ClassVar, Final

__all__ = [
    "DISK_ERRORS",
    "EXIT_HELD",
    "EXIT_INTERNAL",
    "EXIT_LATE",
    "EXIT_LOCKED",
    "EXIT_NOT_LOADED",
    "EXIT_STOPPED",
    "EXIT_UNREACHABLE",
    "EXIT_USAGE",
    "AddressMissingError",
    "AddressTakenError",
    "BusyError",
    "CloneError",
    "ConfigError",
    "ConflictError",
    "DamagedError",
    "DigestError",
    "DiskError",
    "FailedSyncError",
    "ForbiddenError",
    "GoneError",
    "Integrity",
    "LockedError",
    "NameRefusedError",
    "NoSpaceError",
    "NotATsFileError",
    "NotFoundError",
    "NotPermittedError",
    "NotTheWriterError",
    "OffsetError",
    "Permanent",
    "ProtocolError",
    "ReadOnlyDiskError",
    "ReadOnlyError",
    "StoppedError",
    "TooLargeError",
    "Transient",
    "TsferryError",
    "UnauthorizedError",
    "UnreachableError",
    "UnsafePathError",
    "UsageError",
    "by_slug",
]

EXIT_INTERNAL = 1
EXIT_USAGE = 2
EXIT_NOT_LOADED = 3
EXIT_UNREACHABLE = 4
EXIT_LOCKED = 5
EXIT_HELD = 6
EXIT_LATE = 7
"""At the receiver: an edge is silent for longer than it may be."""
EXIT_STOPPED = 130
"""As a shell reports a command that Ctrl-C ended: 128 + SIGINT."""


class TsferryError(Exception):
    """Root of every error that tsferry raises on purpose."""

    slug: ClassVar[str] = "internal"
    exit_code: ClassVar[int] = EXIT_INTERNAL
    http_status: ClassVar[int] = 500
    retry: ClassVar[bool] = False

    def __init__(
        self,
        message: str,
        *,
        retry_after: float | None = None,
        extra: dict[str, object] | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.retry_after = retry_after
        """Seconds until another try makes sense, where that is known."""
        self.extra = extra or {}
        """Further members of the problem document (JSON values), such as `device` or `offset`."""


class Permanent(TsferryError):
    """Trying again does not help until somebody changes something."""

    slug = "permanent"
    http_status = 400


class Transient(TsferryError):
    """Trying again later may help."""

    slug = "transient"
    exit_code = EXIT_UNREACHABLE
    http_status = 503
    retry = True


class Integrity(TsferryError):
    """Bytes are not what they should be."""

    slug = "integrity"
    http_status = 422


class UsageError(Permanent):
    """A command or request was put wrongly."""

    slug = "usage"
    exit_code = EXIT_USAGE


class ConfigError(Permanent):
    """A configuration value cannot be used; the message names file, key, value and expectation."""

    slug = "configuration"
    exit_code = EXIT_USAGE


class NameRefusedError(Permanent):
    """A name that would leave its directory, break a log line, or is reserved."""

    slug = "name-refused"
    exit_code = EXIT_USAGE


class NotPermittedError(Permanent):
    """The system lets the user of this process not do it; the message names path and way out."""

    slug = "not-permitted"
    exit_code = EXIT_USAGE
    http_status = 500


class UnsafePathError(Permanent):
    """The file system holds something at a path that must not be followed (a symlink, a FIFO)."""

    slug = "unsafe-path"
    http_status = 409


class UnauthorizedError(Permanent):
    """No token, or one that is not known (any more)."""

    slug = "unauthorized"
    exit_code = EXIT_UNREACHABLE
    http_status = 401


class ForbiddenError(Permanent):
    """The token or the address may not do this."""

    slug = "forbidden"
    exit_code = EXIT_UNREACHABLE
    http_status = 403


class NotFoundError(Permanent):
    """There is nothing by that name."""

    slug = "not-found"
    exit_code = EXIT_USAGE
    http_status = 404


class NotTheWriterError(Permanent):
    """A node that only reads takes nothing, nor does a receiver whose place another has taken."""

    slug = "not-the-writer"
    exit_code = EXIT_UNREACHABLE
    http_status = 421


class GoneError(Permanent):
    """It was here and is not any more: an expired upload, a task that a newer one replaced."""

    slug = "gone"
    exit_code = EXIT_UNREACHABLE
    http_status = 410


class ConflictError(Permanent):
    """A device of another owner, or other content under a path that is taken."""

    slug = "conflict"
    exit_code = EXIT_NOT_LOADED
    http_status = 409


class CloneError(Permanent):
    """Two machines speak under one sender uuid."""

    slug = "clone"
    exit_code = EXIT_UNREACHABLE
    http_status = 409


class ProtocolError(Permanent):
    """The other side speaks another protocol, or breaks this one."""

    slug = "protocol"
    exit_code = EXIT_UNREACHABLE


class TooLargeError(Permanent):
    """More than a limit allows; the message names the limit."""

    slug = "too-large"
    exit_code = EXIT_NOT_LOADED
    http_status = 413


class OffsetError(Permanent):
    """A block does not begin where the receiver's copy ends (`extra["offset"]`)."""

    slug = "offset"
    http_status = 409


class BusyError(Transient):
    """An earlier task of this sender is still loading, or the server is at its limit."""

    slug = "busy"


class UnreachableError(Transient):
    """The receiver did not answer, or the connection broke."""

    slug = "unreachable"


class NoSpaceError(Transient):
    """Too little free space, or a quota is used up; heals by itself when space comes back."""

    slug = "no-space"
    exit_code = EXIT_NOT_LOADED
    http_status = 507


class DiskError(Transient):
    """The disk or its file system failed a write; the kernel's log says more."""

    slug = "disk"
    exit_code = EXIT_INTERNAL


class ReadOnlyError(Transient):
    """The process takes no writes any more after a write or sync failed; restart it."""

    slug = "read-only"


class ReadOnlyDiskError(ReadOnlyError):
    """The file system takes no writes."""

    slug = "read-only-disk"
    exit_code = EXIT_INTERNAL


DISK_ERRORS: Final = (NoSpaceError, DiskError, ReadOnlyError)
"""What a disk of this machine says, whoever the bytes are of."""


class AddressTakenError(Transient):
    """Another process listens on the address."""

    slug = "address-taken"
    exit_code = EXIT_LOCKED


class AddressMissingError(Transient):
    """The address to listen on is not one of this machine's, or not yet."""

    slug = "address-missing"


class LockedError(Transient):
    """Another process holds the lock of this directory."""

    slug = "locked"
    exit_code = EXIT_LOCKED


class StoppedError(Transient):
    """Somebody told this process to stop; what it was doing goes on when it is started again."""

    slug = "stopped"
    exit_code = EXIT_STOPPED


class DigestError(Integrity):
    """A checksum does not match; the bytes were dropped."""

    slug = "digest-mismatch"


class NotATsFileError(Integrity):
    """The bytes arrived whole and are no complete TsFile of a version that we read."""

    slug = "not-a-tsfile"
    exit_code = EXIT_NOT_LOADED


class DamagedError(Integrity):
    """A file of ours is damaged in the middle; the message names the file and the offset."""

    slug = "damaged"
    http_status = 500


class FailedSyncError(Integrity):
    """A flush to disk failed: what the kernel still holds of that file is unknown, so no retry."""

    slug = "failed-sync"
    http_status = 503


def _classes(root: type[TsferryError]) -> dict[str, type[TsferryError]]:
    # A class without a slug of its own goes by its parent's name and must not take it over.
    found = {root.slug: root} if "slug" in vars(root) else {}
    for child in root.__subclasses__():
        found.update(_classes(child))
    return found


def by_slug(slug: str) -> type[TsferryError]:
    """The class that the other side's problem document names, or `TsferryError`."""
    return _classes(TsferryError).get(slug, TsferryError)
