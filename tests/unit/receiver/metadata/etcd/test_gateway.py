"""The client of etcd: what it asks, whom it asks, and what it makes of refusals."""

import json
import subprocess
import threading
import time
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace

import pytest

from common.config import Secret
from common.errors import (
    ConfigError,
    ForbiddenError,
    ProtocolError,
    TooLargeError,
    TsferryError,
    UnauthorizedError,
    UnreachableError,
)
from receiver.metadata.etcd.gateway import EtcdClient
from receiver.metadata.etcd.messages import MAX_OPERATIONS, Compare, Delete, Get, Put, prefix_end
from receiver.metadata.model.errors import CompactedError, UnknownOutcomeError
from tests.support.etcd import Settings, running_etcd
from tests.support.procs import wait_until


@pytest.fixture
def client(shared_etcd):
    client = EtcdClient(shared_etcd.settings())
    yield client
    client.close()


@pytest.fixture
def at(shared_etcd):
    prefix = shared_etcd.settings().prefix.encode()
    return lambda name: prefix + b"/" + name


def put(client, key, value):
    return client.transaction([], [Put(key, value)]).revision


# -- keys ----------------------------------------------------------------------------------------


def test_bytes_of_any_kind_come_back_as_they_were(client, at):
    for value in (b"", b"\x00\xff", bytes(range(256)), "é😀".encode()):
        put(client, at(value), value)
        (found,) = client.get(Get(at(value))).keys
        assert (found.key, found.value, found.version) == (at(value), value, 1)


def test_a_key_is_read_at_any_revision(client, at):
    key = at(b"a")
    first = put(client, key, b"1")
    second = put(client, key, b"2")
    assert client.get(Get(key, revision=first)).keys[0].value == b"1"
    (newest,) = client.get(Get(key)).keys
    assert (newest.value, newest.created, newest.changed, newest.version) == (
        b"2",
        first,
        second,
        2,
    )
    assert client.get(Get(key, revision=first - 1)).keys == ()
    with pytest.raises(UnreachableError, match="future"):
        client.get(Get(key, revision=second + 10**6))


def test_a_range_comes_in_pages(client, at):
    for number in range(5):
        put(client, at(b"p/%d" % number), b"x")
    end = prefix_end(at(b"p/"))
    page = client.get(Get(at(b"p/"), end, limit=3))
    assert (len(page.keys), page.more) == (3, True)
    page = client.get(Get(page.keys[-1].key + b"\0", end, limit=3))
    assert [each.key[-1:] for each in page.keys] == [b"3", b"4"]
    assert not page.more
    last = client.get(Get(at(b"p/"), end, limit=1, descending=True, keys_only=True)).keys[0]
    assert (last.key, last.value) == (at(b"p/4"), b"")


@pytest.mark.parametrize(
    ("prefix", "end"),
    [
        (b"a", b"b"),
        (b"a\xff", b"b"),
        (b"a\xff\xff", b"b"),
        (b"\xff", b"\0"),
        (b"", b"\0"),
        (b"/", b"0"),
    ],
)
def test_the_end_of_a_prefix_is_behind_all_of_its_keys(prefix, end):
    assert prefix_end(prefix) == end


def test_a_transaction_is_done_if_its_conditions_hold_and_not_otherwise(client, at):
    key, other = at(b"a"), at(b"b")
    new = Compare(key, created=0)
    done = client.transaction([new], [Put(key, b"1"), Put(other, b"1")], [Get(key)])
    assert (done.succeeded, done.found) == (True, ())
    again = client.transaction([new], [Put(key, b"2")], [Get(key), Get(other)])
    assert not again.succeeded
    assert [each.keys[0].value for each in again.found] == [b"1", b"1"]
    same = Compare(key, changed=done.revision)
    removed = client.transaction([same, Compare(other, created=done.revision)], [
        Delete(at(b""), prefix_end(at(b""))), Get(key),
    ])  # fmt: skip
    assert removed.succeeded
    assert removed.found[0].keys == ()


def test_more_than_a_request_may_hold_is_too_large(client, at):
    puts = [Put(at(b"%d" % number), b"x") for number in range(MAX_OPERATIONS + 1)]
    client.transaction([], puts[:-1])
    for operations in (puts, [Put(at(b"a"), b"x" * 1_600_000)], [Put(at(b"a"), b"x" * 3_000_000)]):
        with pytest.raises(TooLargeError):
            client.transaction([], operations)


def test_a_request_that_makes_no_sense_is_a_fault_of_ours(client, at):
    with pytest.raises(ProtocolError, match="duplicate key"):
        client.transaction([], [Put(at(b"a"), b"1"), Put(at(b"a"), b"2")])


# -- leases --------------------------------------------------------------------------------------


def test_keys_go_with_their_lease(client, at):
    lease = client.grant(60)
    client.transaction([], [Put(at(b"a"), b"x", lease)])
    assert client.get(Get(at(b"a"))).keys[0].lease == lease
    assert client.keep_alive(lease) == 60
    client.revoke(lease)
    assert client.get(Get(at(b"a"))).keys == ()
    assert client.keep_alive(lease) == 0
    client.revoke(lease)


# -- compaction ----------------------------------------------------------------------------------


def test_compacted_is_an_error_of_its_own(own_etcd):
    client = EtcdClient(own_etcd.settings())
    first = put(client, b"a", b"1")
    put(client, b"a", b"2")
    own_etcd.compact()
    for question in (
        lambda: client.get(Get(b"a", revision=first)),
        lambda: client.transaction([], [Get(b"a", revision=first)]),
    ):
        with pytest.raises(CompactedError):
            question()
    assert client.get(Get(b"nothing")).keys == ()


# -- several endpoints ---------------------------------------------------------------------------


@pytest.mark.slow
def test_endpoints_are_tried_in_turn(own_etcd):
    nobody = "http://127.0.0.1:1"
    client = EtcdClient(own_etcd.settings(endpoints=(nobody, own_etcd.url + "/", nobody)))
    put(client, b"a", b"1")
    assert client.get(Get(b"a")).keys[0].value == b"1"
    own_etcd.kill()
    with pytest.raises(UnreachableError) as caught:
        put(client, b"a", b"2")
    assert caught.value.message.count("no connection") == 3
    own_etcd.start()
    put(client, b"a", b"3")


def insisted(ask):
    """What is answered: on a busy machine one answer is late, and not every one."""

    def answer():
        with suppress(UnreachableError, UnknownOutcomeError):
            return ask()

    return wait_until(answer, "an answer in time")


def test_a_write_that_may_have_arrived_is_not_sent_to_another(own_etcd, shared_etcd):
    settings = own_etcd.settings(endpoints=(own_etcd.url, shared_etcd.url), timeout=0.3)
    client = EtcdClient(settings)
    key = f"{settings.prefix}/once".encode()
    insisted(lambda: put(client, b"warm", b"up"))
    own_etcd.pause()
    with pytest.raises(UnknownOutcomeError):
        put(client, key, b"x")
    own_etcd.resume()
    elsewhere = EtcdClient(shared_etcd.settings())
    assert elsewhere.get(Get(key)).keys == ()


def test_a_read_goes_on_to_the_next(own_etcd, shared_etcd):
    settings = own_etcd.settings(endpoints=(own_etcd.url, shared_etcd.url), timeout=0.3)
    elsewhere = EtcdClient(shared_etcd.settings())
    key = f"{settings.prefix}/there".encode()
    put(elsewhere, key, b"x")
    client = EtcdClient(settings)
    own_etcd.pause()
    assert insisted(lambda: client.get(Get(key))).keys[0].value == b"x"
    own_etcd.resume()


# -- users ---------------------------------------------------------------------------------------


def allow(etcd):
    """Users root, with all rights, and guest, with none."""
    etcd.call("/v3/auth/user/add", name="root", password="secret")
    etcd.call("/v3/auth/role/add", name="root")
    etcd.call("/v3/auth/user/grant", user="root", role="root")
    etcd.call("/v3/auth/user/add", name="guest", password="guest")
    etcd.call("/v3/auth/enable")


def test_users_log_in_and_the_others_are_told_why_not(own_etcd):
    early = EtcdClient(own_etcd.settings(user="root", password=Secret("secret")))
    put(early, b"a", b"1")  # a server without users takes everybody
    allow(own_etcd)
    client = EtcdClient(own_etcd.settings(user="root", password=Secret("secret")))
    put(client, b"a", b"2")
    assert client.get(Get(b"a")).keys[0].value == b"2"
    assert client.keep_alive(client.grant(30)) == 30
    with pytest.raises(UnauthorizedError, match="root") as caught:
        put(EtcdClient(own_etcd.settings(user="root", password=Secret("wrong"))), b"a", b"3")
    assert "wrong" not in caught.value.message
    with pytest.raises(UnauthorizedError, match=r"metadata\.etcd\.user"):
        EtcdClient(own_etcd.settings()).get(Get(b"a"))
    with pytest.raises(ForbiddenError, match="permission denied"):
        EtcdClient(own_etcd.settings(user="guest", password=Secret("guest"))).get(Get(b"a"))
    assert client.get(Get(b"a")).keys[0].value == b"2"


@pytest.mark.slow
def test_a_token_that_ended_is_made_anew(own_etcd):
    allow(own_etcd)
    client = EtcdClient(own_etcd.settings(user="root", password=Secret("secret")))
    put(client, b"a", b"1")
    own_etcd.kill()
    own_etcd.start()  # its tokens are gone
    put(client, b"a", b"2")
    assert client.get(Get(b"a")).keys[0].version == 2


@pytest.fixture
def jwt_etcd(tmp_path):
    """One whose tokens are JSON, and hold for the users and roles as they were."""
    key, public = tmp_path / "jwt.pem", tmp_path / "jwt.pub"
    for arguments in (
        ("genrsa", "-out", str(key), "2048"),
        ("rsa", "-in", str(key), "-pubout", "-out", str(public)),
    ):
        subprocess.run(["openssl", *arguments], check=True, capture_output=True)
    token = f"jwt,pub-key={public},priv-key={key},sign-method=RS256,ttl=2s"
    with running_etcd(tmp_path / "etcd", "--auth-token", token) as etcd:
        yield etcd


def test_a_json_token_is_made_anew_when_users_or_roles_change(jwt_etcd):
    allow(jwt_etcd)
    client = EtcdClient(jwt_etcd.settings(user="root", password=Secret("secret")))
    put(client, b"a", b"1")
    lease = client.grant(60)
    calls = (
        lambda: put(client, b"a", b"2"),
        lambda: client.get(Get(b"a")),
        lambda: client.transaction([Compare(b"a", created=0)], [], [Get(b"a")]),
        lambda: client.grant(60),
        lambda: client.keep_alive(lease),
        lambda: client.revoke(client.grant(60)),
    )
    for number, call in enumerate(calls):
        root = jwt_etcd.call("/v3/auth/authenticate", name="root", password="secret")["token"]
        jwt_etcd.call("/v3/auth/role/add", token=root, name=f"role-{number}")  # a new revision
        call()
    time.sleep(2.5)  # the token itself has ended
    put(client, b"a", b"3")
    assert client.get(Get(b"a")).keys[0].value == b"3"


@pytest.mark.parametrize(
    ("status", "code", "message"),
    [
        (400, 3, "etcdserver: revision of auth store is old"),
        (401, 16, "etcdserver: invalid auth token"),
        (500, 2, "auth: revision in header is old"),
        (400, 3, "auth: invalid auth token"),
    ],
)
def test_any_answer_about_the_token_makes_it_log_in_again(status, code, message):
    asked = []

    class Old(Answer):
        def do_POST(self):
            asked.append(self.path)
            good = asked.count("/v3/auth/authenticate") > 1
            if self.path == "/v3/auth/authenticate":
                self.status, self.body = 200, b'{"token": "t"}'
            elif good:
                self.status, self.body = 200, b'{"header": {"revision": "7"}}'
            else:
                self.status = status
                self.body = json.dumps({"message": message, "code": code}).encode()
            super().do_POST()

    with ThreadingHTTPServer(("127.0.0.1", 0), Old) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        client = EtcdClient(Settings((url,), user="u", password=Secret("p")))
        assert put(client, b"a", b"1") == 7
        assert len(asked) == 4
        client.close()
        server.shutdown()


# -- what is no etcd -----------------------------------------------------------------------------


class Answer(BaseHTTPRequestHandler):
    status, body = 200, b""
    disable_nagle_algorithm = True

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        if self.status:
            self.send_response(self.status)
            self.send_header("Content-Length", str(len(self.body)))
            self.send_header("Location", "http://127.0.0.1:1/elsewhere")
            self.end_headers()
            self.wfile.write(self.body)
        self.close_connection = True

    def log_message(self, *_):
        pass


@pytest.mark.parametrize(
    ("status", "body", "read", "write"),
    [
        (404, b"Not Found", ProtocolError, ProtocolError),
        (302, b"", ProtocolError, ProtocolError),
        (200, b"<html>", UnreachableError, UnknownOutcomeError),
        (200, b"[]", UnreachableError, UnknownOutcomeError),
        (502, b"bad gateway", UnreachableError, UnknownOutcomeError),
        (503, b'{"message": "etcdserver: leader changed", "code": 14}', UnreachableError,
         UnknownOutcomeError),
        (504, b'{"message": "context deadline exceeded", "code": 4}', UnreachableError,
         UnknownOutcomeError),
        (429, b'{"message": "etcdserver: too many requests", "code": 8}', UnreachableError,
         UnreachableError),
        (0, b"", UnreachableError, UnknownOutcomeError),
    ],
)  # fmt: skip
def test_what_is_no_answer_of_etcd_is_an_error_and_says_whether_a_write_may_be_done(
    status, body, read, write
):
    handler = type("This", (Answer,), {"status": status, "body": body})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.005,), daemon=True).start()
        client = EtcdClient(Settings((f"http://127.0.0.1:{server.server_port}",), timeout=5.0))
        for error, call in (
            (read, lambda: client.get(Get(b"a"))),
            (write, lambda: client.transaction([], [Put(b"a", b"x")])),
        ):
            with pytest.raises(TsferryError) as caught:
                call()
            assert type(caught.value) is error
        client.close()
        server.shutdown()


def test_files_that_cannot_be_read_are_named(tmp_path):
    gone = tmp_path / "gone.pem"
    for files in ({"ca_cert": gone}, {"cert": gone, "key": gone}):
        client = EtcdClient(Settings(("https://127.0.0.1:1",), **files))
        with pytest.raises(ConfigError, match=r"gone\.pem"):
            client.get(Get(b"a"))


# -- TLS -----------------------------------------------------------------------------------------


@pytest.fixture
def certificates(tmp_path):
    """One that signs itself, for both ends."""
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"),
            *("-nodes", "-days", "2", "-subj", "/CN=etcd", "-keyout", str(key), "-out", str(cert)),
            *("-addext", "subjectAltName=IP:127.0.0.1"),
            *("-addext", "extendedKeyUsage=serverAuth,clientAuth"),
        ],
        check=True,
        capture_output=True,
    )
    return SimpleNamespace(ca=cert, cert=cert, key=key)


def test_both_ends_of_tls_are_checked(tmp_path, certificates):
    options = (
        "--cert-file", str(certificates.cert), "--key-file", str(certificates.key),
        "--trusted-ca-file", str(certificates.ca), "--client-cert-auth",
    )  # fmt: skip
    with running_etcd(tmp_path / "etcd", *options, scheme="https") as etcd:
        ours = {"cert": certificates.cert, "key": certificates.key}
        client = EtcdClient(etcd.settings(ca_cert=certificates.ca, **ours))
        put(client, b"a", b"1")
        assert client.get(Get(b"a")).keys[0].value == b"1"
        with pytest.raises(TsferryError, match=r"ca_cert|certificate"):
            EtcdClient(etcd.settings(**ours)).get(Get(b"a"))
        with pytest.raises(UnreachableError):
            EtcdClient(etcd.settings(ca_cert=certificates.ca)).get(Get(b"a"))
        plain = etcd.settings(endpoints=(etcd.url.replace("https", "http"),))
        with pytest.raises(TsferryError):
            EtcdClient(plain).get(Get(b"a"))
