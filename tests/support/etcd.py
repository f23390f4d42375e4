"""A real etcd on loopback for the tests: started, paused, killed and restarted by pid."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import signal
import socket
import urllib.error
import urllib.request
from base64 import b64encode
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from common.config import Secret
from tests.support.ports import free_port
from tests.support.procs import Child, wait_until

_numbers = itertools.count(1)


@dataclass(frozen=True)
class Settings:
    """As `receiver.config.EtcdConfig`, with short times."""

    endpoints: Sequence[str]
    prefix: str = "/tsferry"
    user: str | None = None
    password: Secret | None = None
    ca_cert: Path | None = None
    cert: Path | None = None
    key: Path | None = None
    timeout: float = 5.0
    lease: float = 5.0
    url: str | None = None


class Etcd:
    """One member, a cluster of its own, with its data in a directory that outlives it."""

    def __init__(self, directory: Path, *options: str, scheme: str = "http") -> None:
        self._directory = directory
        self._options = options
        self._scheme = scheme
        self._port, self._peer_port = free_port(), free_port()
        self._child: Child | None = None

    @property
    def url(self) -> str:
        return f"{self._scheme}://127.0.0.1:{self._port}"

    def settings(self, **changes: object) -> Settings:
        """To reach it, with a prefix that nobody has used before."""
        values = {"endpoints": (self.url,), "prefix": f"/test-{next(_numbers)}"}
        return Settings(**(values | changes))  # type: ignore[arg-type]

    def start(self) -> None:
        """Start it, or start it again over the same data, and wait until it answers."""
        again = self._child is not None
        for _ in range(3):
            self.launch()
            assert self._child is not None
            self._child.until(lambda: self._answers() or not self._child.running, "etcd to answer")
            if self._child.running or again:
                break
            # Somebody took one of the ports meanwhile.
            self._port, self._peer_port = free_port(), free_port()
            shutil.rmtree(self._directory / "data", ignore_errors=True)
        assert self._child.running, self._child.text()

    def launch(self) -> None:
        """Start it without waiting."""
        peer = f"http://127.0.0.1:{self._peer_port}"
        arguments = [
            "etcd", "--data-dir", str(self._directory / "data"), "--name", "test",
            "--listen-client-urls", self.url, "--advertise-client-urls", self.url,
            "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
            "--initial-cluster", f"test={peer}", *self._options,
        ]  # fmt: skip
        self._child = Child(arguments, self._directory / "etcd.log", env={"GOMAXPROCS": "2"})

    def _answers(self) -> bool:
        if self._scheme == "https":
            with suppress(OSError), socket.create_connection(("127.0.0.1", self._port), 1):
                return True
            return False
        try:
            with urllib.request.urlopen(f"{self.url}/health", timeout=1) as answer:
                return b'"true"' in answer.read()
        except (urllib.error.URLError, OSError):
            return False

    def pause(self) -> None:
        """SIGSTOP: it takes connections and bytes, and does nothing."""
        assert self._child is not None
        self._child.signal(signal.SIGSTOP)
        tasks = Path(f"/proc/{self._child.pid}/task")
        wait_until(
            lambda: all(_state(each) == "T" for each in tasks.iterdir()),
            "a process stops when its threads come to it",
        )

    def resume(self) -> None:
        assert self._child is not None
        self._child.signal(signal.SIGCONT)

    def kill(self) -> None:
        """SIGKILL, paused or not."""
        if self._child is not None:
            self._child.kill()

    def call(self, path: str, token: str | None = None, **request: object) -> dict[str, Any]:
        """Ask its JSON gateway something, past our client."""
        sent = urllib.request.Request(f"{self.url}{path}", json.dumps(request).encode())
        if token:
            sent.add_header("Authorization", token)
        with urllib.request.urlopen(sent, timeout=60) as answer:
            return json.loads(answer.read())

    def revision(self) -> int:
        """Of the store, now."""
        key = b64encode(b"nothing").decode()
        return int(self.call("/v3/kv/range", key=key)["header"]["revision"])

    def compact(self, revision: int | None = None) -> int:
        """Compact as somebody else would; returns up to where (the newest, for None)."""
        revision = revision or self.revision()
        self.call("/v3/kv/compaction", revision=str(revision), physical=True)
        return revision

    def end_lease(self, prefix: str) -> None:
        """Of a dead process: as if its time had run out, which takes as long as it is."""
        owner = b64encode(f"{prefix}/owner".encode()).decode()
        self.call("/v3/kv/deleterange", key=owner)

    def defragment(self) -> None:
        self.call("/v3/maintenance/defragment")

    def write_elsewhere(self, times: int) -> None:
        """Let the revision of the cluster grow by writes that are not ours."""
        key = b64encode(b"/somebody/else").decode()
        for number in range(times):
            value = b64encode(b"%d" % number).decode()
            self.call("/v3/kv/put", key=key, value=value)


def require_etcd() -> None:
    """Skip where etcd is not installed; never where CI runs."""
    if shutil.which("etcd"):
        return
    message = "etcd is not installed (Debian: etcd-server)"
    if os.environ.get("CI"):
        pytest.fail(message)
    pytest.skip(message)


@contextmanager
def running_etcd(directory: Path, *options: str, scheme: str = "http") -> Iterator[Etcd]:
    """A member of its own, killed at the end of the block."""
    require_etcd()
    directory.mkdir(parents=True, exist_ok=True)
    server = Etcd(directory, *options, scheme=scheme)
    server.start()
    try:
        yield server
    finally:
        server.kill()


@pytest.fixture(scope="session")
def shared_etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Etcd]:
    """One for all tests that leave it running and use a prefix of their own."""
    with running_etcd(tmp_path_factory.mktemp("etcd")) as server:
        yield server


@pytest.fixture
def own_etcd(tmp_path: Path) -> Iterator[Etcd]:
    """One for a test that pauses, kills or compacts it."""
    with running_etcd(tmp_path / "etcd") as server:
        yield server


def _state(task: Path) -> str:
    return (task / "stat").read_text().rpartition(")")[2].split()[0]


__all__ = ["Etcd", "Settings", "own_etcd", "require_etcd", "running_etcd", "shared_etcd"]
