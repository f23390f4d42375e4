"""Whether files of a partition are just expiring: then nothing of it is merged by itself.

A file that expires dissolves what stands for it, so of a partition whose files expire one after
another merged files would be made and undone again and again, for files that go anyway.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from receiver.load.deciding.expiry import Expiry
from receiver.metadata.state.ranges import ids_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from common.config.shared_rules import TimeUnit
    from receiver.metadata.engine import Engine
    from receiver.metadata.state.table_rows import FileRow

__all__ = ["is_expiring"]


def is_expiring(engine: Engine, rows: Sequence[FileRow], unit: TimeUnit, interval: int) -> bool:
    """Whether a part of the time of a partition is past the TTL of a device by now.

    Args:
        engine: has the TTLs, and the clock that files expire by.
        rows: of the visible files.
        unit: of their times.
        interval: width of a time partition in it.
    """
    firsts = [row.first for row in rows if row.first is not None]
    if not firsts:
        return False
    moment = engine.clock.cautious()
    with engine.reading() as state:
        expiry = Expiry(state.schema, moment, unit)
    begin = min(firsts) // interval * interval
    if expiry.newest is None or expiry.newest <= begin:
        return False
    limits = map(expiry.limit, map(rows[0].devices.name, ids_of(row.devices for row in rows)))
    return any(limit is not None and begin < limit for limit in limits)
