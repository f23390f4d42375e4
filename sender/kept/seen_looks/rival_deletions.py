"""Deletion files of one path in several data directories: one counts, or the path waits.

A TsFile that is copied to another tier is there twice, with the same content, until the first copy
goes. What was deleted meanwhile may stand beside one of them only.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from msgspec.structs import replace

if TYPE_CHECKING:
    from collections.abc import Callable

    from common.names import FilePath
    from sender.select.found import LocalDeletions, Scan

__all__ = ["without_rivals"]


def without_rivals(scan: Scan, read: Callable[[LocalDeletions], bytes | None]) -> Scan:
    """The scan with one deletion file of a form for each path: the one that has all of the others.

    Where none has, nobody knows what is deleted: the TsFile waits.

    Args:
        scan: of all local files.
        read: a deletion file as it is; None where it cannot be read.
    """
    if len(scan.mounted) < 2 or not scan.deletions:
        return scan
    found: dict[tuple[FilePath, str], list[LocalDeletions]] = defaultdict(list)
    for each in scan.deletions:
        found[each.path, each.form].append(each)
    why: dict[FilePath, str] = {}
    for (path, form), several in found.items():
        if len(several) > 1:
            several.sort(key=lambda each: (-each.size, each.data_dir))
            longest, *others = (read(each) for each in several)
            if longest is None or any(
                each is None or not longest.startswith(each) for each in others
            ):
                where = ", ".join(str(each.data_dir) for each in several)
                why[path] = f"its deletion files ({form}) in {where} are not the same"
    deletions = tuple(several[0] for several in found.values())
    return replace(scan, deletions=deletions).waiting_for(why)
