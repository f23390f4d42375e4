"""The process that compares files: a question in, an answer out, until the other end is gone."""

from __future__ import annotations

import pyarrow as pa

from receiver.background.side_process import serve
from receiver.shared_points.common_points import compare
from receiver.shared_points.compare_asked import CompareAnswer, CompareAsked

__all__ = ["main"]


def main() -> None:
    """Answer until nobody asks any more."""
    pa.set_cpu_count(1)
    serve(_answer, CompareAsked)


def _answer(asked: CompareAsked) -> CompareAnswer:
    try:
        return compare(asked)
    except MemoryError:
        return CompareAnswer(None, "they have more points in the same times than fit into memory")


if __name__ == "__main__":
    main()
