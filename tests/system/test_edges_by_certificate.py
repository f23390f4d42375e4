"""A real edge and a real centre with certificates alone: no token is made anywhere."""

from __future__ import annotations

import os
import signal

import pytest

from tests.support.authority import Authority
from tests.support.procs import children, wait_until
from tests.system.sender.test_daemon import daemon
from tests.system.sender.test_rounds import call, in_sync

NAME = "edge7.plant.example"


@pytest.fixture
def authority(tmp_path):
    return Authority(tmp_path / "plant")


@pytest.fixture
def https(authority, centre, monkeypatch):
    """A centre that wants certificates; its commands on this machine have none."""
    pair = authority.issue("centre", "IP:127.0.0.1", usage="serverAuth")
    for key, value in {
        "TLS_CERT": pair[0],
        "TLS_KEY": pair[1],
        "CLIENT_CA": authority.ca,
        "CLIENT_CRL": authority.crl(),
        "CLIENT_AUTH": "required",
    }.items():
        monkeypatch.setenv(f"TSFERRY_RECEIVER_LISTEN__{key}", str(value))
    return centre


def put(pair, cert, key):
    for source, target in zip(pair, (cert, key), strict=True):
        os.replace(source, target)


@pytest.mark.slow
def test_an_edge_sends_by_its_certificate_and_goes_on_with_the_next_one_without_a_restart(
    authority, https, make_edge, tmp_path
):
    edge = make_edge(https.start())
    cert, key = tmp_path / "edge.pem", tmp_path / "edge.key"
    put(authority.issue("first", f"DNS:{NAME.upper()}"), cert, key)
    shown = (f"ca_file={authority.ca}", f"client_cert={cert}", f"client_key={key}")
    settings = [f"receiver[0].{each}" for each in shown]
    asks = [word for each in settings for word in ("--set", each)]
    scope = ("--scope", f"{edge.sg}.**")
    create = ("token", "create", "--certificate", NAME, "--sender", edge.uuid, *scope)
    with children(tmp_path) as processes:
        config = edge.write_config()
        nobody = call(config, *asks, "check")
        assert nobody.returncode == 4
        assert f"no name of the certificate is bound here ({NAME})" in nobody.stdout + nobody.stderr
        bound = https.call(*create)
        assert bound["token"] == ""

        child, _ = daemon(
            processes, edge, "daemon.period=1h", "daemon.watch_settle=100ms", *settings
        )
        edge.write(1)
        wait_until(lambda: edge.listed == [edge.path(1)], "the load")

        authority.revoke(cert)
        put(authority.issue("second", f"DNS:{NAME}"), cert, key)
        authority.crl()
        https.server.signal(signal.SIGHUP)
        edge.write(2)
        wait_until(lambda: len(edge.listed) == 2, "the load with the next one")
        in_sync(edge, https)
        assert "client_cert     ends" in call(config, *asks, "status").stdout

        without = call(config, *asks[:2], "check")
        assert without.returncode == 4
        assert "without a client certificate nobody" in without.stdout + without.stderr
        https.call("token", "revoke", bound["id"])
        refused = call(config, *asks, "check")
        assert "is bound here" in refused.stdout + refused.stderr
        assert child.running
        assert child.terminate() == 0
    assert https.call("token", "list")["tokens"] == []
