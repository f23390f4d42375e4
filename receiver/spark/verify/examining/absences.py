"""What it means that a file is in none of the data directories, as far as a worker can see.

It is lost only if this machine, which has the receiver's directories, does not see it either,
though all of them are there and hold files, and the catalogue of now still has it nowhere else.
Everything else says something about disks and mounts, and nothing about the file: *unproved*.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from receiver.spark.local_catalogue import LocalCatalogue
from receiver.spark.report.results import Finding, Severity

if TYPE_CHECKING:
    from collections.abc import Sequence

    from receiver.config import ReceiverConfig
    from receiver.datadirs.disks import Away
    from receiver.metadata.query.past_rows import PastRows
    from receiver.metadata.state.table_rows import FileRow
    from receiver.spark.verify.examining.merge_checks import CompactionAsked, MergePartResult

__all__ = ["Absences"]


class _Elsewhere(NamedTuple):
    """Where a file may be but for data directories."""

    stored: bool
    at_nodes: bool


class Absences:
    """Judges files that workers did not find; what the catalogue has by now is read once."""

    def __init__(
        self,
        config: ReceiverConfig,
        visible: PastRows,
        away: Sequence[Away],
        *,
        has_store: bool,
    ) -> None:
        """Prepare.

        Args:
            config: of the receiver.
            visible: all files that readers see at the commit that is proved.
            away: data directories that are not there.
            has_store: whether workers can read what is in an object store.
        """
        self._config = config
        self._roots = tuple(map(str, config.data_dirs))
        self._visible = visible
        self._away = away
        self._has_store = has_store
        self._alive: dict[str, bool] = {}
        self._later: dict[str, _Elsewhere] | None = None

    def of_file(self, row: FileRow, host: str = "") -> Finding:
        """What it means that a worker (on `host`) found a file in none of the data directories.

        It is lost only if this machine, which has the receiver's directories, does not see it
        either, though all of them are there and hold files. Everything else says something about
        disks and mounts, and nothing about the file.
        """
        physical, home = row.physical, row.data_dir
        where = f" (on {host})" if host else ""
        if self._is_remote(physical):
            # One that was uploaded while this ran has no place: the next run reads it there.
            why = "since this began" if self._has_store else "and storage.url names none"
            return _unproved(f"it is in the object store only{where}, {why}")
        if self._is_remote(physical, at_nodes=True):
            return _unproved(f"it is at storage nodes only{where}: ask a receiver (--receiver)")
        for away in self._away:
            return _unproved(f"not found; {away}")
        for root in self._config.data_dirs:
            try:
                (root / physical).lstat()
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError as error:
                return _unproved(f"not found{where}, and this machine cannot tell: {error}")
            return _unproved(
                f"this machine sees it in {root}, a worker did not{where}: is the directory "
                "mounted on all of them?"
            )
        if home and home not in self._roots:
            return _unproved(f"not found; it was loaded into {home}, which is not configured")
        if home and not self._is_alive(home):
            return _unproved(f"not found, as all files of {home}: is its disk mounted?")
        if not self._is_visible_now(physical):
            return Finding(
                Severity.UNPROVED, "changed", None, None, None, "it was deleted meanwhile"
            )
        places = ", ".join(self._roots)
        return Finding(
            Severity.BAD, "present", None, None, None, f"it is in no data directory: {places}"
        )

    def _is_alive(self, root: str) -> bool:
        """Whether a data directory holds any of its files, or the directories made for them."""
        if root not in self._alive:
            base = Path(root)
            self._alive[root] = any(
                (base / row.physical).parent.is_dir()
                for row in self._visible
                if row.data_dir == root
            )
        return self._alive[root]

    def _is_visible_now(self, physical: str) -> bool:
        """Whether the file is in the catalogue still, as it stood when this was first asked."""
        return physical in self._seen_later()

    def _is_remote(self, physical: str, *, at_nodes: bool = False) -> bool:
        """Whether a file is in the store, or at nodes, and this machine sees it in no directory."""
        if any(os.path.lexists(f"{root}/{physical}") for root in self._roots):
            return False
        seen = self._seen_later().get(physical)
        return seen is not None and (seen.at_nodes if at_nodes else seen.stored)

    def _seen_later(self) -> dict[str, _Elsewhere]:
        """Files that are visible still, each with where it may be but for data directories."""
        if self._later is None:
            with LocalCatalogue(self._config.schema_dir) as now:
                rows = now.rows(now.newest).visible
                with now.engine.reading() as state:
                    parts, released = state.uploaded_table.parts, state.released_table.rows
                    self._later = {
                        row.physical: _Elsewhere(parts(row).file, row.physical in released)
                        for row in rows
                    }
        return self._later

    def of_output(self, asked: CompactionAsked, part: MergePartResult) -> Finding:
        """What it means that a worker found a merged file in none of the data directories."""
        assert part.output is not None
        physical = asked.outputs[part.output].physical
        where = f" (on {part.host})" if part.host else ""
        for away in self._away:
            return _unproved(f"not found; {away}")
        if any(os.path.lexists(f"{root}/{physical}") for root in self._roots):
            return _unproved(f"this machine sees it, a worker did not{where}")
        with LocalCatalogue(self._config.schema_dir) as now, now.engine.reading() as state:
            row = state.compacted_table.rows.get(asked.ident)
            if row is None or row.dissolved:
                return Finding(
                    Severity.NOTE, "changed", None, None, None, "it was dissolved meanwhile"
                )
            home = row.outputs[part.output].data_dir
        if home and not (Path(home) / physical).parent.is_dir():
            return _unproved(f"not found, nor its directory in {home}: is the disk mounted?")
        places = ", ".join(self._roots)
        return Finding(
            Severity.BAD, "present", None, None, None, f"it is in no data directory: {places}"
        )


def _unproved(detail: str) -> Finding:
    return Finding(Severity.UNPROVED, "present", None, None, None, detail)
