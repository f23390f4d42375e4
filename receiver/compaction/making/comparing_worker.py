"""The process that compares merged files: questions in, answers out, until nobody is there."""

from __future__ import annotations

import pyarrow as pa

from receiver.background.side_process import die_with_parent, serve
from receiver.compaction.making.merge_comparing import compare_merge
from receiver.compaction.worth_merging.merge_asked import ComparisonAsked

__all__ = ["main"]


def main() -> None:
    """Answer until nobody asks any more."""
    die_with_parent()
    pa.set_cpu_count(1)
    serve(compare_merge, ComparisonAsked)


if __name__ == "__main__":
    main()
