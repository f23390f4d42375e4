"""The process that checks rows: a file in, an answer out, until the other end is gone."""

from __future__ import annotations

import pyarrow as pa

from receiver.background.side_process import die_with_parent, serve
from receiver.row_checks.row_checking import check_rows
from receiver.row_checks.rows_asked import RowsAnswer, RowsAsked

__all__ = ["main"]


def main() -> None:
    """Answer until nobody asks any more."""
    die_with_parent()  # a rule that hangs looks at no line
    pa.set_cpu_count(1)
    serve(_answer, RowsAsked)


def _answer(asked: RowsAsked) -> RowsAnswer:
    try:
        return check_rows(asked)
    except MemoryError:
        return RowsAnswer(None, "its rows take more memory than proofs.memory")


if __name__ == "__main__":
    main()
