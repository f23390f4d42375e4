"""What operators' calls work on: a receiver's directories, and a server that has them open.

Without a server the directories are read as they are. Nothing is recovered and nothing is written;
what only lives in a server (uploads under way, heartbeats, tasks to load) is not shown.
"""

from __future__ import annotations

import logging
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from common.console.terminal import printable
from common.durable import Tree
from receiver.datadirs.disks import Disks
from receiver.metadata.engine import Engine
from receiver.metadata.log.follower_mark import copy_name, read_mark
from receiver.open_engine import Doubt, read_engine

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from common.hooks.hook_service import HookService
    from receiver.background.work_queue import WorkQueue
    from receiver.compaction.compactor import Compactor
    from receiver.compaction.final_merges import FinalMerges
    from receiver.config import ReceiverConfig
    from receiver.heartbeats.node_manager import NodeManager
    from receiver.load.service import LoadService
    from receiver.operator.adopting.adoptions import Adoptions
    from receiver.operator.centre.centre_loading import CentreLoads
    from receiver.operator.centre.centre_writes import CentreWrites
    from receiver.operator.damaged_files import DamagedFiles
    from receiver.placement.copy_service import CopyService
    from receiver.storage.cache.disk_room import DiskRoom
    from receiver.storage.copying import StorageService
    from receiver.superseding.prover import Prover
    from receiver.transfer.begun.checks import Checks
    from receiver.transfer.receiving.uploads import Uploads

__all__ = ["ReceiverDirectories", "RunningReceiver", "look", "time_of"]

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ReceiverDirectories:
    """The directories of a receiver, open for reading at least.

    Attributes:
        config: of the receiver.
        engine: of its schema directory.
        disks: its data directories.
        doubt: why the engine may not be as the receiver has it by now; None where it is.
    """

    config: ReceiverConfig
    engine: Engine
    disks: Disks
    doubt: Doubt | None = field(default=None, kw_only=True)

    @property
    def trees(self) -> Sequence[Tree]:
        """The data directories that were there when they were opened."""
        return self.disks.trees


@dataclass(frozen=True)
class RunningReceiver(ReceiverDirectories):
    """The same with all that a server has.

    Attributes:
        load: the loader, the reaper and the senders' folders.
        uploads: that are under way.
        checks: knows the heartbeats.
        centre: loads files without an edge.
        writes: of jobs, which become such loads.
        adoptions: take over what an old receiver has.
        work: background work, and who does it.
        prover: knows what of retired files exists nowhere else.
        compactor: merges files.
        nodes: the storage nodes that it has heard from.
        copies: of tablets at them.
        damaged: takes verdicts, and mends what somebody else has whole.
        final_merges: has merged files take the place of what they were made of.
        storage: makes the copies in the object store; None without one.
        disk_room: brings files back that have left the disks; None where none does.
        out_of_reach: files that were in an object store only when it was opened without one.
        clock: seconds since the epoch.
        started: when the directories were opened.
        hooks: who is told of what happens; None for nobody.
    """

    load: LoadService
    uploads: Uploads
    checks: Checks
    centre: CentreLoads
    writes: CentreWrites
    adoptions: Adoptions
    work: WorkQueue
    prover: Prover
    compactor: Compactor
    nodes: NodeManager
    copies: CopyService
    damaged: DamagedFiles
    final_merges: FinalMerges
    storage: StorageService | None
    disk_room: DiskRoom | None
    out_of_reach: int
    clock: Callable[[], float]
    started: float
    hooks: HookService | None = None


def time_of(there: ReceiverDirectories) -> float:
    """What time it is, seconds since the epoch: by what a server believes, or by the machine."""
    return there.clock() if isinstance(there, RunningReceiver) else time.time()


def _copy_of(schema_dir: Path) -> Path | None:
    """The copy that a node reads whose directory this is; None of a receiver's."""
    try:
        with Tree(schema_dir) as tree:
            mark = read_mark(tree)
    except OSError:
        return None
    return None if mark is None else schema_dir / copy_name(mark.copy)


@contextmanager
def look(config: ReceiverConfig) -> Iterator[ReceiverDirectories]:
    """Open the directories for reading, beside a server that may be running.

    That they are an old copy of what is in etcd is said as a warning.

    Raises:
        NotFoundError: there is no engine.
        DamagedError: a log of the engine is damaged in the middle.
    """
    config.must_have_directories()
    with ExitStack() as stack:
        copy = _copy_of(config.schema_dir)
        if copy is not None:
            config = msgspec.structs.replace(config, schema_dir=copy)
            engine, doubt = Engine.read_only(copy), None
        else:
            engine, doubt = read_engine(config)
        stack.enter_context(engine)
        if doubt is not None:
            _log.warning("%s", printable(doubt.text))
        disks = stack.enter_context((Disks.lent if copy else Disks.look)(config, engine))
        yield ReceiverDirectories(config, engine, disks, doubt=doubt)
