"""`tsferry-receiver serve` as a process, and the clients that people have."""

import base64
import contextlib
import datetime
import hashlib
import http.client
import io
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import requests
from tusclient.client import TusClient

from common.config import load
from receiver.config import ReceiverConfig
from receiver.operator.client import NotRunningError, OperatorClient
from receiver.operator.views.status_views import StorageView
from tests.support import warm
from tests.support.authority import Authority
from tests.support.centre import COMMAND
from tests.support.node_world import A, path_of
from tests.support.tsfile_bytes import build
from tests.support.web import BOUND, make_certificate, until

BIG = build(
    {"root.sg.d1": {"s1": [(n, n) for n in range(1, 100)]}}, pad_to=21 * 2**20
)  # longer than a block: it is cut


class Process:
    """A server and the command line beside it."""

    def __init__(self, root: Path, *settings: str) -> None:
        self.root = root
        self.settings = [f"--set={each}" for each in settings]
        self.config = root / "receiver.toml"
        self.url = ""
        self.cli("init", str(self.config), config=False)

    def cli(self, *arguments: str, config=True, code=0) -> str:
        given = ["--config", str(self.config), *self.settings] if config else []
        done = warm.run([COMMAND, *given, *arguments])
        assert done.returncode == code, (done.returncode, done.stdout, done.stderr)
        return done.stdout if code == 0 else done.stderr

    def command(self, *arguments: str, config=True) -> list[str]:
        code = "import sys; from receiver.cli import main; sys.exit(main())"
        given = ["--config", str(self.config), *self.settings] if config else []
        return [sys.executable, "-c", code, *given, *arguments]

    @contextlib.contextmanager
    def serving(self, *flags: str):
        ready, out, err = (self.root / name for name in ("ready", "out", "err"))
        for each in (ready, out, err):
            each.unlink(missing_ok=True)
        given = ["--config", str(self.config), *self.settings, "--set", "limits.min_free_bytes=0"]
        serve = ["serve", "--port", "0", "--ready-file", str(ready), *flags]
        self.process = warm.fork([COMMAND, *given, *serve], out, err)
        self.is_told = False
        try:
            until(lambda: ready.exists() or self.process.poll() is not None, "it serves")
            assert ready.exists(), err.read_text()
            self.url = ready.read_text().strip()
            yield self
        finally:
            if self.process.poll() is None and not self.is_told:
                self.stop()
            self.process.wait(BOUND)
            self.output, self.log = out.read_text(), err.read_text()

    def signal(self, number: int) -> None:
        os.kill(self.process.pid, number)

    def stop(self) -> None:
        """Told once: told again, at its end, it would be ended by the signal."""
        self.is_told = True
        self.signal(signal.SIGTERM)

    def descriptors(self) -> int:
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def resident(self) -> int:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(next(line for line in status.splitlines() if "VmRSS" in line).split()[1]) * 1024

    def said(self) -> str:
        """Its log so far."""
        return (self.root / "err").read_text()

    def loaded(self) -> list[bytes]:
        data = self.root / "data" / "sequence"
        return [each.read_bytes() for each in data.rglob("*.tsfile")]


@pytest.fixture
def server(tmp_path):
    return Process(tmp_path)


def tus(server, token=None, **headers):
    given = {"Tsferry-Sender": A} | headers
    given |= {"Authorization": f"Bearer {token}"} if token else {}
    return TusClient(f"{server.url}/sync/v1/files", headers=given)


def test_it_says_where_it_listens_and_stops_cleanly_on_sigterm(server):
    with server.serving():
        assert requests.get(f"{server.url}/readyz", timeout=BOUND).ok
    assert server.process.returncode == 0
    assert server.output == f"listening on {server.url}\n"
    assert not (server.root / "schema" / "operator.token").exists()


def test_sigint_is_a_clean_stop_too(server):
    with server.serving():
        server.signal(signal.SIGINT)
        assert server.process.wait(BOUND) == 0


@pytest.mark.few(1)
@pytest.mark.parametrize("chunk", [2**18, 5_000_000, None])
def test_a_stock_tus_client_uploads_a_file(server, tmp_path, chunk):
    file = tmp_path / "upload"
    file.write_bytes(BIG)
    more = {} if chunk is None else {"chunk_size": chunk}
    with server.serving():
        uploader = tus(server).uploader(
            str(file), metadata={"path": path_of(1), "md5": hashlib.md5(BIG).hexdigest()}, **more
        )
        uploader.upload()
        assert uploader.offset == len(BIG)
        assert server.loaded() == [BIG]


def test_a_stock_tus_client_resumes_after_the_server_was_killed(server, tmp_path):
    file = tmp_path / "upload"
    file.write_bytes(BIG)
    with server.serving():
        uploader = tus(server).uploader(
            str(file), metadata={"path": path_of(1)}, chunk_size=2**20, upload_checksum=True
        )
        uploader.upload(stop_at=5 * 2**20)
        upload = uploader.url.rpartition("/")[2]
        server.signal(signal.SIGKILL)
        server.process.wait()
    with server.serving():
        where = f"{server.url}/sync/v1/files/{upload}"
        again = tus(server).uploader(str(file), url=where, chunk_size=2**20)
        assert again.offset == 5 * 2**20
        again.upload()
        assert server.loaded() == [BIG]


def test_a_stock_tus_client_needs_the_token_where_there_is_one(server, tmp_path):
    from tusclient.exceptions import TusCommunicationError

    file = tmp_path / "upload"
    file.write_bytes(BIG[:0] + build({"root.sg.d": {"s": [(1, 1)]}}))
    with server.serving():
        token = server.cli("token", "create", "--sender", A).strip()
        for wrong in (None, "wrong"):
            with pytest.raises(TusCommunicationError):
                tus(server, wrong).uploader(str(file), metadata={"path": path_of(1)}).upload()
        tus(server, token).uploader(str(file), metadata={"path": path_of(1)}).upload()
        assert len(server.loaded()) == 1


def test_everything_works_behind_tls_with_a_private_certificate(tmp_path):
    cert, key = make_certificate(tmp_path, "127.0.0.1")
    server = Process(tmp_path, f"listen.tls_cert={cert}", f"listen.tls_key={key}")
    content = build({"root.sg.d": {"s": [(1, 1)]}})
    with server.serving():
        assert server.url.startswith("https://")
        session = requests.Session()
        session.trust_env = False
        session.verify = str(cert)
        session.headers = {"Tsferry-Sender": A, "Tus-Resumable": "1.0.0"}
        metadata = "path cGF0aA=="
        answer = session.post(
            f"{server.url}/sync/v1/files",
            headers={"Upload-Length": "1", "Upload-Metadata": metadata},
            timeout=BOUND,
        )
        assert answer.status_code == 400  # no path of ours, but understood
        import base64

        metadata = f"path {base64.b64encode(path_of(1).encode()).decode()}"
        answer = session.post(
            f"{server.url}/sync/v1/files",
            headers={"Upload-Length": str(len(content)), "Upload-Metadata": metadata},
            timeout=BOUND,
        )
        where = requests.compat.urljoin(answer.url, answer.headers["Location"])
        answer = session.patch(
            where,
            data=content,
            headers={"Upload-Offset": "0", "Content-Type": "application/offset+octet-stream"},
            timeout=BOUND,
        )
        assert answer.status_code == 204
        assert server.loaded() == [content]
        assert '"files": 1' in server.cli("status", "--json")
        host, port = server.url.removeprefix("https://").split(":")
        with socket.create_connection((host, int(port)), timeout=BOUND) as plain:
            plain.sendall(b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n")
            assert plain.recv(1000).startswith(b"HTTP/1.1 400")
        # SIGHUP: the new certificate is served without a stop.
        other = tmp_path / "other"
        other.mkdir()
        for new, old in zip(make_certificate(other, "127.0.0.1"), (cert, key), strict=True):
            old.write_bytes(new.read_bytes())
        server.signal(signal.SIGHUP)

        def renewed() -> bool:
            try:
                return requests.get(
                    f"{server.url}/healthz", verify=str(other / "cert.pem"), timeout=BOUND
                ).ok
            except requests.exceptions.SSLError:
                return False

        until(renewed, "the new certificate is served")
    assert server.process.returncode == 0


def test_a_certificate_that_was_exchanged_without_a_reload_is_no_end_of_the_one_in_use(tmp_path):
    authority = Authority(tmp_path / "plant")  # of two days, as what is behind the first of them
    days = [(datetime.datetime.now(datetime.UTC) + datetime.timedelta(each)) for each in (1, 300)]
    ends = [f"{each:%Y%m%d%H%M%SZ}" for each in days]
    first, second = (
        authority.issue(f"d{each}", "IP:127.0.0.1", ends=each, usage="serverAuth") for each in ends
    )
    cert, key = tmp_path / "server.pem", tmp_path / "server.key"

    def put(pair):
        cert.write_bytes(pair[0].read_bytes() + authority.ca.read_bytes())
        key.write_bytes(pair[1].read_bytes())

    def concerns():
        found = json.loads(server.cli("status", "--json"))
        measures = requests.get(f"{server.url}/metrics", verify=authority.ca, timeout=BOUND).text
        line = re.search(r"\ntsferry_receiver_certificate_expiry_timestamp_seconds (.*)", measures)
        assert float(line[1]) == found["certificate_until"]
        return found["certificate_until"] - time.time(), " ".join(found["concerns"])

    put(first)
    server = Process(tmp_path, f"listen.tls_cert={cert}", f"listen.tls_key={key}")
    with server.serving():
        assert concerns()[1].startswith("the certificate ends on ")
        put(second)
        left, said = concerns()
        assert "is not what is in use of it: a reload takes it" in said
        assert left < 1.5 * 86400
        key.write_bytes(first[1].read_bytes())
        server.signal(signal.SIGHUP)  # no pair: it stays as it was
        time.sleep(0.5)
        left, said = concerns()
        assert "or the log says why it does not" in said
        assert left < 1.5 * 86400
        put(second)
        server.signal(signal.SIGHUP)
        until(lambda: concerns()[0] > 1.5 * 86400, "the second is in use")
        assert "listen.tls_cert" not in concerns()[1]
        cert.write_bytes(first[0].read_bytes())
        assert "shows another certificate than listen.tls_cert" in server.cli("status", code=4)
        put(second)


def test_a_second_server_on_the_same_directories_is_refused(server):
    with server.serving():
        error = server.cli("serve", "--port", "0", code=5)
        assert str(server.process.pid) in error
        assert requests.get(f"{server.url}/healthz", timeout=BOUND).ok


def test_a_port_that_is_taken_ends_with_a_code_that_the_unit_tries_again(server):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert "cannot listen" in server.cli("serve", "--port", str(port), code=5)


def test_off_loopback_the_server_wants_tls_or_insecure(server):
    assert "insecure" in server.cli("serve", "--host", "0.0.0.0", "--port", "0", code=2)


def test_ipv6_works(server):
    with server.serving("--host", "::1"):
        assert server.url.startswith("http://[::1]:")
        assert requests.get(f"{server.url}/healthz", timeout=BOUND).ok
        assert "running" in server.cli("status")


def test_all_addresses_take_ipv4_and_ipv6(server):
    server.settings += ['--set=listen.allow=["127.0.0.0/8", "::1"]']
    with server.serving("--host", "::", "--insecure"):
        port = server.url.rpartition(":")[2]
        for host in ("127.0.0.1", "[::1]"):
            assert requests.get(f"http://{host}:{port}/healthz", timeout=BOUND).ok
        assert "running" in server.cli("status")


def test_a_stop_takes_nothing_back_that_was_answered(server):
    content = build({"root.sg.d": {"s": [(1, 1)]}}, pad_to=8 * 2**20)
    with server.serving():
        path = base64.b64encode(path_of(1).encode()).decode()
        headers = {
            "Tsferry-Sender": A,
            "Tus-Resumable": "1.0.0",
            "Upload-Length": str(len(content)),
            "Upload-Metadata": f"path {path}",
            "Content-Type": "application/offset+octet-stream",
        }
        url = f"{server.url}/sync/v1/files"
        answer = requests.post(url, data=content, headers=headers, timeout=BOUND)
        server.stop()
    assert answer.status_code == 201
    assert server.process.returncode == 0
    assert server.loaded() == [content]


def test_a_waiting_call_does_not_hold_up_the_stop(server):
    with server.serving():
        session = requests.Session()
        session.headers = {"Tsferry-Sender": A}
        body = {"protocol": 1, "version": "1", "sender": A, "partition_interval_ms": 604_800_000}
        engine = session.post(f"{server.url}/sync/v1/check", json=body, timeout=BOUND).json()
        task = f"{server.url}/sync/v1/tasks/{'1' * 32}"
        session.put(task, json={"engine": engine["engine"]}, timeout=BOUND)
        host, port = server.url.removeprefix("http://").split(":")
        waiting = http.client.HTTPConnection(host, int(port), timeout=BOUND)
        waiting.request("GET", f"/sync/v1/tasks/{'1' * 32}?wait=30", headers={"Tsferry-Sender": A})
        begin = time.monotonic()
        server.stop()
        assert waiting.getresponse().status == 200
        assert server.process.wait(BOUND) == 0
        assert time.monotonic() - begin < 25  # the call would wait for 30


def test_attacks_grow_neither_memory_nor_descriptors(server):
    bad = [
        b"POST /sync/v1/check HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n123",
        b"GET /" + b"a" * 1_000_000 + b" HTTP/1.1\r\n\r\n",
        b"POST /v1/tokens HTTP/1.1\r\nContent-Length: 60000\r\n\r\n" + b"x" * 60_000,
        b"GET /healthz HTTP/1.1\r\n" + b"".join(b"h%d: v\r\n" % n for n in range(10_000)),
        b"POST /sync/v1/check HTTP/1.1\r\nTransfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\n",
        b"\x16\x03\x01" * 1000,
        b"",
    ]

    def attack() -> None:
        host, port = server.url.removeprefix("http://").split(":")
        for sent in bad:
            with (
                socket.create_connection((host, int(port)), timeout=BOUND) as sock,
                contextlib.suppress(OSError),
            ):
                sock.sendall(sent)

    with server.serving():
        for _ in range(20):
            attack()
        until(lambda: server.descriptors() < 40)
        descriptors, memory = server.descriptors(), server.resident()
        for _ in range(100):
            attack()
        until(lambda: server.descriptors() <= descriptors, "the descriptors are given back")
        assert server.resident() < memory + 30 * 2**20
        assert requests.get(f"{server.url}/readyz", timeout=BOUND).ok
    assert server.process.returncode == 0
    assert "Traceback" not in server.log


def test_sighup_reads_the_configuration_again_and_ends_nothing(server):
    def limit() -> str:
        answer = requests.options(f"{server.url}/sync/v1/files", timeout=BOUND)
        return answer.headers["Tus-Max-Size"]

    with server.serving():
        url, good = server.url, server.config.read_text()
        content = build({"root.sg.d1": {"s1": [(1, 1)]}})
        for wrong in ("no toml [", good.replace("[limits]\n", "[limits]\nmax_file_bytes = 0\n")):
            server.config.write_text(wrong)
            told = server.said().count("the configuration stays as it was")
            server.signal(signal.SIGHUP)
            until(
                lambda told=told: server.said().count("the configuration stays as it was") > told,
                "the word of it",
            )
            assert limit() == str(64 * 2**30)
        changed = good.replace("[limits]\n", "[limits]\nmax_file_bytes = 5000\n")
        server.config.write_text(changed)
        server.signal(signal.SIGHUP)
        until(lambda: limit() == "5000", "the new limit holds")
        assert server.url == url
        given = {"path": path_of(1)}
        tus(server).uploader(file_stream=io.BytesIO(content), metadata=given).upload()
        assert server.loaded() == [content]
        assert '"files": 1' in server.cli("status", "--json")
        for _ in range(5):
            server.signal(signal.SIGHUP)
        assert limit() == "5000"
    assert server.process.returncode == 0
    assert server.output == f"listening on {server.url}\n"


@pytest.mark.slow
def test_commands_wait_for_a_server_that_reads_its_configuration_again(server):
    with server.serving():
        good = server.config.read_text()
        config = load(ReceiverConfig, file=server.config, env_prefix="T_", environ={}, flags={})
        kept = OperatorClient(config.value)
        for size in range(5000, 5003):
            changed = good.replace("[limits]\n", f"[limits]\nmax_file_bytes = {size}\n")
            server.config.write_text(changed)
            server.signal(signal.SIGHUP)
            seen = ""
            while seen != str(size):
                for client in (OperatorClient(config.value), kept):
                    client.ask("GET", "/v1/storage", StorageView)
                answer = requests.options(f"{server.url}/sync/v1/files", timeout=BOUND)
                seen = answer.headers["Tus-Max-Size"]
    with pytest.raises(NotRunningError):
        OperatorClient(config.value)


def test_sighup_in_the_first_moments_ends_nothing(server):
    with server.serving():
        pass
    ready = server.root / "ready"
    ready.unlink(missing_ok=True)
    process = subprocess.Popen(
        server.command("serve", "--port", "0", "--ready-file", str(ready)),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        blocked = Path(f"/proc/{process.pid}/status")
        until(  # who looks too seldom sees it serve
            lambda: "SigBlk:\t0000000000000001" in blocked.read_text() or ready.exists(),
            "it holds SIGHUP back",
        )
        process.send_signal(signal.SIGHUP)
        assert process.stdout.readline().startswith(b"listening on")
    finally:
        process.terminate()
        process.communicate(timeout=BOUND)
    assert process.returncode == 0
