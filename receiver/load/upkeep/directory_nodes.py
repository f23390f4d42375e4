"""Data directories as nodes of the catalogue: entered there with each start."""

from __future__ import annotations

import logging
import socket
from typing import TYPE_CHECKING

from common.errors import FailedSyncError, TsferryError
from receiver.metadata.model import records

if TYPE_CHECKING:
    from receiver.datadirs.disks import Disks
    from receiver.metadata.engine import Engine

__all__ = ["register_directories"]

log = logging.getLogger(__name__)


def register_directories(engine: Engine, disks: Disks) -> int:
    """Tell the catalogue which data directories have started, by one commit; how many.

    Their markers have the numbers of this start already. A start that finds no room on the disk of
    the schema directory goes on without, and the next one tells.

    Raises:
        FailedSyncError: nothing can be committed any more.
    """
    host = socket.gethostname()
    with engine.reading() as state:
        known = dict(state.node_table.rows)
    ops = []
    for each in disks.every():
        marker = each.marker
        if each.tree is None or marker is None or not marker.directory:
            continue
        row, name = known.get(marker.directory), str(each.path)
        if row is not None and (row.name, row.host, row.instance) == (name, host, marker.instance):
            continue  # this start could not be written into the marker
        ops.append(
            records.NodeRegistered(marker.directory, "directory", name, host, marker.instance)
        )
    try:
        if ops:
            engine.commit(ops)
    except FailedSyncError:
        raise
    except (TsferryError, OSError) as error:
        log.warning("data directories are not entered as nodes", extra={"error": str(error)})
        return 0
    return len(ops)
