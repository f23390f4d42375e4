"""Compressed blocks and batches at a server: judged by what they become, counted as such."""

from __future__ import annotations

import base64
import hashlib
import http.client

import pytest

from common import wire, zstd
from common.digests import xxh3_128
from receiver.web.app import close, create_app, site_of
from tests.support.node_world import A, World, path_of, tsfile
from tests.support.web import all_from, connect, running, status_of, until

ZSTD = zstd.codec()
PATH, CONTENT = path_of(1), tsfile(points=30_000)
LIMIT = 1 << 18
assert len(CONTENT) < LIMIT


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


class Peer:
    def __init__(self, server) -> None:
        self.server = server
        self.connection = http.client.HTTPConnection(*server.addresses[0], timeout=60)
        self.where = ""

    def call(self, method, path, body=None, **headers):
        given = {"Tus-Resumable": "1.0.0", "Tsferry-Sender": A}
        given |= {key.replace("_", "-"): value for key, value in headers.items()}
        self.connection.request(method, path, body=body, headers=given)
        answer = self.connection.getresponse()
        return answer, answer.read()

    def create(self, size: int) -> None:
        told = f"path {b64(PATH.encode())}"
        answer, _ = self.call(
            "POST", f"{wire.BASE}/files", Upload_Length=str(size), Upload_Metadata=told
        )
        self.where = answer.headers["Location"]

    def patch(self, body, content, offset=0, **more):
        headers = {
            "Content_Type": wire.OFFSET_TYPE,
            "Upload_Offset": str(offset),
            "Upload_Checksum": f"xxh3_128 {b64(xxh3_128(content))}",
            "Content_Encoding": "zstd",
            "Tsferry_Decompressed_Size": str(len(content)),
        }
        return self.call("PATCH", self.where, body, **headers | more)

    def offset(self) -> int:
        return int(self.call("HEAD", self.where)[0].headers["Upload-Offset"])


@pytest.fixture
def world(tmp_path):
    return World(tmp_path, limits={"max_chunk_bytes": LIMIT})


@pytest.fixture
def peer(world):
    app = create_app(world.config)
    try:
        with running(app, gate=site_of(app).gate) as server:
            made = Peer(server)
            yield made
            made.connection.close()
            until(lambda: not server.channels)
            assert server.memory.used == 0
    finally:
        close(app)


def test_blocks_that_came_compressed_and_others_make_the_file(peer, world):
    peer.create(len(CONTENT))
    first, rest = CONTENT[:100_000], CONTENT[100_000:]
    answer, _ = peer.patch(ZSTD.compress(first), first)
    assert (answer.status, answer.headers["Upload-Offset"]) == (204, "100000")
    assert peer.offset() == 100_000, "of what it became"
    answer, told = peer.patch(rest, rest, 100_000, Content_Encoding="identity")
    assert answer.status == 204, told
    assert list(world.loaded().values()) == [CONTENT]


FRAME = ZSTD.compress(CONTENT)
BOMB = ZSTD.compress(bytes(64 << 20), 19)
BAD = {
    "a bomb that says what it is": (BOMB, {"Tsferry_Decompressed_Size": str(64 << 20)}, 413),
    "a bomb that says less": (BOMB, {}, 400),
    "more than a file may have": (BOMB, {"Tsferry_Decompressed_Size": "9" * 18}, 413),
    "longer compressed than a block may be": (bytes(LIMIT + 1), {}, 413),
    "no frame": (CONTENT, {}, 400),
    "cut": (FRAME[:-10], {}, 400),
    "more behind it": (FRAME + FRAME, {}, 400),
    "no size": (FRAME, {"Tsferry_Decompressed_Size": ""}, 400),
    "another coding": (FRAME, {"Content_Encoding": "gzip"}, 415),
    "other bytes than its checksum's": (ZSTD.compress(CONTENT[::-1]), {}, 460),
    "an empty body": (b"", {}, 415),
}


@pytest.mark.parametrize("name", BAD)
def test_of_a_block_that_is_not_what_it_says_nothing_counts(peer, name):
    body, headers, status = BAD[name]
    peer.create(len(CONTENT))
    answer, told = peer.patch(body, CONTENT, **headers)
    assert answer.status == status, told
    peer.connection.close()
    assert peer.offset() == 0
    assert peer.patch(FRAME, CONTENT)[0].status == 204, "the right one does"


def test_chunks_that_are_compressed_are_refused(peer):
    peer.create(len(CONTENT))
    head = (
        f"PATCH {peer.where} HTTP/1.1\r\nHost: localhost\r\nTus-Resumable: 1.0.0\r\n"
        f"Tsferry-Sender: {A}\r\nContent-Type: {wire.OFFSET_TYPE}\r\nUpload-Offset: 0\r\n"
        "Content-Encoding: zstd\r\nTsferry-Decompressed-Size: 5\r\n"
        "Transfer-Encoding: chunked\r\n\r\n"
    )
    with connect(peer.server) as sock:
        sock.sendall(head.encode())
        assert status_of(all_from(sock)) == 415
    assert peer.offset() == 0


def test_what_a_body_becomes_counts_as_memory_before_it_is_made(peer, monkeypatch):
    peer.create(len(CONTENT))
    used = []
    made = ZSTD.ZstdDecompressor

    def decompressor(**options):
        used.append(peer.server.memory.used)
        return made(**options)

    monkeypatch.setattr(ZSTD, "ZstdDecompressor", decompressor)
    assert peer.patch(FRAME, CONTENT)[0].status == 204
    assert used == [len(FRAME) + len(CONTENT)]


def test_a_body_that_would_not_fit_into_memory_is_put_off_by_its_head(peer):
    peer.create(len(CONTENT))
    peer.server.memory.take(peer.server.options.max_buffered_bytes - len(FRAME) - 1000)
    answer, _ = peer.patch(FRAME, CONTENT)
    assert answer.status == 503
    peer.server.memory.take(-(peer.server.options.max_buffered_bytes - len(FRAME) - 1000))


def test_a_peer_that_leaves_in_the_middle_leaves_nothing_behind(peer):
    peer.create(len(CONTENT))
    with connect(peer.server) as sock:
        sock.sendall(
            f"PATCH {peer.where} HTTP/1.1\r\nHost: localhost\r\nTus-Resumable: 1.0.0\r\n"
            f"Tsferry-Sender: {A}\r\nContent-Type: {wire.OFFSET_TYPE}\r\nUpload-Offset: 0\r\n"
            f"Upload-Checksum: md5 {b64(hashlib.md5(CONTENT).digest())}\r\n"
            f"Content-Encoding: zstd\r\nTsferry-Decompressed-Size: {len(CONTENT)}\r\n"
            f"Content-Length: {len(FRAME)}\r\n\r\n".encode()
            + FRAME[: len(FRAME) // 2]
        )
        until(lambda: peer.server.memory.used > 0)
    assert peer.offset() == 0
    assert peer.patch(FRAME, CONTENT)[0].status == 204
