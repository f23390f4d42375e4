"""A node's proof that it has bytes of a file, made of what its disk gives now."""

from __future__ import annotations

import hashlib
import os
import re
from typing import TYPE_CHECKING, Final

from common.digests import read_blocks
from common.errors import ConflictError, DamagedError, UsageError
from receiver.tablet_copies.copies_wire import ProofGiven

if TYPE_CHECKING:
    from receiver.tablet_copies.copies_wire import ProofAsked
    from receiver.tablet_copies.replica_store import ReplicaStore

__all__ = ["give_proof"]

_NONCE: Final = re.compile(r"[0-9a-f]{64}\Z")
_MOST: Final = 256 << 20


def give_proof(copies: ReplicaStore, asked: ProofAsked, boot: str) -> ProofGiven:
    """The digest that is asked for.

    Args:
        copies: what is here.
        asked: by the master.
        boot: of this start of the node.

    Raises:
        UsageError: it is no question.
        ConflictError: another start is meant, or another generation, or another file.
        NotFoundError: the file is not here.
        DamagedError: it has not as many bytes as it had.
        OSError: its disk does not give it.
    """
    if not _NONCE.match(asked.nonce) or asked.length > _MOST:
        raise UsageError(f"nonce, length: expected 64 hex digits, and {_MOST} bytes at most")
    if asked.boot != boot:
        raise ConflictError("another start of this node is asked")
    replica = copies.replica(asked.tablet)
    if replica.generation != asked.generation:
        raise ConflictError(
            f"the replica of tablet {asked.tablet} is of generation {replica.generation}, and "
            f"{asked.generation} is asked about"
        )
    fd, file = replica.open_file(asked.physical)
    try:
        if (file.size, file.md5) != (asked.size, asked.md5):
            raise ConflictError(f"{file.physical} has {file.size} bytes with MD5 {file.md5} here")
        # From the disk, and not from memory.
        os.posix_fadvise(fd, asked.begin, asked.length, os.POSIX_FADV_DONTNEED)
        digest, read = hashlib.sha256(bytes.fromhex(asked.nonce)), 0
        for block in read_blocks(fd, start=asked.begin, end=asked.begin + asked.length):
            digest.update(block)
            read += len(block)
    finally:
        os.close(fd)
    if read != asked.length:
        raise DamagedError(f"{file.physical}: {read} bytes of {asked.length} can be read")
    return ProofGiven(digest=digest.hexdigest())
