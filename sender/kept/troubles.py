"""Files that a receiver did not take, and why: `<schema dir>/sync/<host>_<port>/troubles.json`.

A trouble belongs to one content of one path, known by size and modification time. It ends when the
file is loaded, when other content stands under the path, or when the file is gone. While it is
there, deletions of its partition wait.

* `hold` troubles (not a TsFile, wrong type) are not tried again before the operator says so.
* Nor is what has *expired*: the receiver does not want it any more. It blocks nothing, and is
  offered again when the receiver is another one. One on `hold` its operator has deleted.
* All others are tried again in the next round: the plan step costs no bytes.
* One that the operator *dropped* is given up: not sent, not shown, in nobody's way.

Format, version 1: one JSON object; replaced as a whole. A damaged file is set aside by being empty:
all that is lost is that held files are offered once more.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

import msgspec

from common.decoders import from_json
from common.errors import NameRefusedError
from common.names import FilePath

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from common.durable import Tree
    from sender.select.found import LocalFile, Scan

__all__ = ["Trouble", "TroubleKind", "Troubles", "expired_paths", "living", "without_expired"]

_FILE = "troubles.json"
_VERSION = 1


class TroubleKind(StrEnum):
    """What a file is in trouble for."""

    CONFLICT = "conflict"
    """A device of another owner, or other content under its path."""
    QUARANTINED = "quarantined"
    """The receiver put it aside: not a TsFile, wrong type."""
    REFUSED = "refused"
    """Name, scope, size: not allowed."""
    EXPIRED = "expired"
    """All its data is older than the receiver keeps. Blocks nothing."""
    FAILED = "failed"
    """The transfer failed too often in this round, or the file changed under way."""


class Trouble(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One file in trouble.

    Attributes:
        path: its path.
        size: of the content that is in trouble.
        mtime_ns: of that content.
        kind: what for.
        reason: in the receiver's words.
        device: the device of another owner, for a conflict.
        hold: not to be tried again without the operator.
        since: when it first came up, seconds since the epoch.
        rounds: how often it came up.
        retry: the operator asked for another try; goes with each plan until the receiver says
            that it is to be held.
        dropped: the operator gave it up.
        words: how often the operator has said something of it. An answer that was asked for before
            the last of these does not take that back.
        commit: the receiver's, that its answer was decided by; 0 where it did not say.
    """

    path: str
    size: int
    mtime_ns: int
    kind: TroubleKind
    reason: str = ""
    device: str | None = None
    hold: bool = False
    since: float = 0.0
    rounds: int = 1
    retry: bool = False
    dropped: bool = False
    words: int = 0
    commit: int = 0

    def concerns(self, file: LocalFile) -> bool:
        """Whether it is about the content that `file` has now."""
        return (self.size, self.mtime_ns) == (file.size, file.mtime_ns)

    @property
    def is_deleted(self) -> bool:
        """Whether the receiver's operator deleted this content."""
        return self.kind is TroubleKind.EXPIRED and self.hold

    @property
    def keeps_back(self) -> bool:
        """Whether the file is not to be offered now."""
        held = self.hold or self.kind is TroubleKind.EXPIRED
        return self.dropped or (held and not self.retry)

    @property
    def blocks(self) -> bool:
        """Whether deletions of its partition wait for it."""
        return not self.dropped and self.kind is not TroubleKind.EXPIRED


def living(troubles: Mapping[FilePath, Trouble], scan: Scan) -> dict[FilePath, Trouble]:
    """Those whose file has the same content still, or may be where nobody can look now."""
    kept = {}
    for path, trouble in troubles.items():
        file = scan.files.get(path)
        if trouble.concerns(file) if file is not None else _may_be_there(scan, path):
            kept[path] = trouble
    return kept


def _may_be_there(scan: Scan, path: FilePath) -> bool:
    return bool(scan.unmounted) or any(not scan.is_gone(path, each) for each in scan.mounted)


def without_expired(troubles: Mapping[FilePath, Trouble]) -> dict[FilePath, Trouble]:
    """Those that another receiver, or one with another past, would have as well.

    And those of which the operator has said what is to become of them.
    """
    return {
        path: each
        for path, each in troubles.items()
        if each.kind is not TroubleKind.EXPIRED or each.retry or each.dropped
    }


def expired_paths(troubles: Mapping[FilePath, Trouble], scan: Scan) -> frozenset[FilePath]:
    """Paths of files in a scan that are older than the receiver keeps, and are left at that."""
    return frozenset(
        path
        for path, each in troubles.items()
        if each.kind is TroubleKind.EXPIRED
        and not each.retry
        and (file := scan.files.get(path)) is not None
        and each.concerns(file)
    )


class _File(msgspec.Struct, kw_only=True):
    version: int
    troubles: list[Trouble]


class Troubles:
    """The list of one receiver; every change is on disk when the call returns."""

    def __init__(self, sync: Tree, endpoint: str, clock: Callable[[], float]) -> None:
        self._tree = sync
        self._rel = f"{endpoint}/{_FILE}"
        self._clock = clock
        self._by_path: dict[FilePath, Trouble] = {}
        self.problem: str | None = None

    @classmethod
    def open(cls, sync: Tree, endpoint: str, *, clock: Callable[[], float]) -> Troubles:
        """Read the list.

        Args:
            sync: `<schema dir>/sync`; stays the caller's to close.
            endpoint: `<host>_<port>`.
            clock: seconds since the epoch.
        """
        troubles = cls(sync, endpoint, clock)
        try:
            content = from_json(sync.read(troubles._rel), _File)
            if content.version != _VERSION:
                raise ValueError(f"version {content.version} is not known here")
            troubles._by_path = {FilePath.parse(each.path): each for each in content.troubles}
        except FileNotFoundError:
            pass
        except (msgspec.MsgspecError, ValueError, NameRefusedError) as error:
            troubles.problem = f"{sync.path / troubles._rel} is unusable: {error}"
        return troubles

    def __iter__(self) -> Iterator[Trouble]:
        """Those that the operator has not dropped, in path order."""
        return iter(
            self._by_path[path] for path in sorted(self._by_path) if not self._by_path[path].dropped
        )

    def __len__(self) -> int:
        return sum(1 for _ in self)

    @property
    def by_path(self) -> Mapping[FilePath, Trouble]:
        """All of them, dropped ones included; what the plan wants to see."""
        return self._by_path

    def record(self, found: Iterable[tuple[LocalFile, Trouble]]) -> None:
        """Note files in trouble; `path`, content, `since` and `rounds` are filled in here.

        Args:
            found: each with `words` as they were when the receiver was asked.
        """
        for file, trouble in found:
            before = self._by_path.get(file.path)
            if before is None or not before.concerns(file):
                before = Trouble(
                    path=file.path.text,
                    size=file.size,
                    mtime_ns=file.mtime_ns,
                    kind=trouble.kind,
                    since=self._clock(),
                    rounds=0,
                )
            # Of a try that came to no verdict, the operator's word goes with the next one; and so
            # does one that was said while this answer was on its way.
            is_open = not trouble.keeps_back or before.words > trouble.words
            self._by_path[file.path] = msgspec.structs.replace(
                trouble,
                path=before.path,
                size=before.size,
                mtime_ns=before.mtime_ns,
                since=before.since,
                rounds=before.rounds + 1,
                retry=before.retry and is_open,
                dropped=before.dropped,
                words=before.words,
                commit=trouble.commit or before.commit,
            )
        self._write()

    def clear(self, paths: Iterable[FilePath]) -> None:
        """End the troubles of these paths (they are loaded)."""
        ended = [path for path in paths if self._by_path.pop(path, None)]
        if ended:
            self._write()

    def prune(self, scan: Scan) -> list[Trouble]:
        """End those whose file has other content now, or is gone; returns them."""
        kept = living(self._by_path, scan)
        ended = [each for path, each in self._by_path.items() if path not in kept]
        self.clear([path for path in self._by_path if path not in kept])
        return ended

    def forget_expired(self) -> None:
        """Another receiver, or one with another past, may want what this one did not."""
        kept = without_expired(self._by_path)
        self.clear([path for path in self._by_path if path not in kept])

    def retry(self, path: FilePath | None = None) -> list[Trouble]:
        """Let one be tried again in the next round; returns those concerned.

        Without a path all but what the receiver's operator deleted: that it is to come again is
        said of it alone.
        """
        return self._change(path, lambda each: not each.is_deleted, retry=True, dropped=False)

    def retry_deleted(self) -> list[Trouble]:
        """The same of all that the receiver's operator deleted, and of nothing else."""
        return self._change(None, lambda each: each.is_deleted, retry=True, dropped=False)

    def drop(self, path: FilePath) -> list[Trouble]:
        """Give a file up: it is not sent any more while it has this content.

        If a snapshot holds its last copy, that goes with `Snapshot.drop`.
        """
        return self._change(path, lambda each: True, dropped=True, retry=False)

    # -- inside ----------------------------------------------------------------------------

    def _change(
        self, path: FilePath | None, is_meant: Callable[[Trouble], bool], **changes: bool
    ) -> list[Trouble]:
        """Change one, or those that are meant and not given up."""
        paths = list(self._by_path) if path is None else [path]
        changed = []
        for each in paths:
            trouble = self._by_path.get(each)
            if trouble is None:
                continue
            if path is not None or (is_meant(trouble) and not trouble.dropped):
                self._by_path[each] = msgspec.structs.replace(
                    trouble, words=trouble.words + 1, **changes
                )
                changed.append(self._by_path[each])
        if changed:
            self._write()
        return changed

    def _write(self) -> None:
        self._tree.make_dirs(self._rel.rpartition("/")[0])
        content = _File(version=_VERSION, troubles=list(self._by_path.values()))
        self._tree.write_atomic(self._rel, msgspec.json.encode(content))
