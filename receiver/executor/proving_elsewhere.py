"""Proofs on another machine than the receiver's: files are fetched whole, for each question."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from common.durable import ScratchDirectory, write_scratch
from common.errors import DamagedError, NotFoundError, ProtocolError, Transient, TsferryError
from receiver.superseding.asking import PartitionAsked
from receiver.superseding.partition_proof import ReadBytes, prove

if TYPE_CHECKING:
    from collections.abc import Iterator

    from receiver.storage.reading.receiver_reads import ReceiverReads
    from receiver.superseding.asking import FileAsked

__all__ = ["FetchFailed", "answer_proofs"]

_PIECE = 8 << 20


class FetchFailed(Exception):  # no error that says something of the file
    """A file is not to be had now; nothing follows from that."""


class _FetchedBytes(ReadBytes):
    """Files of a receiver, which come when they are needed, and are compared with their MD5."""

    def __init__(self, reads: ReceiverReads) -> None:
        super().__init__()
        self._reads = reads

    def check(self, file: FileAsked) -> int:
        """Fetch a file, and compare it; see `ReadBytes.check`.

        Raises:
            FetchFailed: the receiver does not give it now, or there is no room for it here.
        """
        assert file.path is not None
        if not Path(file.path).exists():
            try:
                write_scratch(Path(file.path), self._pieces(file))
            except NotFoundError as error:
                raise FileNotFoundError(error.message) from error
            except DamagedError as error:
                raise ValueError(error.message) from error
            except (TsferryError, OSError) as error:
                raise FetchFailed(f"{file.physical} is not to be had now: {error}") from error
        return super().check(file)

    def _pieces(self, file: FileAsked) -> Iterator[bytes]:
        for begin in range(0, file.size, _PIECE):
            yield self._reads.read(file.physical, begin, min(_PIECE, file.size - begin))


def answer_proofs(question: bytes, reads: ReceiverReads) -> bytes:
    """What is found of the candidates of a question.

    Args:
        question: a `PartitionAsked`, packed, without paths.
        reads: of the receiver that asked.

    Raises:
        ProtocolError: it is no question.
        Transient: a file is not to be had now.
    """
    try:
        asked = msgspec.msgpack.decode(question, type=PartitionAsked)
    except msgspec.MsgspecError as error:
        raise ProtocolError(f"no question of proofs: {error}") from error
    with ScratchDirectory("tsferry-work") as scratch:
        files = [
            msgspec.structs.replace(each, path=str(Path(scratch.name) / f"{number}.tsfile"))
            for number, each in enumerate(asked.files)
        ]
        placed = msgspec.structs.replace(asked, files=files)
        try:
            return msgspec.msgpack.encode(prove(placed, _FetchedBytes(reads)))
        except FetchFailed as error:
            raise Transient(str(error)) from error
