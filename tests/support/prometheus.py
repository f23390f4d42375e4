"""Prometheus' own programs, of Debian's package `prometheus`; without them tests skip."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.ports import free_port
from tests.support.procs import children, wait_until

PROMTOOL, PROMETHEUS = shutil.which("promtool"), shutil.which("prometheus")
needs_promtool = pytest.mark.skipif(
    PROMTOOL is None, reason="needs promtool: apt-get install prometheus"
)
needs_prometheus = pytest.mark.skipif(
    PROMETHEUS is None, reason="needs Prometheus: apt-get install prometheus"
)


def promtool(*arguments: str | Path, given: bytes = b"") -> tuple[int, str]:
    """Exit code and output of a call."""
    assert PROMTOOL is not None
    done = subprocess.run(
        [PROMTOOL, *map(str, arguments)], input=given, capture_output=True, timeout=60
    )
    return done.returncode, (done.stdout + done.stderr).decode()


class PrometheusServer:
    """A server that runs, asked over its HTTP API."""

    def __init__(self, url: str) -> None:
        self.url = url

    def ask(self, path: str, **query: str) -> Any:
        """`data` of an answer; fails on any that is no success."""
        target = f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(query)}"
        with urllib.request.urlopen(target, timeout=60) as answer:
            found = json.load(answer)
        assert found["status"] == "success", found
        return found["data"]

    def query(self, expression: str) -> list[dict[str, Any]]:
        """The vector that an expression gives now; a scalar counts as one value."""
        data = self.ask("query", query=expression)
        result = data["result"]
        return [{"metric": {}, "value": result}] if data["resultType"] == "scalar" else result

    def is_healthy(self, job: str) -> bool:
        """Whether all targets of a job were scraped without an error."""
        targets = [
            each for each in self.ask("targets")["activeTargets"] if each["labels"]["job"] == job
        ]
        return bool(targets) and all(each["health"] == "up" for each in targets)


@contextmanager
def prometheus(
    directory: Path, jobs: Sequence[Mapping[str, Any]], rules: Path
) -> Iterator[PrometheusServer]:
    """A server that scrapes each second, with these jobs (as its configuration has them)."""
    assert PROMETHEUS is not None
    directory.mkdir(parents=True, exist_ok=True)
    config = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(rules)],
        "scrape_configs": list(jobs),
    }
    file = directory / "prometheus.yml"
    file.write_text(json.dumps(config))  # JSON is YAML
    port = free_port()
    with children(directory) as started:
        child = started.start(
            [
                PROMETHEUS,
                f"--config.file={file}",
                f"--storage.tsdb.path={directory / 'data'}",
                f"--web.listen-address=127.0.0.1:{port}",
                "--log.level=warn",
            ]
        )
        server = PrometheusServer(f"http://127.0.0.1:{port}")

        def ready() -> bool:
            try:
                with urllib.request.urlopen(f"{server.url}/-/ready", timeout=5) as answer:
                    return bool(answer.status == 200)
            except OSError:
                time.sleep(0.05)
                return False

        child.until(ready, "Prometheus is ready")
        wait_until(lambda: server.ask("rules")["groups"], "the rules are loaded")
        yield server
