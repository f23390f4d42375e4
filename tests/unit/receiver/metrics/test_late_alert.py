"""From the silence of an edge to the alert that fires: the receiver, the rule and its times."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from receiver.config import ReceiverConfig
from tests.support.architecture import ROOT
from tests.support.node_world import A, Edge, World
from tests.support.prometheus import needs_promtool, promtool
from tests.unit.receiver.metrics.test_receiver_readings import scrape

PROMISED = 10
"""Minutes behind the moment from which on an edge is late."""


def late_after() -> int:
    """Minutes of the default."""
    senders = ReceiverConfig(schema_dir=Path("/s"), data_dirs=(Path("/d"),)).senders
    return int(senders.late_after // 60)


def measured(world: World, minutes: int) -> float:
    """What is scraped of an edge that was heard so many minutes ago."""
    heard = world.clock()
    with world.node() as node:
        Edge(node).check()
        world.clock.now = heard + 60 * minutes + 1
        found = scrape(node)["tsferry_edge_late", A, A]
        world.clock.now = heard
        return found


@needs_promtool
@pytest.mark.slow
def test_the_alert_on_a_late_edge_fires_within_ten_minutes(world: World, tmp_path: Path) -> None:
    """With Prometheus' own intervals, a minute each, and the edge late just behind a scrape."""
    limit = late_after()
    assert (measured(world, limit - 1), measured(world, limit)) == (0, 1)
    labels = f'edge="{A}",sender="{A}"'

    def expected(minute: int, state: str | None) -> dict[str, object]:
        asked = 'ALERTS{alertname="TsferryEdgeLate"}'
        told = f'{asked[:-1]},alertstate="{state}",{labels},severity="warning"}}'
        samples = [] if state is None else [{"labels": told, "value": 1}]
        return {"expr": asked, "eval_time": f"{minute}m", "exp_samples": samples}

    late = limit + 1  # the first scrape that sees it
    silent = {
        "interval": "1m",
        "input_series": [
            {"series": f"tsferry_edge_late{{{labels}}}", "values": f"0x{late - 1} 1x30 0x30"}
        ],
        "promql_expr_test": [
            expected(limit, None),
            expected(limit + 4, "pending"),
            expected(limit + PROMISED - 1, "firing"),
            expected(limit + PROMISED, "firing"),
            expected(late + 40, None),
        ],
    }
    file = tmp_path / "late.yml"
    rules = {"rule_files": [str(ROOT / "conf" / "alerts.yml")], "evaluation_interval": "1m"}
    file.write_text(json.dumps({**rules, "tests": [silent]}))
    code, said = promtool("test", "rules", file)
    assert code == 0, said
