"""Whether a receiver can be made of what is in a store: its log, and each file's object.

The schema directory is made as a restore makes it, in a place that is thrown away, so every byte of
the log is read and compared; then the store is asked for the object of each file that readers see.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from common.console.step_progress import untold
from common.durable import Tree
from common.errors import DamagedError
from receiver.metadata.engine import Engine
from receiver.storage.log_copies.metadata_restore import restore_metadata
from receiver.storage.objects.object_check import CopiesReport, ObjectFinding, check_objects
from receiver.storage.objects.object_places import place_objects
from receiver.storage.stores.object_content import ContentChangedError
from receiver.storage.stores.object_store import ObjectMissingError
from receiver.storage.stores.owned_prefix import engine_in

if TYPE_CHECKING:
    from pathlib import Path

    from common.console.step_progress import ToldProgress
    from receiver.storage.stores.object_store import ObjectStore

__all__ = ["check_restore"]


def check_restore(
    store: ObjectStore,
    scratch: Path,
    *,
    at: int | None = None,
    deep: bool = False,
    told: ToldProgress = untold,
) -> CopiesReport:
    """Read through what a restore would.

    Args:
        store: where the copies are.
        scratch: a directory for the log, which is removed again.
        at: as of a commit, as `restore_metadata`.
        deep: read the bytes of files too.
        told: called with how far it is.

    Raises:
        NotFoundError: there are no copies, or none as of that commit.
        StoreAwayError, StoreRefusedError: of the store.
    """
    uuid = engine_in(store)
    _throw_away(scratch)
    try:
        made = restore_metadata(store, uuid, scratch, at=at, told=told)
        with Engine.read_only(scratch) as engine:
            if engine.published().lsn != made.lsn or engine.uuid != uuid:
                detail = f"the log ends with LSN {engine.published().lsn}, {made.lsn} was put"
                return _damaged(uuid, made.manifest.key, detail)
            with engine.reading() as state:
                rows = [row for row in state.files.values() if row.visible]
            places = place_objects(store, engine)
            return CopiesReport(
                engine=uuid,
                commit=engine.newest_commit,
                files=len(rows),
                bytes=sum(row.size for row in rows),
                sizes_only=not (deep or store.knows_digests),
                found=check_objects(store, uuid, rows, places, deep=deep, told=told),
            )
    except (ContentChangedError, DamagedError, ObjectMissingError) as error:
        return _damaged(uuid, "", error.message)
    finally:
        _throw_away(scratch)


def _throw_away(scratch: Path) -> None:
    with Tree(scratch.parent, create=True) as tree:
        for name, _ in list(tree.files(scratch.name)):
            tree.unlink(name, sync=False)
        tree.remove_empty(scratch.name)


def _damaged(uuid: str, key: str, detail: str) -> CopiesReport:
    return CopiesReport(engine=uuid, found=[ObjectFinding(kind="log", key=key, detail=detail)])
