"""The files that a task brings, read by the receiver itself before anything is decided about them.

Each is looked for where it was received and where an earlier attempt may have moved it; what is
there is compared with the manifest, and its tail gives devices, series and times. What was kept of
that since the file came is not read again.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

from common.durable import staying
from common.errors import NotATsFileError, TsferryError
from common.names import FilePath
from common.tsfile import Corrupt, read_tail
from common.wire import Result
from receiver.load.deciding.known_files.candidates import Candidate, Change, physical_name
from receiver.load.folder.content_checks import hash_staged
from receiver.load.folder.manifests import agrees, contradiction
from receiver.load.folder.obstacles import is_of_one_path
from receiver.load.tail_facts import TailFacts, facts_of
from receiver.metadata.model import records
from receiver.metadata.model.paths import IllegalPathError
from receiver.metadata.model.records import FileOutcome

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from common.durable import Tree
    from common.wire import ManifestEntry, ProofEntry
    from receiver.load.folder.current_task import CurrentTask
    from receiver.load.folder.sender_folder import SenderFolder
    from receiver.load.folder.staged import Verified

__all__ = ["Collected"]

_SMALL = 1 << 18
"""Bytes of a file that is read in one go."""


class Collected:
    """The files of a manifest: those that can be loaded, and why the others cannot.

    Attributes:
        candidates: the first, by path.
        failed: the outcomes of the others, by path.
        proofs: what the sender says of the series of the first, where it does.
        resources: of files that are here without their bytes, those that were received, by path.
        stuck: what keeps those of the others from their places that could be loaded, by path.
    """

    def __init__(
        self, folder: SenderFolder, current: CurrentTask, clock: Callable[[], float]
    ) -> None:
        """Look at nothing yet."""
        self._folder = folder
        self._current = current
        self._clock = clock
        self.candidates: dict[str, Candidate] = {}
        self.failed: dict[str, FileOutcome] = {}
        self.resources: dict[str, Verified] = {}
        self.proofs: dict[str, ProofEntry] = {}
        self.stuck: dict[str, str] = {}

    def read(self) -> None:
        """Look at each file of the manifest; one that cannot be read is not there."""
        with staying(self._folder.tree) as tree:
            for entry in self._current.record.manifest or ():
                try:
                    self._read(tree, entry)
                except (OSError, TsferryError) as error:
                    if not is_of_one_path(error):
                        raise
                    path = FilePath.parse(entry.path)
                    self._fail(path, Result.MISSING, f"cannot be read: {error}")

    def _read(self, tree: Tree, entry: ManifestEntry) -> None:
        path = FilePath.parse(entry.path)
        found = self._locate(tree, path)
        if found is None:
            self._fail(path, Result.MISSING, "not received")
            alone = self._resource(tree, path)
            if alone is not None and not isinstance(alone, str):
                self.resources[path.text] = alone
            return
        staged, rel = found
        if (staged.size, staged.md5) != (entry.size, entry.md5):
            self._fail(
                path,
                Result.MISSING,
                f"received with {staged.size} bytes and MD5 {staged.md5}, the manifest has "
                f"{entry.size} bytes and MD5 {entry.md5}",
            )
            return
        resource = self._resource(tree, path)
        if isinstance(resource, str):
            self._fail(path, Result.MISSING, resource)
            return
        self._candidate(path, staged, rel, resource, entry)

    def _candidate(
        self,
        path: FilePath,
        staged: Verified,
        rel: str,
        resource: Verified | None,
        entry: ManifestEntry,
    ) -> None:
        proof = None if self._current.record.single else entry.proof
        facts = self._known(staged, proof) or self._read_again(path, staged, rel, proof)
        if facts is None:
            return
        if proof is not None:
            self.proofs[path.text] = proof
        self.candidates[path.text] = Candidate(
            path=path,
            staged=staged,
            resource=resource,
            facts=facts,
            # An upload without a task comes with no manifest: ours has no counts to compare with.
            manifest=None
            if self._current.record.single
            else records.ManifestMeta(entry.series, entry.points, proof.root if proof else ""),
        )

    def _known(self, staged: Verified, proof: ProofEntry | None) -> TailFacts | None:
        """What was read of the file as it came, where that is kept and its sender agrees."""
        kept = self._folder.facts.take(self._folder.uuid, staged)
        if kept is None:
            return None
        facts = TailFacts.unpack(kept)
        known = proof is None or agrees(proof, facts.statistics, facts.index_bytes)
        return facts if known else None

    def _read_again(
        self, path: FilePath, staged: Verified, rel: str, proof: ProofEntry | None
    ) -> TailFacts | None:
        fd = self._folder.tree.open_read(rel)
        try:
            source = os.pread(fd, staged.size, 0) if staged.size <= _SMALL else fd
            tail = read_tail(source, structure=True)
            facts = facts_of(source, tail, path.sg)
        except (Corrupt, IllegalPathError) as error:
            self._fail(path, Result.QUARANTINED, str(error))
            return None
        finally:
            os.close(fd)
        if not tail.complete:  # it was complete when it was verified: the disk has lost it
            self._fail(path, Result.QUARANTINED, f"{tail.status}: {tail.reason}")
            return None
        if proof is not None and (why := contradiction(proof, tail)) is not None:
            self._fail(path, Result.QUARANTINED, f"not what its sender has read of it: {why}")
            return None
        return facts

    def _resource(self, tree: Tree, path: FilePath) -> Verified | str | None:
        """The resource that was planned with a file; in words what is wrong with it."""
        planned = self._current.planned.get(path.text)
        if planned is None or planned.resource is None:
            return None
        found = self._locate(tree, path.resource)
        if found is None:
            return "its .resource was not received"
        wanted = planned.resource
        if (found[0].size, found[0].md5) != (wanted.size, wanted.md5):
            return "its .resource was received with other content than planned"
        return found[0]

    def _locate(self, tree: Tree, path: FilePath) -> tuple[Verified, str] | None:
        """A verified file of the task, where it was received or where an attempt has moved it.

        Without a record that fits what is there, it is hashed.
        """
        folder = self._folder
        record = folder.staged.get(path.text)
        for rel in self._places(path):
            found = tree.stat(rel)
            if found is None:
                continue
            if record is not None and record.is_still(found):
                return record, rel
            with suppress(NotATsFileError):
                return hash_staged(tree, rel, path, at=self._clock()), rel
        return None

    def _places(self, path: FilePath) -> Iterator[str]:
        yield self._folder.staged_at(path)
        yield physical_name(self._folder.uuid, self._current.id, path).text

    def put_off(self, change: Change) -> None:
        """Leave half of the loads for the next round: one commit cannot hold them all."""
        loads = change.loads
        keep = len(loads) // 2
        for load in loads[keep:]:
            path = load.candidate.path
            del self.candidates[path.text]
            if keep:
                self._fail(path, Result.MISSING, "too many devices for one commit; once more")
            else:
                self._fail(path, Result.REFUSED, "too many devices for one commit")

    def leave(self, stuck: Mapping[str, str]) -> None:
        """Leave files for the next round that something keeps from their places.

        Args:
            stuck: what that is, by path.
        """
        self.stuck.update(stuck)
        for text, why in stuck.items():
            del self.candidates[text]
            self._fail(FilePath.parse(text), Result.MISSING, f"cannot be put in its place: {why}")

    def _fail(self, path: FilePath, result: Result, reason: str) -> None:
        hold = result is Result.QUARANTINED
        self.failed[path.text] = FileOutcome(path.text, result, reason=reason, hold=hold)
