"""The process that reads files for proofs: partitions in, proofs out, until the other end is gone.

It stands back behind everything else of the machine, and takes no more memory than it may.
"""

from __future__ import annotations

import os
import resource
import socket
import sys

import msgspec
import pyarrow as pa

from receiver.superseding.asking import PartitionAsked, receive_frame, send_frame
from receiver.superseding.partition_proof import ReadBytes, prove

__all__ = ["main"]

_NICE = 19


def main() -> None:
    """Answer what comes on the socket that the first argument names, in so much memory."""
    os.nice(_NICE)
    pa.set_cpu_count(1)
    memory = int(sys.argv[2])
    resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))
    decoder = msgspec.msgpack.Decoder(PartitionAsked)
    read = ReadBytes()
    with socket.socket(fileno=int(sys.argv[1])) as line:
        while True:
            try:
                asked = decoder.decode(receive_frame(line))
                send_frame(line, msgspec.msgpack.encode(prove(asked, read)))
            except (EOFError, BrokenPipeError, ConnectionError):
                return


if __name__ == "__main__":
    main()
