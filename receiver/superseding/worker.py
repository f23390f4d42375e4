"""The process that reads files for proofs: partitions in, proofs out, until the other end is gone.

It stands back behind everything else of the machine, and takes no more memory than it may.
"""

from __future__ import annotations

import pyarrow as pa

from receiver.background.side_process import serve
from receiver.superseding.asking import PartitionAnswer, PartitionAsked
from receiver.superseding.partition_proof import ReadBytes, prove

__all__ = ["main"]


def main() -> None:
    """Answer until nobody asks any more."""
    pa.set_cpu_count(1)
    read = ReadBytes()

    def answer(asked: PartitionAsked) -> PartitionAnswer:
        return prove(asked, read)

    serve(answer, PartitionAsked)


if __name__ == "__main__":
    main()
