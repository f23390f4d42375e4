"""The checks and flushes of a transfer, and nothing else: what no Python program can go below.

    python scripts/bench/bare_transfer.py receive PORT DIR
    python scripts/bench/bare_transfer.py send PORT SOURCE

One connection; large files in blocks, small ones many in a body. Both ends take the xxh3-64 of each
block and the MD5 of each file, in the fewest calls of the system that do it: the sender holds each
file by a link while it is sent, the receiver writes, flushes, renames, flushes the directory and
answers. There is no protocol, no tail is read, nothing is proved, committed, or gone on with.
`transfer_peers.py` has it as one more way. Nothing but the standard library and xxhash is imported.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import socket
import struct
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import SimpleQueue
from threading import Thread

import xxhash

_BLOCK = 8 << 20
_PIECE = 1 << 20
"""Of one write: larger ones cost the kernel more."""
_SMALL = 1 << 20
_FILES = 256
_HEAD = struct.Struct("<QI")
"""Bytes of all blocks of a file, files of a body; of a large file 0."""
_ENTRY = struct.Struct("<HI16sQ")
"""Of a small file: length of the name, bytes, MD5, xxh3-64; behind it the name and the bytes."""
_LIBC = ctypes.CDLL(None)
_ALL = ctypes.c_int64(0)
_BEGIN = 2
"""`SYNC_FILE_RANGE_WRITE`: begin to write, wait for nothing."""


class Beside:
    """Calls that a thread carries out, in order."""

    def __init__(self, most: int) -> None:
        self._calls: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        self._free: SimpleQueue[None] = SimpleQueue()
        for _ in range(most):
            self._free.put(None)
        self._thread = Thread(target=self._run)
        self._thread.start()

    def put(self, call: Callable[[], object]) -> None:
        """Have it carried out, once few enough wait."""
        self._free.get()
        self._calls.put(call)

    def end(self) -> None:
        """Wait for all."""
        self._calls.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            call()
            self._free.put(None)


def read(connection: socket.socket, into: memoryview) -> memoryview:
    """Bytes until it is full."""
    at = 0
    while at < len(into):
        got = connection.recv_into(into[at:])
        if not got:
            raise EOFError
        at += got
    return into


def send(port: int, source: Path) -> None:
    """All TsFiles below a directory; returns when the receiver has all."""
    files = sorted(source.rglob("*.tsfile"))
    held = source / "held"
    held.mkdir()
    with socket.create_connection(("127.0.0.1", port)) as connection:
        small = []
        for number, path in enumerate(files):
            os.link(path, held / str(number))
            if path.stat().st_size > _SMALL:
                send_large(connection, path, str(number).encode())
            else:
                small.append(number)
        for begin in range(0, len(small), _FILES):
            some = small[begin : begin + _FILES]
            body = b"".join(packed(held / str(number)) for number in some)
            connection.sendall(_HEAD.pack(len(body), len(some)) + body)
        connection.shutdown(socket.SHUT_WR)
        assert connection.recv(1) == b"."
    for each in held.iterdir():
        each.unlink()
    held.rmdir()


def packed(path: Path) -> bytes:
    """A small file with its digests."""
    fd = os.open(path, os.O_RDONLY)
    content = os.pread(fd, os.fstat(fd).st_size, 0)
    os.close(fd)
    name = path.name.encode()
    md5, xxh3 = hashlib.md5(content).digest(), xxhash.xxh3_64_intdigest(content)
    return _ENTRY.pack(len(name), len(content), md5, xxh3) + name + content


def send_large(connection: socket.socket, path: Path, name: bytes) -> None:
    """A file, then its name and its MD5."""
    blocks = [memoryview(bytearray(_BLOCK)) for _ in range(3)]
    md5, beside = hashlib.md5(), Beside(1)
    with open(path, "rb", buffering=0) as file:
        connection.sendall(_HEAD.pack(os.fstat(file.fileno()).st_size, 0))
        number = 0
        while got := file.readinto(blocks[number % 3]):
            block = blocks[number % 3][:got]
            beside.put(lambda block=block: md5.update(block))
            connection.sendall(xxhash.xxh3_64_digest(block))
            connection.sendall(block)
            number += 1
    beside.end()
    connection.sendall(md5.digest() + bytes([len(name)]) + name)


def receive(port: int, target: Path) -> None:
    """All that one connection brings."""
    directory = os.open(target, os.O_RDONLY)
    with socket.create_server(("127.0.0.1", port)) as listener:
        connection = next(connections(listener))
    with connection:
        head, body = memoryview(bytearray(_HEAD.size)), memoryview(bytearray(_BLOCK))
        while True:
            try:
                size, files = _HEAD.unpack(read(connection, head))
            except EOFError:
                break
            if files:
                if size > len(body):
                    body = memoryview(bytearray(size))
                take_small(read(connection, body[:size]), files, directory)
            else:
                take_large(connection, size, directory)
        connection.sendall(b".")
    os.close(directory)


def connections(listener: socket.socket) -> Iterator[socket.socket]:
    """Those that bring anything: who only looks whether we listen brings nothing."""
    while True:
        connection, _ = listener.accept()
        if connection.recv(1, socket.MSG_PEEK):
            yield connection


def take_small(body: memoryview, files: int, directory: int) -> None:
    """Files of a body: all begun to be written, then flushed, then named."""
    at, written = 0, []
    for _ in range(files):
        length, size, md5, xxh3 = _ENTRY.unpack_from(body, at)
        at += _ENTRY.size
        name, content = bytes(body[at : at + length]).decode(), body[at + length :][:size]
        at += length + size
        assert xxhash.xxh3_64_intdigest(content) == xxh3
        assert hashlib.md5(content).digest() == md5
        fd = os.open(f"{name}.new", os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=directory)
        os.write(fd, content)
        begin_sync(fd)
        written.append((fd, name))
    for fd, name in written:
        os.fsync(fd)
        os.close(fd)
        os.rename(f"{name}.new", name, src_dir_fd=directory, dst_dir_fd=directory)
    os.fsync(directory)


def take_large(connection: socket.socket, size: int, directory: int) -> None:
    """One file in blocks; it has its name when it is what was sent."""
    blocks = [memoryview(bytearray(_BLOCK)) for _ in range(3)]
    md5, beside = hashlib.md5(), Beside(1)
    fd = os.open("large.new", os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=directory)
    check = memoryview(bytearray(8))
    number = 0
    while size:
        read(connection, check)
        block = read(connection, blocks[number % 3][: min(size, _BLOCK)])
        assert xxhash.xxh3_64_digest(block) == check
        beside.put(lambda block=block: md5.update(block))
        for at in range(0, len(block), _PIECE):
            os.write(fd, block[at : at + _PIECE])
        begin_sync(fd)
        size -= len(block)
        number += 1
    beside.end()
    end = read(connection, memoryview(bytearray(17)))
    name = bytes(read(connection, memoryview(bytearray(end[16])))).decode()
    assert md5.digest() == end[:16]
    os.fsync(fd)
    os.close(fd)
    os.rename("large.new", name, src_dir_fd=directory, dst_dir_fd=directory)
    os.fsync(directory)


def begin_sync(fd: int) -> None:
    """Have the disk begin with what was written."""
    _LIBC.sync_file_range(fd, _ALL, _ALL, _BEGIN)


if __name__ == "__main__":
    {"send": send, "receive": receive}[sys.argv[1]](int(sys.argv[2]), Path(sys.argv[3]))
