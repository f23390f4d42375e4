"""The files of an old receiver as a load would have them: read where they lie, and whose they are.

A file that is none, that is not closed, that came twice, or of which nobody knows whose it is, is
left out, and named. What the old server has deleted from a file (`.mods`) comes with it, and
reaches no other file, unless whoever asks wants its points back; a file whose deletion file cannot
be read is left out too, for its points would show again.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from common.digests import md5_of_fd
from common.errors import NotATsFileError, TsferryError
from common.tsfile import Corrupt
from receiver.load.deciding.known_files.candidates import Candidate
from receiver.load.folder.content_checks import check_content, record_of
from receiver.load.tail_facts import facts_of
from receiver.metadata.model import records
from receiver.metadata.model.paths import IllegalPathError
from receiver.operator.adopting.old_receiver import OutOfOrder
from receiver.operator.centre.centre_entries import deletion_parts
from receiver.operator.centre.centre_files import content_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from receiver.operator.adopting.old_receiver import FoundFile
    from receiver.operator.centre.centre_files import CentreFile

__all__ = ["AdoptableFile", "Claims", "look_at_files"]


@dataclass(frozen=True)
class Claims:
    """Whose files are.

    Attributes:
        owners: device -> uuid, as the old receiver had it.
        groups: storage group -> uuid, as whoever asks says.
        default: uuid of all else; empty: nobody's.
    """

    owners: Mapping[str, str]
    groups: Mapping[str, str]
    default: str

    def sender_of(self, found: FoundFile, devices: Iterable[str]) -> tuple[str, str]:
        """(uuid of the sender that a file came from, or empty; why it is nobody's)."""
        named = {uuid for each in devices if (uuid := self.owners.get(each)) is not None}
        if found.sender:
            named.add(found.sender)
        if len(named) > 1:
            return "", f"it has devices of several senders: {', '.join(sorted(named))}"
        if named:
            return named.pop(), ""
        told = self.groups.get(found.file.path.sg, self.default)
        return told, "" if told else "nobody knows which sender it came from: --as says it"


@dataclass(frozen=True)
class AdoptableFile:
    """A file that can be loaded as its sender's; `deletions`: with what was deleted of it."""

    file: CentreFile
    candidate: Candidate
    sender: str
    deletions: bool = False


def look_at_files(
    files: Iterable[FoundFile],
    claims: Claims,
    *,
    interval: int,
    at: float,
    with_deleted: bool,
    between: Callable[[], None],
) -> tuple[list[AdoptableFile], list[OutOfOrder]]:
    """Read files: those that can be loaded, and what is wrong with the others.

    Args:
        files: found.
        claims: whose they are.
        interval: width of a partition, in the unit of the timestamps.
        at: seconds since the epoch.
        with_deleted: take files that the old server has deleted points of, with all their points.
        between: called between two files; what it raises ends this.
    """
    good: list[AdoptableFile] = []
    odd: list[OutOfOrder] = []
    contents: dict[tuple[str, str, str], str] = {}
    paths: dict[tuple[str, str], str] = {}
    for found in files:
        between()
        source = str(found.file.source)
        try:
            candidate = _looked_at(found, interval, at)
        except (TsferryError, OSError) as error:
            odd.append(OutOfOrder(source, _plain(error, source)))
            continue
        devices = (each.name for each in candidate.facts.devices)
        sender, why = claims.sender_of(found, devices)
        deletions = False
        if not why and not with_deleted:
            try:
                deletions = bool(deletion_parts(found.file, candidate.path))
            except (TsferryError, OSError) as error:
                why = (
                    "what the old server has deleted of it cannot be read, and would show again: "
                    f"--with-deleted takes it so ({_plain(error, source)})"
                )
        content, path = (sender, *content_of(candidate)), (sender, candidate.path.text)
        if not why and content in contents:
            why = f"the same content as {contents[content]}"
        elif not why and path in paths:
            why = f"the same path as {paths[path]}, with other content"
        if why:
            odd.append(OutOfOrder(source, why))
            continue
        contents[content] = paths[path] = source
        good.append(AdoptableFile(found.file, candidate, sender, deletions))
    return good, odd


def _looked_at(found: FoundFile, interval: int, at: float) -> Candidate:
    """A file as it lies there: its MD5, its tail, its series.

    Raises:
        NotATsFileError: it is none, is not closed, or is damaged.
        OSError: it cannot be read.
    """
    source, path = found.file.source, found.file.path
    fd = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        tail = check_content(fd, path, str(source))
        assert tail is not None
        if not found.is_placed:
            path = msgspec.structs.replace(path, partition=(tail.first_time or 0) // interval)
        facts = facts_of(fd, tail, path.sg)
        staged = record_of(fd, path, md5_of_fd(fd), source=fd, at=at)
    except (Corrupt, IllegalPathError) as error:
        raise NotATsFileError(f"{source}: {error}") from error
    finally:
        os.close(fd)
    manifest = records.ManifestMeta(facts.series, facts.points)
    return Candidate(path=path, staged=staged, resource=None, facts=facts, manifest=manifest)


def _plain(error: Exception, source: str) -> str:
    """An error without the name that stands beside it."""
    if isinstance(error, OSError):
        return f"cannot be read: {error.strerror}"
    return str(error).removeprefix(f"{source}: ")
