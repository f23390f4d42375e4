"""Files that edges have sent to storage nodes are read from there: into uploads like any other.

So what comes from a node is counted, flushed, resumed after a death, verified and put in its place
by what does so with an upload of an edge, and a load meets nothing but files that the receiver has
verified itself. Before an edge says that a file is whole at the node, and what its MD5 is, all but
its last bytes are read ahead, as they come there: both disks are at work then at the same time.
"""

from __future__ import annotations

import logging
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from common.durable import Closing
from common.errors import ConflictError, ProtocolError, TsferryError, UnreachableError
from common.wire import PlanEntry, PullAnswer, PullState
from receiver.transfer.planning import same_content
from receiver.transfer.receiving.due_later import DueLater

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

    from common.wire import PullRequest
    from receiver.load.folder.current_task import CurrentTask, Planned
    from receiver.load.folder.sender_folder import SenderFolder
    from receiver.principal import Principal
    from receiver.transfer.receiving.uploads import Uploads

__all__ = ["NodePulls", "ReadsStaged"]

log = logging.getLogger(__name__)

_RANGE: Final = 8 << 20
"""Bytes that are read at once."""
_LAST: Final = 1 << 16
"""Bytes at the end of a file that are not read before its MD5 is told."""
_LEAST: Final = 1 << 19
"""Bytes that are read ahead at once, at least, or an eighth of a file: each piece is flushed."""
_SOON: Final = 0.1
"""Seconds until it is looked whether more of a file has come; twice as long behind a look that
found nothing, half as long behind one that did: about as often as there is something."""
_LATE: Final = 10.0
"""Seconds to the next look beyond which it is waited for the edge's next word."""
_MOST_LATER: Final = 64
"""Files that are looked for so at a time: of more of them the edges' words are enough."""
_SILENT: Final = 30.0
"""Seconds for which nothing more is read from a node that did not answer: what waits for others is
not to wait for it again and again."""
_REMEMBERED: Final = 1000
"""Pulls that may be over and not asked about, before these are forgotten."""


class ReadsStaged(Protocol):
    """Reads what lies at nodes; raises errors of the common tree."""

    def read(self, node: str, sender: str, entry: PlanEntry, begin: int, length: int) -> bytes:
        """Bytes of a sender's file at a node, `length` at most; none where no more are there."""


class _Source(NamedTuple):
    """What is read, and for whom."""

    who: Principal
    folder: SenderFolder
    task: str
    planned: Planned
    node: str


class _Pull:
    """One file; `failed` says why it does not come, `pause` when it is looked for more of it."""

    def __init__(self, source: _Source) -> None:
        self.source = source
        self.md5: str | None = None
        self.offset = 0
        self.failed: str | None = None
        self.stopped = False
        self.run: Future[None] | None = None
        self.pause = _SOON

    def is_of(self, source: _Source) -> bool:
        """Whether it reads that."""
        mine = self.source
        return (mine.task, mine.planned, mine.node) == (source.task, source.planned, source.node)


class NodePulls(Closing):
    """The files that are being read; any thread may call."""

    def __init__(
        self,
        uploads: Uploads,
        nodes: ReadsStaged,
        *,
        block: int,
        parallel: int = 4,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Read nothing yet.

        Args:
            uploads: where the bytes go.
            nodes: where they are.
            block: bytes of one upload that come at once, at most.
            parallel: files that are read at once.
            monotonic: seconds.
        """
        self._uploads = uploads
        self._nodes = nodes
        self._block = min(block, _RANGE)
        self._lock = threading.Lock()
        self._monotonic = monotonic
        self._pulls: dict[tuple[str, str], _Pull] = {}
        self._silent: dict[str, float] = {}
        self._pool = ThreadPoolExecutor(parallel, thread_name_prefix="pull-upload")
        self._later = DueLater(self._look_again, "pull-later", monotonic=monotonic)

    def pull(
        self,
        who: Principal,
        folder: SenderFolder,
        current: CurrentTask,
        request: PullRequest,
        seconds: float,
    ) -> PullAnswer:
        """Read a planned file from a node, or go on with that; how far it is.

        Args:
            who: asks.
            folder: of the sender.
            current: the task, which is open.
            request: what is asked.
            seconds: to wait for it, if the file is whole there.

        Raises:
            ProtocolError: the file was not planned.
            ConflictError: the plan said no.
        """
        planned = current.planned.get(request.path)
        if planned is None:
            raise ProtocolError(f"{request.path[:200]!a} was not planned in this task")
        if planned.refused is not None:
            raise ConflictError(f"{planned.path}: the plan said {planned.refused}")
        here = _staged(folder, planned, request.md5)
        if here is not None:
            return here
        pull = self._begun(_Source(who, folder, current.id, planned, request.node), request.md5)
        if request.md5 is None:
            return PullAnswer(state=PullState.COMING, offset=pull.offset)
        if pull.run is not None:
            wait_for([pull.run], timeout=seconds)
        return self._standing(pull)

    def give_up(self, sender: str, path: str) -> None:
        """A file is planned anew: what is read of it comes to no end."""
        with self._lock:
            pull = self._pulls.pop((sender, path), None)
        if pull is not None:
            pull.stopped = True

    def close(self) -> None:
        """Read no more; what is being read is left where it stands."""
        with self._lock:
            for each in self._pulls.values():
                each.stopped = True
        self._later.close()
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _begun(self, source: _Source, md5: str | None) -> _Pull:
        key = source.folder.uuid, source.planned.path
        with self._lock:
            pull = self._pulls.get(key)
            if pull is None or not pull.is_of(source):
                if pull is not None:
                    pull.stopped = True
                self._forget_some()
                pull = self._pulls[key] = _Pull(source)
            if md5 is not None and pull.md5 != md5:
                pull.md5, pull.failed = md5, None
            pull.pause = min(pull.pause, _LATE / 4)
            if pull.failed is None and (pull.run is None or pull.run.done()):
                pull.run = self._pool.submit(self._run, pull)
        return pull

    def _look_again(self, ended: tuple[_Pull, Future[None] | None]) -> None:
        pull, run = ended
        with self._lock:
            if not pull.stopped and pull.md5 is None and pull.run is run:
                pull.run = self._pool.submit(self._run, pull)

    def _forget_some(self) -> None:
        if len(self._pulls) < _REMEMBERED:
            return
        for key, pull in [*self._pulls.items()]:
            if pull.run is None or pull.run.done():
                del self._pulls[key]

    def _standing(self, pull: _Pull) -> PullAnswer:
        source = pull.source
        here = _staged(source.folder, source.planned, pull.md5)
        if here is None and pull.failed is None:
            return PullAnswer(state=PullState.COMING, offset=pull.offset)
        with self._lock:
            key = source.folder.uuid, source.planned.path
            if self._pulls.get(key) is pull:
                del self._pulls[key]
        return here or PullAnswer(state=PullState.FAILED, reason=pull.failed)

    # -- in a thread of the pool -------------------------------------------------------------

    def _run(self, pull: _Pull) -> None:
        if pull.stopped:
            return  # while it waited: an upload of its own would end the one that has begun since
        try:
            at = pull.offset
            if self._read(pull):
                self._wait_for_more(pull, some_came=pull.offset > at)
        except (TsferryError, OSError) as error:
            pull.failed = f"{pull.source.planned.path} from node {pull.source.node}: {error}"
        except Exception as error:
            log.exception("a file is not read from a node")
            pull.failed = f"{type(error).__name__}: {error}"
        if pull.failed is not None:
            told = {"node": pull.source.node, "error": pull.failed}
            log.warning("a file does not come from a node", extra=told)

    def _wait_for_more(self, pull: _Pull, *, some_came: bool) -> None:
        pull.pause = max(_SOON, pull.pause / 2) if some_came else pull.pause * 2
        if pull.pause <= _LATE and self._later.waiting < _MOST_LATER:
            with self._lock:
                ends = pull.run
            self._later.put(pull.pause, (pull, ends))

    def _read(self, pull: _Pull) -> bool:
        """Read what there is; whether more of it is to come before the edge says anything."""
        who, planned, node = pull.source.who, pull.source.planned, pull.source.node
        if pull.md5 is None and planned.size <= _LAST:
            return False  # nothing of it is read ahead
        entry = PlanEntry(path=planned.path, size=planned.size, tail=planned.tail, md5=planned.md5)
        sender = pull.source.folder.uuid
        upload, pull.offset = self._own(pull.source, entry)
        while not pull.stopped:
            left = planned.size - pull.offset
            md5 = pull.md5
            wanted = min(self._block, left if md5 is not None else left - _LAST)
            if wanted <= 0:
                return False
            block = self._of_node(node, sender, entry, pull.offset, wanted)
            if md5 is None and len(block) < min(wanted, _LEAST, planned.size // 8):
                return True
            # Of a file that is whole there all comes that is asked for: in crumbs it never ended.
            if not 0 < len(block) <= wanted or (md5 is not None and len(block) < wanted):
                raise UnreachableError(
                    f"{len(block)} bytes came at {pull.offset}, and {left} are to come"
                )
            whole = md5 if len(block) == left else None
            view = self._uploads.patch(
                who, upload, pull.offset, block, at_once=True, repr_md5=whole
            )
            pull.offset = view.offset
            if view.complete:
                told = {"sender": pull.source.folder.uuid, "path": planned.path, "node": node}
                log.info("a file came from a node", extra=told)
                return False
        return False

    def _of_node(self, node: str, sender: str, entry: PlanEntry, begin: int, length: int) -> bytes:
        with self._lock:
            until = self._silent.get(node, 0.0)
        if self._monotonic() < until:
            raise UnreachableError("it did not answer a moment ago")
        try:
            return self._nodes.read(node, sender, entry, begin, length)
        except UnreachableError:
            now = self._monotonic()
            with self._lock:
                silent = {each: until for each, until in self._silent.items() if until > now}
                self._silent = {**silent, node: now + _SILENT}
            raise

    def _own(self, source: _Source, entry: PlanEntry) -> tuple[str, int]:
        """The upload that the bytes go to, and how far it is."""
        found = self._uploads.resumable(source.who, source.folder, entry)
        if found is not None:
            view = self._uploads.head(source.who, found.id)
        else:
            metadata = {"path": entry.path, "task": source.task}
            view = self._uploads.create(source.who, source.folder.uuid, entry.size, metadata)
        return view.id, view.offset


def _staged(folder: SenderFolder, planned: Planned, md5: str | None) -> PullAnswer | None:
    """The answer for a file that is here already, verified."""
    found = folder.staged.get(planned.path)
    if found is None or not same_content(found, planned.size, planned.tail, md5):
        return None
    if not found.is_still(folder.tree.stat(folder.staged.at(found.path))):
        return None
    return PullAnswer(state=PullState.HERE, offset=found.size, md5=found.md5)
