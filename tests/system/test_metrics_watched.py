"""A centre and an edge as processes, watched by a real Prometheus: scraped, asked, alerted on."""

from __future__ import annotations

import json
import re
import ssl
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from receiver.cli.commands import cli
from sender.config import ReceiverEntry
from tests.support.architecture import ROOT
from tests.support.centre import COMMAND as RECEIVER
from tests.support.edge import Edge
from tests.support.ports import free_port
from tests.support.procs import children, wait_until
from tests.support.prometheus import needs_prometheus, needs_promtool, prometheus, promtool
from tests.support.scraped import Scraped
from tests.support.web import make_certificate
from tests.system.sender.test_rounds import COMMAND as SENDER

ALERTS, DASHBOARD = ROOT / "conf" / "alerts.yml", ROOT / "conf" / "dashboard.json"
ABSENT = {
    "tsferry_receiver_storage_log_behind_timestamp_seconds",
    "tsferry_receiver_background_oldest_waiting_timestamp_seconds",
    "tsferry_receiver_background_oldest_running_timestamp_seconds",
    "tsferry_receiver_follow_behind_seconds",
    "tsferry_receiver_hooks_failing_since_timestamp_seconds",
    "tsferry_sender_hooks_failing_since_timestamp_seconds",
    "tsferry_sender_failing_since_timestamp_seconds",
    "tsferry_sender_client_certificate_expiry_timestamp_seconds",
    "tsferry_edge_client_certificate_expiry_timestamp_seconds",
    "tsferry_edge_clone_refused_timestamp_seconds",
    "tsferry_receiver_client_ca_expiry_timestamp_seconds",
    "tsferry_receiver_client_crl_expiry_timestamp_seconds",
    "tsferry_receiver_oldest_verification_timestamp_seconds",
}
"""What has no value where all is well, where nothing was verified yet, or where there is no
certificate of a client or node that only reads."""


class Watched:
    """A receiver with TLS, tokens, copies and a port for measures; an edge with a daemon."""

    def __init__(self, root: Path, started: Any) -> None:
        self.root, self.port, self.open_port, self.edge_port = root, *(free_port() for _ in "123")
        root.mkdir(parents=True, exist_ok=True)
        self.cert, key = make_certificate(root, "127.0.0.1")
        self.config = root / "receiver.toml"
        for each in ("data", "store", "backup"):
            (root / each).mkdir()
        self.config.write_text(
            f'schema_dir = "{root / "schema"}"\ndata_dirs = ["{root / "data"}"]\n'
            f'[listen]\nport = {self.port}\ntls_cert = "{self.cert}"\ntls_key = "{key}"\n'
            "[limits]\nmin_free_bytes = 4096\n"
            f'[metrics]\nlisten = "127.0.0.1:{self.open_port}"\n'
            f'[storage]\nurl = "file://{root / "store"}"\nlag = "1s"\n'
        )
        ready = root / "ready"
        server = started.start(
            [RECEIVER, "--config", str(self.config), "serve", "--ready-file", str(ready)],
            forked=True,
        )
        server.until(ready.exists, "listening")
        url = ready.read_text().strip()
        self.edge = Edge(root / "edge", url)
        made = self.call(
            "token", "create", "--sender", self.edge.uuid, "--note", "south", "--expires", "60d"
        )
        self.token = self.call("token", "create", "--role", "reader")["token"]
        entry = ReceiverEntry(name="dc1", url=url, ca_file=self.cert)
        self.edge.with_settings(receivers=(entry,))
        file = self.edge.write_config(label="plant 7")
        text = file.read_text().replace(
            f'url = "{url}"', f'url = "{url}"\nca_file = "{self.cert}"\ntoken = "{made["token"]}"'
        )
        file.write_text(
            f'{text}[daemon]\nheartbeat = "1s"\nperiod = "1s"\n'
            f'[metrics]\nlisten = "127.0.0.1:{self.edge_port}"\n'
            f'textfile = "{root / "tsferry.prom"}"\ntextfile_every = "1s"\n'
        )
        self.edge.write(1)
        self.daemon = started.start([SENDER, "--config", str(file), "run"], forked=True)
        self.daemon.until(lambda: self.edge.listed, "the first load")
        self.call("backup", str(root / "backup"))

    def call(self, *arguments: str) -> Any:
        return json.loads(self.said(*arguments, "--json"))

    def said(self, *arguments: str) -> str:
        done = CliRunner().invoke(cli, ["--config", str(self.config), *arguments])
        assert done.exit_code == 0, (done.output, done.exception)
        return done.stdout

    def scrape(self, token: str | None) -> bytes:
        """From the server, by TLS."""
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        request = urllib.request.Request(f"https://127.0.0.1:{self.port}/metrics", headers=headers)
        context = ssl.create_default_context(cafile=str(self.cert))
        with urllib.request.urlopen(request, timeout=60, context=context) as answer:
            return answer.read()

    def jobs(self) -> list[dict[str, Any]]:
        """As docs/metrics.md has them."""
        return [
            {
                "job_name": "tsferry",
                "scheme": "https",
                "authorization": {"credentials": self.token},
                "tls_config": {"ca_file": str(self.cert)},
                "static_configs": [{"targets": [f"127.0.0.1:{self.port}"]}],
            },
            {
                "job_name": "edges",
                "static_configs": [{"targets": [f"127.0.0.1:{self.edge_port}"]}],
            },
        ]


@pytest.fixture(scope="module")
def watched(tmp_path_factory):
    root = tmp_path_factory.mktemp("watched")
    with children(root) as started:
        yield Watched(root / "pair", started)


def open_text(port: int) -> bytes:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
        return answer.read()


def test_measures_are_read_with_a_readers_token_and_on_a_port_of_their_own(watched):
    for token in (None, "tsf_wrong"):
        with pytest.raises(urllib.error.HTTPError, match="401"):
            watched.scrape(token)
    counted = "tsferry_edge_files", "plant 7", watched.edge.uuid
    wait_until(
        lambda: Scraped(open_text(watched.open_port)).values.get(counted) == 1,
        "what the edge says of itself",
    )
    by_token = Scraped(watched.scrape(watched.token))
    by_port = Scraped(open_text(watched.open_port))
    for found in (by_token, by_port):
        assert found["tsferry_edge_files", "plant 7", watched.edge.uuid] == 1
        assert found["tsferry_receiver_certificate_expiry_timestamp_seconds"] > 0
    assert by_port["tsferry_receiver_requests_total", "metrics", "4xx"] == 2
    textfile = watched.root / "tsferry.prom"
    for read in (lambda: open_text(watched.edge_port), textfile.read_bytes):
        wait_until(
            lambda read=read: Scraped(read())["tsferry_sender_sent_files_total", "dc1"] == 1,
            "the end of the round",
        )
        assert Scraped(read()).has("tsferry_sender_token_expiry_timestamp_seconds")


@needs_promtool
def test_promtool_finds_nothing_to_say_of_the_measures(watched):
    for text in (watched.scrape(watched.token), open_text(watched.edge_port)):
        code, said = promtool("check", "metrics", given=text)
        assert (code, said) == (0, "")


def panels() -> list[tuple[str, str]]:
    """Title and expression of each, with Grafana's variables as they would be."""
    found = json.loads(DASHBOARD.read_text())["panels"]
    return [
        (
            each["title"],
            target["expr"].replace("$edge", ".*").replace("$__rate_interval", "10s"),
        )
        for each in found
        for target in each.get("targets", ())
    ]


@needs_prometheus
@pytest.mark.slow
def test_a_real_prometheus_reads_all_that_rules_and_dashboard_ask_for(watched, tmp_path):
    with prometheus(tmp_path / "prometheus", watched.jobs(), ALERTS) as server:
        wait_until(
            lambda: all(
                server.query(f"count_over_time({name}[1m]) > 2")
                for name in ("tsferry_edge_pending_files", "tsferry_sender_rounds_total")
            ),
            "a few scrapes",
        )
        wait_until(
            lambda: all(map(server.is_healthy, ("tsferry", "edges"))), "a scrape of each in time"
        )
        asked_for = [each for each in panels() if not any(name in each[1] for name in ABSENT)]
        for title, text in asked_for:  # a rate wants two scrapes in ten seconds
            wait_until(lambda text=text: server.query(text), title)
        rules = [rule for group in server.ask("rules")["groups"] for rule in group["rules"]]
        assert len(rules) == ALERTS.read_text().count("- alert:")
        asked = set(re.findall(r"\btsferry_\w+", " ".join(rule["query"] for rule in rules)))
        assert {each for each in asked if not server.query(each)} == ABSENT
        wait_until(
            lambda: all(
                rule["health"] == "ok"
                for group in server.ask("rules")["groups"]
                for rule in group["rules"]
            ),
            "each rule is evaluated",
        )
        assert server.query('ALERTS{alertstate="firing",severity="critical"}') == []
        # An edge that falls silent is seen.
        watched.daemon.terminate()
        watched.said("senders", "set", watched.edge.uuid, "--late-after", "1s")
        (late,) = wait_until(
            lambda: server.query('ALERTS{alertname="TsferryEdgeLate"}'), "the alert on the edge"
        )
        assert late["metric"]["edge"] == "plant 7"
        assert late["metric"]["alertstate"] == "pending", "for five minutes: test_late_alert.py"
