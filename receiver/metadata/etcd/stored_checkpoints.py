"""Checkpoints of the engine in etcd: files cut into pieces, and a manifest that names them.

    pieces/<digest>   at most 1 MiB, named by their content
    checkpoint        the manifest: files, and the pieces of each, in order

A piece that is there is not sent again, so files that only grow, and parts that stay the same, cost
nothing. The manifest is set when all of its pieces are there: before that the one before counts.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from common import crash
from common.decoders import from_json
from common.digests import read_blocks
from common.errors import DamagedError, TooLargeError
from receiver.metadata.etcd.messages import MAX_OPERATIONS, Delete, Get, Operation, Put, prefix_end

if TYPE_CHECKING:
    from receiver.metadata.etcd.gateway import EtcdClient

__all__ = ["Checkpoints", "EtcdCheckpoint"]

PIECE_SIZE = 1 << 20
_MAX_MANIFEST = 1 << 20
_Transact = Callable[[Sequence[Operation]], None]
"""Does operations if this process is the owner still, as often as it takes to get an answer."""


class _File(msgspec.Struct, frozen=True):
    name: str
    size: int
    pieces: list[str]


class _Manifest(msgspec.Struct, frozen=True):
    lsn: int
    files: list[_File]

    def pieces(self) -> set[str]:
        return {piece for file in self.files for piece in file.pieces}


class EtcdCheckpoint:
    """See `receiver.metadata.model.remote_log.RemoteCheckpoint`."""

    def __init__(self, client: EtcdClient, pieces: bytes, manifest: _Manifest) -> None:
        self._client = client
        self._pieces = pieces
        self._manifest = manifest

    @property
    def lsn(self) -> int:
        """The last commit that is in it."""
        return self._manifest.lsn

    @property
    def files(self) -> Mapping[str, int]:
        """Sizes by name."""
        return {file.name: file.size for file in self._manifest.files}

    def read(self, name: str) -> Iterator[bytes]:
        """See `RemoteCheckpoint.read`."""
        (file,) = (each for each in self._manifest.files if each.name == name)
        for piece in file.pieces:
            key = self._pieces + piece.encode()
            found = self._client.get(Get(key)).keys
            if not found or _digest(found[0].value) != piece:
                what = "gone" if not found else "not what was put"
                raise DamagedError(
                    f"{key.decode()} in etcd, a piece of {name} of the checkpoint at "
                    f"{self.lsn}, is {what}",
                    extra={"key": key.decode()},
                )
            yield found[0].value


class Checkpoints:
    """The checkpoint of one log; see the module."""

    def __init__(self, client: EtcdClient, prefix: bytes, change: _Transact) -> None:
        self._client = client
        self._manifest_key = prefix + b"checkpoint"
        self._pieces = prefix + b"pieces/"
        self._change = change

    def newest(self) -> EtcdCheckpoint | None:
        """The checkpoint, None where there is none.

        Raises:
            DamagedError: its manifest cannot be read.
        """
        manifest = self._manifest()
        return None if manifest is None else EtcdCheckpoint(self._client, self._pieces, manifest)

    def removal(self) -> Operation:
        """What takes the checkpoint away; its pieces go with the next sweep."""
        return Delete(self._manifest_key)

    def put(self, lsn: int, files: Mapping[str, Path]) -> None:
        """See `RemoteLog.put_checkpoint`."""
        there = self._there()
        sent: list[_File] = []
        for name, path in files.items():
            sent.append(self._send(name, path, there))
        manifest = msgspec.json.encode(_Manifest(lsn, sent))
        if len(manifest) > _MAX_MANIFEST:
            raise TooLargeError(f"a checkpoint of {sum(file.size for file in sent)} bytes")
        crash.point("etcd.checkpoint.before")
        self._change([Put(self._manifest_key, manifest)])
        crash.point("etcd.checkpoint.after")
        self.sweep()

    def _send(self, name: str, path: Path, there: set[str]) -> _File:
        pieces = []
        size = 0
        for block in _blocks(path):
            digest = _digest(block)
            if digest not in there:
                self._change([Put(self._pieces + digest.encode(), block)])
                there.add(digest)
                crash.point("etcd.checkpoint.piece")
            pieces.append(digest)
            size += len(block)
        return _File(name, size, pieces)

    def sweep(self) -> None:
        """Remove pieces that the manifest does not name: of the one before, or of none."""
        manifest = self._manifest()
        needed = set() if manifest is None else manifest.pieces()
        removals: list[Operation] = [
            Delete(self._pieces + piece.encode()) for piece in sorted(self._there() - needed)
        ]
        for at in range(0, len(removals), MAX_OPERATIONS):
            self._change(removals[at : at + MAX_OPERATIONS])

    def _there(self) -> set[str]:
        every = Get(self._pieces, prefix_end(self._pieces), keys_only=True)
        found = self._client.get(every).keys
        return {each.key[len(self._pieces) :].decode(errors="replace") for each in found}

    def _manifest(self) -> _Manifest | None:
        found = self._client.get(Get(self._manifest_key)).keys
        if not found:
            return None
        try:
            return from_json(found[0].value, _Manifest)
        except msgspec.MsgspecError as error:
            what = self._manifest_key.decode()
            raise DamagedError(
                f"{what} in etcd is no manifest of a checkpoint: {error}", extra={"key": what}
            ) from error


def _blocks(path: Path) -> Iterator[bytes]:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        at, size = 0, os.fstat(fd).st_size
        while at < size:
            block = b"".join(read_blocks(fd, start=at, end=min(at + PIECE_SIZE, size)))
            yield block
            at += PIECE_SIZE
    finally:
        os.close(fd)


def _digest(block: bytes) -> str:
    return blake2b(block, digest_size=16).hexdigest()
