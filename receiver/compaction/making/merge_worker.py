"""The process that merges files: questions in, answers out, until the other end is gone."""

from __future__ import annotations

import errno

import pyarrow as pa

from common.errors import NoSpaceError, TsferryError
from receiver.background.side_process import die_with_parent, serve
from receiver.compaction.making.merging import merge_files
from receiver.compaction.merge_process import MergeReply
from receiver.compaction.worth_merging.merge_asked import MergeAsked

__all__ = ["main"]

_FULL = (errno.ENOSPC, errno.EDQUOT)


def main() -> None:
    """Answer until nobody asks any more."""
    die_with_parent()
    pa.set_cpu_count(1)
    serve(_answer, MergeAsked)


def _answer(asked: MergeAsked) -> MergeReply:
    """Merge; what concerns these files alone is told, and anything else ends the process."""
    try:
        return MergeReply(merge_files(asked))
    except TsferryError as error:
        return MergeReply(None, error.slug, error.message)
    except OSError as error:
        slug = NoSpaceError.slug if error.errno in _FULL else ""
        return MergeReply(None, slug, str(error))
    except MemoryError:
        return MergeReply(None, why="they need more memory than merge.memory lets it take")


if __name__ == "__main__":
    main()
