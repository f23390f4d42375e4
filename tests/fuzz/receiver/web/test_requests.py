"""Damaged requests: each is answered or closed, and the next good one is served."""

import contextlib
import http.client
import socket

import pytest

from receiver.web.app import close, create_app, site_of
from receiver.web.server.request_parser import Parser
from tests.support.mutate import mutants
from tests.support.node_world import A, World
from tests.support.web import connect, running, until

SEEDS = [
    b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    b"GET /sync/v1/inventory?after=x&limit=3 HTTP/1.1\r\nHost: [::1]:80\r\n"
    b"Tsferry-Sender: " + A.encode() + b"\r\nAuthorization: Bearer tsf_1234_abcd\r\n\r\n",
    b"POST /sync/v1/files HTTP/1.1\r\nHost: localhost\r\nTus-Resumable: 1.0.0\r\n"
    b"Tsferry-Sender: " + A.encode() + b"\r\nUpload-Length: 100\r\n"
    b"Upload-Metadata: path c2VxdWVuY2Uvcm9vdC5zZy8wLzAvMS0xLTAudHNmaWxl,md5 AAAA\r\n\r\n",
    b"PATCH /sync/v1/files/" + A.encode() + b" HTTP/1.1\r\nHost: localhost\r\n"
    b"Tus-Resumable: 1.0.0\r\nUpload-Offset: 0\r\nUpload-Checksum: md5 AAAA\r\n"
    b"Content-Type: application/offset+octet-stream\r\nContent-Length: 5\r\n\r\nhello",
    b"POST /sync/v1/check HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
    b'Transfer-Encoding: chunked\r\n\r\n5\r\n{"a":\r\n2;x=y\r\n1}\r\n0\r\nT: v\r\n\r\n',
    b"PUT http://a/sync/v1/tasks/" + A.encode() + b" HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
    b"OPTIONS * HTTP/1.1\r\nHost: a\r\nOrigin: null\r\nExpect: 100-continue\r\n\r\n",
]


@pytest.mark.parametrize("seed", range(4))
def test_no_damaged_request_harms_the_server(tmp_path, seed, caplog):
    app = create_app(World(tmp_path).config)
    try:
        with running(app, gate=site_of(app).gate) as server:
            for sent in mutants(SEEDS, 250, seed=seed):
                with connect(server) as sock, contextlib.suppress(OSError):
                    sock.sendall(sent)
                    sock.shutdown(socket.SHUT_WR)
                    got = sock.recv(65536)
                    assert got == b"" or got.startswith(b"HTTP/1."), got
                    assert not got.startswith(b"HTTP/1.1 500"), (sent, got)
            host, port = server.addresses[0]
            good = http.client.HTTPConnection(host, port, timeout=60)
            good.request("GET", "/healthz")
            assert good.getresponse().status == 200
            good.close()
            until(lambda: not server.channels)
            assert server.memory.used == 0
        assert "Traceback" not in caplog.text
    finally:
        close(app)


def test_a_peer_that_leaves_before_its_request_line_was_read_is_no_error(tmp_path, caplog):
    """waitress names the path of the request in its log, and this one never had any."""
    app = create_app(World(tmp_path).config)
    try:
        with running(app, gate=site_of(app).gate) as server:
            parser = Parser(server.adj, None)
            assert parser.path == ""
    finally:
        close(app)
