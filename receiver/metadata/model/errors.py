"""What the metadata engine refuses, and why."""

from __future__ import annotations

import re
from typing import Final

from common.errors import EXIT_USAGE, ConflictError, NotFoundError, Permanent, Transient

__all__ = [
    "AliasTakenError",
    "AlignmentError",
    "CompactedError",
    "EncodingRefusedError",
    "FencedError",
    "GroupDeletionHeldError",
    "GuardFailed",
    "HistoryGoneError",
    "KeyConflictError",
    "KeyMissingError",
    "KeyRefusedError",
    "MemoryLimitError",
    "NewerLogError",
    "NotATagError",
    "RefusedCommitError",
    "SchemaConflictError",
    "SchemaRefusedError",
    "SeriesExistsError",
    "SeriesMissingError",
    "SeriesNestedError",
    "SqlError",
    "StorageGroupExistsError",
    "StorageGroupHoldsFilesError",
    "StorageGroupMissingError",
    "StorageGroupNestedError",
    "TableExistsError",
    "TableMissingError",
    "TableRefusedError",
    "TagExistsError",
    "TagMissingError",
    "TagRefusedError",
    "TagsTooLargeError",
    "TimestampRefusedError",
    "TtlRefusedError",
    "UnknownCompressionError",
    "UnknownEncodingError",
    "UnknownOutcomeError",
    "UnknownTypeError",
]


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


class HistoryGoneError(Permanent):
    """A question about a time before the kept history; `extra["oldest"]` can be answered."""

    slug = "history-gone"
    http_status = 410


class TagsTooLargeError(RefusedCommitError):
    """Tags and attributes of a series take more bytes than the limit; the message names both."""

    slug = "tags-too-large"
    http_status = 413


class TimestampRefusedError(Transient):
    """The allocator gave a timestamp that does not follow the newest; only this commit is lost."""

    slug = "timestamp-refused"


class FencedError(Permanent):
    """Another process has taken over the remote log; this one takes no more commits."""

    slug = "fenced"
    http_status = 503


class UnknownOutcomeError(Transient):
    """The remote log did not say whether a commit is in it; look again before trying again."""

    slug = "unknown-outcome"


class KeyMissingError(NotFoundError):
    """The key-value store has no value under this key, at the time that was asked for."""

    slug = "key-missing"


class KeyRefusedError(RefusedCommitError):
    """A key or prefix that cannot be stored: empty, too long, or no Unicode text."""

    slug = "key-refused"
    http_status = 400


class KeyConflictError(Transient):
    """Another process wrote to the key-value store meanwhile; nothing was written, try again."""

    slug = "key-conflict"
    http_status = 409


class CompactedError(HistoryGoneError):
    """Somebody compacted etcd beyond that time; `extra["oldest"]` can still be asked for."""

    slug = "compacted"


class SqlError(Permanent):
    """A statement is not put right; the message names line and column, and what was expected.

    `extra`: line, column, length (of the place, in characters), reason, and unfinished: whether
    the statement is right as far as it goes.
    """

    slug = "sql"
    exit_code = EXIT_USAGE


class NotATagError(Permanent):
    """A condition on something that is the tag of no series: only tags filter."""

    slug = "not-a-tag"
    exit_code = EXIT_USAGE


# -- the schema: what `receiver.metadata.commit.judging.rules` refuses
# --------------------------------------------

_SHOWN: Final = 1000
"""Characters of a name or path that an error repeats; more only hides what it says."""
_LONG: Final = re.compile(rf"\S{{{_SHOWN},}}|.{{{4 * _SHOWN},}}", re.DOTALL)


class SchemaRefusedError(RefusedCommitError):
    """Base of what the rules of the schema refuse; `extra["path"]` is the object meant."""

    slug = "schema-refused"

    def __init__(
        self,
        message: str,
        *,
        retry_after: float | None = None,
        extra: dict[str, object] | None = None,
    ) -> None:
        shown = {
            key: _shortened(value) if isinstance(value, str) else value
            for key, value in (extra or {}).items()
        }
        super().__init__(_shortened(message), retry_after=retry_after, extra=shown)


def _shortened(text: str) -> str:
    if len(text) < _SHOWN:
        return text
    return _LONG.sub(lambda found: f"{found[0][:200]}... ({len(found[0])} characters)", text)


class StorageGroupExistsError(SchemaRefusedError):
    """A storage group that is to be made is there already."""

    slug = "storage-group-exists"


class StorageGroupNestedError(SchemaRefusedError):
    """A storage group would lie in another, or another in it; `extra["other"]` is that one."""

    slug = "storage-group-nested"


class StorageGroupMissingError(SchemaRefusedError, NotFoundError):
    """There is no storage group of that name, or none that a series could lie in."""

    slug = "storage-group-missing"
    http_status = 404


class TableExistsError(SchemaRefusedError):
    """A table that is to be made is there already, whoever made it."""

    slug = "table-exists"


class TableMissingError(SchemaRefusedError, NotFoundError):
    """There is no table of that name or id."""

    slug = "table-missing"
    http_status = 404


class TableRefusedError(SchemaRefusedError):
    """A table cannot be made or altered as it was said: its name, partitions or replicas."""

    slug = "table-refused"
    exit_code = EXIT_USAGE
    http_status = 400


class StorageGroupHoldsFilesError(SchemaRefusedError):
    """A storage group that is to be deleted holds loaded files; `extra` has `files` and `bytes`."""

    slug = "storage-group-holds-files"


class GroupDeletionHeldError(SchemaRefusedError):
    """More files would go with a storage group than go at once; `extra["digest"]` is their list."""

    slug = "storage-group-deletion-held"


class SeriesExistsError(SchemaRefusedError):
    """A series that is to be made is there already, or twice in one operation."""

    slug = "series-exists"


class SeriesMissingError(SchemaRefusedError, NotFoundError):
    """There is no series of that name, or none that a pattern matches."""

    slug = "series-missing"
    http_status = 404


class SeriesNestedError(SchemaRefusedError):
    """A series would lie below another, or take the place of nodes that have series below them."""

    slug = "series-nested"


class AliasTakenError(SchemaRefusedError):
    """A name and an alias of one device would be the same; `extra["name"]` is that text."""

    slug = "alias-taken"


class AlignmentError(SchemaRefusedError):
    """The device is there and shares one time column, or does not, other than was said."""

    slug = "alignment"


class UnknownTypeError(SchemaRefusedError):
    """There is no such data type."""

    slug = "unknown-type"
    exit_code = EXIT_USAGE
    http_status = 400


class UnknownEncodingError(SchemaRefusedError):
    """There is no such encoding."""

    slug = "unknown-encoding"
    exit_code = EXIT_USAGE
    http_status = 400


class UnknownCompressionError(SchemaRefusedError):
    """There is no such compression."""

    slug = "unknown-compression"
    exit_code = EXIT_USAGE
    http_status = 400


class EncodingRefusedError(SchemaRefusedError):
    """The encoding is not for this data type; the message has those that are."""

    slug = "encoding-refused"
    exit_code = EXIT_USAGE
    http_status = 400


class TtlRefusedError(SchemaRefusedError):
    """A time to live must be from 1 to 2^63 - 1 milliseconds."""

    slug = "ttl-refused"
    exit_code = EXIT_USAGE
    http_status = 400


class TagExistsError(SchemaRefusedError):
    """A series has a tag or attribute of that key already (`extra["key"]`), or would have two."""

    slug = "tag-exists"


class TagMissingError(SchemaRefusedError, NotFoundError):
    """A series has no tag or attribute of that key (`extra["key"]`)."""

    slug = "tag-missing"
    http_status = 404


class TagRefusedError(SchemaRefusedError):
    """A key of a tag or attribute cannot be used: it is empty."""

    slug = "tag-refused"
    exit_code = EXIT_USAGE
    http_status = 400


class MemoryLimitError(SchemaRefusedError):
    """Series and storage groups would take more than `max_memory`; `extra`: limit, used, needed."""

    slug = "memory-limit"
    http_status = 507


class SchemaConflictError(ConflictError):
    """A loaded file contradicts the schema.

    `extra`: path and sender (of the file), series, and where the types differ, `expected` (that of
    the schema) and `found` (that of the file).
    """

    slug = "schema-conflict"
