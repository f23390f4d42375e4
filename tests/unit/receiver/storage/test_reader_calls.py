"""Calls to a server that is none, or breaks off: errors of ours, whatever it does."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress

import pytest

from common.errors import UnreachableError, UsageError
from receiver.follower.followed_receiver import FollowedReceiver
from receiver.storage.reading.reader_calls import CallAnswer, ReaderCalls


def asks(url: str, token: str | None = None) -> ReaderCalls:
    return ReaderCalls(url, token=token, ca_cert=None, what="the node's URL", timeout=(2, 0.3))


@pytest.fixture
def answering() -> Iterator[Callable[[bytes], str]]:
    """Starts what answers one request with some bytes, and then waits or ends."""
    sockets: list[socket.socket] = []

    def begin(answer: bytes, *, ends: bool = True, again: bool = False) -> str:
        server = socket.create_server(("127.0.0.1", 0))
        sockets.append(server)

        def serve() -> None:
            with suppress(OSError):  # who asked may have gone, and the test be over
                peer, _ = server.accept()
                sockets.append(peer)
                peer.recv(1 << 16)
                peer.sendall(answer)
                while again:
                    peer.recv(1 << 16)
                    peer.sendall(answer)
                if ends:
                    peer.close()

        threading.Thread(target=serve, daemon=True).start()
        return f"http://127.0.0.1:{server.getsockname()[1]}"

    yield begin
    for each in sockets:
        each.close()


@pytest.mark.parametrize(
    ("head", "ends"),
    [
        (b"Content-Length: 100\r\n\r\nabc", True),
        (b"Content-Length: 100\r\n\r\nabc", False),
        (b"Content-Encoding: gzip\r\nContent-Length: 3\r\n\r\nabc", True),
        (b"Transfer-Encoding: chunked\r\n\r\nzz\r\n", True),
    ],
)
def test_a_body_that_breaks_off_is_no_answer(answering, head: bytes, ends: bool) -> None:
    url = answering(b"HTTP/1.1 200 OK\r\n" + head, ends=ends)
    with pytest.raises(UnreachableError, match="does not answer"):
        asks(url).get("/x", {})


def test_an_answer_that_trickles_on_is_no_answer_after_a_while() -> None:
    """Each piece comes in time, and the clock passes with each."""
    now = 0.0
    with closing(socket.create_server(("127.0.0.1", 0))) as server:

        def serve() -> None:
            with suppress(OSError), server.accept()[0] as peer:
                peer.recv(1 << 16)
                peer.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 9999999999\r\n\r\n")
                while True:
                    peer.sendall(b"a" * 100)

        def monotonic() -> float:
            nonlocal now
            now += 10
            return now

        threading.Thread(target=serve, daemon=True).start()
        calls = ReaderCalls(
            f"http://127.0.0.1:{server.getsockname()[1]}",
            token=None,
            ca_cert=None,
            what="the node's URL",
            timeout=(2, 5),
            within=25,
            monotonic=monotonic,
        )
        with pytest.raises(UnreachableError, match="in 25 seconds, and no end"):
            calls.get("/x", {})
        assert now == 40
        calls.close()


@pytest.mark.parametrize(
    "endless",
    [b"HTTP/1.1 100 Continue\r\n\r\n", b"x: y\r\n", b"x"],
    ids=["100 Continue", "lines of a head", "bytes of a line"],
)
def test_a_head_that_trickles_on_is_no_answer_after_a_while(endless: bytes) -> None:
    """A node that lies would keep whoever asks it for a piece of a file, for good."""
    ended = threading.Event()
    with closing(socket.create_server(("127.0.0.1", 0))) as server:

        def serve() -> None:
            # On a busy machine it is too late, and the test over, before it has begun.
            with suppress(OSError), server.accept()[0] as peer:
                peer.recv(1 << 16)
                peer.sendall(b"" if b"100" in endless else b"HTTP/1.1 200 OK\r\n")
                while not ended.wait(0.02):
                    peer.sendall(endless)

        threading.Thread(target=serve, daemon=True).start()
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        calls = ReaderCalls(
            url, token=None, ca_cert=None, what="the node's URL", timeout=(2, 20), within=0.3
        )
        begin = time.monotonic()
        with pytest.raises(UnreachableError, match="does not answer"):
            calls.get("/x", {})
        assert time.monotonic() - begin < 30  # it is 40 where nothing is said
        ended.set()
        calls.close()


@pytest.mark.parametrize(
    "head", [b"Content-Length: 100\r\n\r\nabc", b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n"]
)
def test_what_breaks_off_is_no_answer_with_a_limit_either(answering, head: bytes) -> None:
    url = answering(b"HTTP/1.1 200 OK\r\n" + head)
    calls = ReaderCalls(url, token=None, ca_cert=None, what="x", timeout=(2, 5), within=60)
    with pytest.raises(UnreachableError, match="does not answer"):
        calls.get("/x", {})


@pytest.mark.parametrize(
    "head",
    [
        b"Content-Length: 3\r\n\r\nabc",
        b"Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n2\r\nbc\r\n0\r\n\r\n",
    ],
)
def test_a_whole_answer_is_the_same_with_a_limit(answering, head: bytes) -> None:
    url = answering(b"HTTP/1.1 200 OK\r\n" + head, ends=False)
    calls = ReaderCalls(url, token=None, ca_cert=None, what="x", timeout=(2, 5), within=60)
    assert calls.get("/x", {}) == b"abc"


def test_every_call_has_an_end_where_none_is_asked_for() -> None:
    """Readers, pullers and executors say nothing of it."""
    calls = ReaderCalls("http://127.0.0.1:1", token=None, ca_cert=None, what="x")
    assert calls._within == 120
    adapter = calls._session().get_adapter("http://127.0.0.1:1")
    pool = adapter.poolmanager.pool_classes_by_scheme["http"]
    assert pool.ConnectionCls.response_class.within == 120
    calls.close()


def test_a_log_that_is_followed_breaks_off(answering) -> None:
    url = answering(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nabc")
    followed = FollowedReceiver(url, "token", None)
    with closing(followed), pytest.raises(UnreachableError, match="does not answer"):
        followed.look()


@pytest.mark.parametrize("url", ["https://a..b:1", f"https://{'a' * 70}.x", "https://x\n"])
def test_a_name_that_no_host_has_does_not_answer(url: str) -> None:
    with pytest.raises(UnreachableError):
        asks(url).get("/x", {})


def test_an_address_that_is_none_is_said_to_be_so() -> None:
    with pytest.raises(UsageError, match="the node's URL = 'http://\\['"):
        asks("http://[")


def test_a_token_that_no_header_carries_is_no_call(answering) -> None:
    with pytest.raises(UnreachableError):
        asks(answering(b""), token="\u1234" * 32).get("/x", {})


@pytest.fixture
def hanging(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of a machine that takes connections and says nothing."""
    monkeypatch.setattr("receiver.storage.reading.several_addresses._SOON", 0.1)
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


_OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


def test_a_machine_that_hangs_is_passed_over_by_what_asks_and_by_what_changes(
    answering, hanging: str
) -> None:
    """It takes the connection, so only the time without an answer tells."""
    for method in ("GET", "POST"):
        # What changes something is not said to it: it is found out by a question.
        other = answering(_OK) if method == "GET" else answering(_OK, again=True)
        calls = ReaderCalls(f"{hanging},{other}", token=None, ca_cert=None, what="x")
        begin = time.monotonic()
        assert calls.ask(method, "/x", {}).body == b"ok"
        assert time.monotonic() - begin < 50, "the time of a whole answer is a minute"
        assert calls.url == other
        calls.close()


def test_what_an_operator_says_goes_to_one_machine_once(answering) -> None:
    """It may be done though its answer is lost: another one would do it again."""
    led, broken = answering(_OK, again=True), []

    def ask(self: ReaderCalls, url: str, method: str, *rest: object) -> CallAnswer:
        broken.append((url, method))
        if method != "GET":
            raise UnreachableError("the answer breaks off")
        return CallAnswer(200, {}, b"")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ReaderCalls, "_ask", ask)
        calls = ReaderCalls(
            f"{led},http://127.0.0.1:1", token=None, ca_cert=None, what="x", once=True
        )
        with pytest.raises(UnreachableError, match="breaks off"):
            calls.post("/v1/tokens", {}, b"{}")
    assert broken == [(f"{led}/v1/log", "GET"), (f"{led}/v1/tokens", "POST")]
