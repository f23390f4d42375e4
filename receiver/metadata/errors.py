"""What the metadata engine refuses, and why."""

from __future__ import annotations

from common.errors import Permanent, Transient

__all__ = ["GuardFailed", "NewerLogError", "RefusedCommitError"]


class GuardFailed(Transient):
    """A row changed since the caller looked at it: look again and decide again."""

    slug = "guard-failed"
    http_status = 409


class RefusedCommitError(Permanent):
    """An operation breaks a rule of the engine; nothing of its commit was logged or is visible."""

    slug = "commit-refused"
    http_status = 409


class NewerLogError(Permanent):
    """The log was written by a newer version of tsferry; the message has its number."""

    slug = "newer-log"
    http_status = 500
