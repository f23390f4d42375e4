"""How much of what was loaded a repair would have sent again, and whether that is believable.

A sender that has freed a file cannot send it, so to ask for it is to give it up. The disks of a
stand-by that has just taken over are empty, and so is a directory under which nothing is mounted:
there all is missing, and nearly all of it is somewhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from common.console.terminal import size_text
from common.errors import UsageError
from receiver.load.upkeep.loaded_file_checks import is_to_be_there
from receiver.metadata.model.merged_names import is_merged
from receiver.metadata.state.placed_files import placed_nodes
from receiver.metadata.state.table_rows import FileState

if TYPE_CHECKING:
    from collections.abc import Set

    from receiver.load.upkeep.fsck_findings import Report
    from receiver.metadata.engine import Engine
    from receiver.metadata.state.state import State
    from receiver.metadata.state.table_rows import FileRow

__all__ = ["AskedAgain", "must_be_confirmed", "what_is_asked"]

_SHARE: Final = 0.1
"""Part of the files that a repair asks for by itself."""
_FROM: Final = 20
"""Files from which on the share counts: of fewer a damaged disk takes half."""


class AskedAgain(NamedTuple):
    """Files that a repair would put in quarantine, whose senders are asked for them.

    Attributes:
        files: of them.
        size: their bytes.
        senders: that are asked.
        retired: files of which the sender has told that it has them no more.
        placed: files that storage nodes are to have.
        of: how many files there are, without those that others give.
    """

    files: int
    size: int
    senders: int
    retired: int
    placed: int
    of: int


def what_is_asked(engine: Engine, report: Report, *, without_nodes: bool = False) -> AskedAgain:
    """Count what a repair would ask for; nothing is changed.

    Args:
        engine: open.
        report: what was found.
        without_nodes: whether what only storage nodes may have counts for gone.
    """
    there = ("store",) if without_nodes else ("store", "nodes")
    bad = {each.path for each in report.found if each.is_bad_file and each.elsewhere not in there}
    files = size = retired = placed = 0
    senders: set[str] = set()
    with engine.reading() as state:
        for physical in bad:
            row = state.files.get(physical)
            # What rests on others gives way to them.
            if row is None or row.state is FileState.SUPERSEDED or _falls_back(state, row, bad):
                continue
            files, size = files + 1, size + row.size
            retired += row.retired
            placed += bool(placed_nodes(state, physical))
            senders.add(row.sender)
        every = filter(is_to_be_there, state.files.values())
        of = sum(row.state is not FileState.SUPERSEDED for row in every)
    return AskedAgain(files, size, len(senders), retired, placed, of)


def _falls_back(state: State, row: FileRow, bad: Set[str]) -> bool:
    """Whether a file was merged of others that are all here, and come back in its place."""
    maker = state.compacted_table.finals.maker(row.physical) if is_merged(row.physical) else None
    if maker is None or not bad.isdisjoint(maker.inputs):
        return False
    inputs = map(state.files.get, maker.inputs)
    return all(each is not None and each.state is FileState.SUPERSEDED for each in inputs)


def must_be_confirmed(asked: AskedAgain, cut: str | None = None) -> None:
    """See that a repair asks for no more than a disk loses that fails.

    Args:
        asked: for what it would ask.
        cut: the file that has what was cut off the log before, if it was.

    Raises:
        UsageError: it is more, and says of what.
    """
    if asked.files < _FROM or asked.files <= _SHARE * asked.of:
        return
    said = [
        f"{asked.files} of {asked.of} files ({size_text(asked.size)}) would be asked of "
        f"{asked.senders} senders again"
    ]
    if asked.retired:
        said.append(f"{asked.retired} of these their senders have no more, and they are lost then")
    if asked.placed:
        said.append(
            f"storage nodes are to have {asked.placed} of them: with the server up, `copies back` "
            "and fsck --repair bring those back"
        )
    changed = "nothing was changed"
    if cut is not None:
        changed += f" but the log, which is cut ({cut} has what it held)"
    raise UsageError(
        "; ".join(said) + f". That is more than {_SHARE:.0%}, so {changed}: see that all disks are "
        "mounted and in data_dirs. What senders have freed they cannot send. If it has to be: "
        "--confirm"
    )
