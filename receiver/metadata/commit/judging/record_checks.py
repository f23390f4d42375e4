"""What a record says, judged by itself: names, sizes, digests, ranges of time, origins."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

from common.digests import is_md5
from common.errors import NameRefusedError
from common.names import FilePath, is_sender_uuid
from receiver.metadata.model import records
from receiver.metadata.model.certificate_names import is_certificate_name
from receiver.metadata.model.errors import RefusedCommitError
from receiver.metadata.model.merged_names import is_merged

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "SIGNED_64",
    "check_content",
    "check_devices",
    "check_names",
    "check_origin",
    "check_token",
    "is_range",
    "parse_path",
    "refusal_of",
]

SIGNED_64 = range(-(1 << 63), 1 << 63)
_HEX64 = re.compile(r"[0-9a-f]{64}\Z")


def check_names(op: records.FileLoaded) -> None:
    """Refuse a file whose two names lie in different directories."""
    path, physical = parse_path(op, op.path), parse_path(op, op.physical)
    if is_merged(op.physical):  # it has files of both kinds, and the name of the highest
        path = FilePath(physical.kind, *path.group, path.name)
    if path.directory != physical.directory:
        raise refusal_of(op, f"{op.physical} is not in the directory of {op.path}")


def check_content(op: records.FileLoaded) -> None:
    """Refuse sizes, digests, ranges of time and devices that no file has."""
    numbers = (op.size, op.series, op.points)
    if any(not 0 <= each < SIGNED_64.stop for each in numbers):
        raise refusal_of(op, f"{op.path} has a size or count out of range")
    if not is_md5(op.md5):
        raise refusal_of(op, f"{op.path}: {op.md5!a} is no MD5")
    if not is_range(op.first, op.last):
        raise refusal_of(op, f"{op.path}: {op.first} to {op.last} is no range of time")
    check_devices(op, op.path, op.devices, (op.first, op.last))


def check_token(op: records.TokenPut) -> None:
    """Refuse a token of no role, and one that says what its role has not."""
    if op.role not in records.TOKEN_ROLES:
        raise refusal_of(op, f"{op.role!a} is no role")
    if (op.role == records.SENDER) is not (op.sender is not None):
        raise refusal_of(op, "a sender's token, and no other, is bound to a sender")
    if op.role not in (records.SENDER, records.WRITER) and not op.allow_deletes:
        raise refusal_of(op, "a sender's or a writer's token, and no other, can forbid deletes")
    if (op.role == records.WRITER) is not bool(op.owners):
        raise refusal_of(op, "a writer's token, and no other, says whose devices it may load")
    named = [each for each in op.owners if each != records.ANYONE]
    for each in named if op.sender is None else [op.sender]:
        if not is_sender_uuid(each):
            raise refusal_of(op, f"{each!a} is no sender uuid")
    if op.expires is not None and not math.isfinite(op.expires):
        raise refusal_of(op, f"{op.expires} is no time to expire at")
    if not _HEX64.match(op.hash):
        raise refusal_of(op, "the hash is not 64 hex digits")
    if op.certificate is not None and not is_certificate_name(op.certificate):
        raise refusal_of(op, f"{op.certificate[:100]!a} is no name of a certificate")


def check_devices(
    op: records.Op,
    path: str,
    devices: Sequence[records.DeviceRange],
    span: tuple[int | None, int | None],
) -> None:
    """Refuse devices that a file has twice, or that reach beyond its range of time."""
    names = {each.name for each in devices}
    if len(names) != len(devices) or "" in names:
        raise refusal_of(op, f"{path} has a device twice, or one without a name")
    first, last = span
    for each in devices:
        inside = is_range(each.first, each.last) and (
            each.first is None or _within(each.first, each.last, first, last)
        )
        if not inside:
            raise refusal_of(
                op,
                f"{path}: device {each.name} has {each.first} to {each.last}, "
                f"the file {first} to {last}",
            )


def check_origin(op: records.Op, origin: records.FileOrigin) -> None:
    """Refuse an origin that names no edge, no engine, or looks that are none."""
    parse_path(op, origin.path)
    if not is_sender_uuid(origin.sender) or not origin.below:
        raise refusal_of(op, f"{origin.sender!a} is no edge that it comes from")
    for each in origin.below:
        looks = (each.first, each.closed, each.last, each.loaded)
        if not is_sender_uuid(each.engine) or any(
            look not in SIGNED_64 or look < 0 for look in looks
        ):
            raise refusal_of(op, f"{each.engine!a} has no looks {looks}")
        parse_path(op, each.physical)


def is_range(first: int | None, last: int | None) -> bool:
    """Whether first and last are both none, or in order and of 64 bits."""
    if first is None or last is None:
        return first is last
    return first <= last and first in SIGNED_64 and last in SIGNED_64


def _within(first: int, last: int | None, begin: int | None, end: int | None) -> bool:
    assert last is not None
    return begin is not None and end is not None and begin <= first and last <= end


def parse_path(op: records.Op, path: str) -> FilePath:
    """The path of a TsFile that an operation names, or its refusal."""
    try:
        parsed = FilePath.parse(path)
    except NameRefusedError as error:
        raise refusal_of(op, error.message) from error
    if parsed.is_resource:
        raise refusal_of(op, f"{path} is a resource, not a TsFile")
    return parsed


def refusal_of(op: records.Op, why: str) -> RefusedCommitError:
    """The error that refuses an operation."""
    return RefusedCommitError(f"{type(op).__name__}: {why}")
