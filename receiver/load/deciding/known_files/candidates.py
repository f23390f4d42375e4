"""What a task's change is decided from and made of: verified files, loads, operations, guards."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from common.names import FilePath
from receiver.metadata.commit.guards import Guard
from receiver.metadata.model import records
from receiver.metadata.model.records import FileOutcome

if TYPE_CHECKING:
    from collections.abc import Iterator

    from receiver.load.folder.staged import Verified
    from receiver.load.tail_facts import TailFacts

__all__ = ["Candidate", "Change", "Load", "physical_name"]

_TAG_DIGITS = 16


class Candidate(msgspec.Struct, frozen=True):
    """A verified file as the receiver has read it.

    Attributes:
        path: at the sender.
        staged: the record of its verification.
        resource: that of its resource, if it has one.
        facts: what its tail says.
        manifest: what the sender says of it.
    """

    path: FilePath
    staged: Verified
    resource: Verified | None
    facts: TailFacts
    manifest: records.ManifestMeta | None

    @property
    def ranges(self) -> Iterator[tuple[str, int, int]]:
        """(device, first, last) of the devices with points."""
        for each in self.facts.devices:
            if each.first is not None and each.last is not None:
                yield each.name, each.first, each.last


class Load(msgspec.Struct, frozen=True):
    """A file that is to be loaded, under its physical name."""

    candidate: Candidate
    physical: FilePath


@dataclass
class Change:
    """All that a task does.

    Attributes:
        ops: of the one commit; TaskDone is the last.
        guards: on everything that was looked at.
        outcomes: by path, in the order of the manifest, then of the deletions.
        loads: files to be moved to their final names before the commit.
        kept_gone: bytes of quarantined files that nothing refers to after the commit.
    """

    ops: list[records.Op] = field(default_factory=list)
    guards: list[Guard] = field(default_factory=list)
    outcomes: dict[str, FileOutcome] = field(default_factory=dict)
    loads: list[Load] = field(default_factory=list)
    kept_gone: list[str] = field(default_factory=list)


def physical_name(sender: str, task: str, path: FilePath) -> FilePath:
    """The name of a file of a task: always the same, so that recovery finds what was moved."""
    text = f"{sender}\n{task}\n{path.tsfile}".encode()
    return path.physical(hashlib.sha256(text).hexdigest()[:_TAG_DIGITS])
