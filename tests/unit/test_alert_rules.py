"""The alert rules of conf/: each fires when it should, and not when it should not."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from receiver.metrics.receiver_measures import RECEIVER_MEASURES
from sender.metrics.sender_measures import SENDER_MEASURES
from tests.support.architecture import ROOT
from tests.support.prometheus import needs_promtool, promtool

RULES = ROOT / "conf" / "alerts.yml"
R, EDGE = 'instance="c",job="t"', 'edge="p7",sender="a"'
DAY = 86400


@dataclass(frozen=True)
class Case:
    """What is scraped each minute (in promtool's notation), and what has to fire after `minutes`.

    `firing` are the labels of the one alert beside its name and severity; None: nothing fires.
    """

    series: dict[str, str]
    minutes: int = 20
    firing: str | None = None


def one(name: str, bad: str, good: str, labels: str = R, **more: int) -> list[Case]:
    """A measure with a value that fires and one that does not."""
    series = f"tsferry_{name}{{{labels}}}"
    return [
        Case({series: f"{bad}x300"}, firing=labels, **more),
        Case({series: f"{good}x300"}, **more),
    ]


CASES: dict[str, list[Case]] = {
    "TsferryReceiverGone": [
        Case({}, firing=""),
        Case({f"tsferry_receiver_info{{{R}}}": "1x300"}),
        Case(  # one of two
            {
                f"tsferry_receiver_info{{{R}}}": "1x30 stale",
                'tsferry_receiver_info{instance="d",job="t"}': "1x300",
            },
            minutes=50,
            firing=R,
        ),
    ],
    "TsferryNotReady": one("receiver_ready", "0", "1"),
    "TsferryReadOnly": one("receiver_read_only", "1", "0"),
    "TsferryLost": one("receiver_lost_files", "1", "0"),
    "TsferryProofFailed": one("receiver_quarantined_files", "1", "0", f'{R},reason="bad"')
    + one("receiver_quarantined_files", "1", "1", f'{R},reason="other"')[1:],
    "TsferryConflict": one("receiver_quarantined_files", "1", "0", f'{R},reason="conflict"'),
    "TsferryQuarantine": one("receiver_quarantined_files", "1", "0", f'{R},reason="other"'),
    "TsferryDeletesHeld": one("receiver_held_deletes", "2", "0"),
    "TsferryDirectoryAway": one("receiver_directory_up", "0", "1", f'directory="/d",{R}'),
    "TsferryDiskFills": [
        Case(
            {
                f'tsferry_receiver_directory_free_bytes{{directory="/d",{R}}}': "3e9x300",
                f"tsferry_receiver_min_free_bytes{{{R}}}": "1e9x300",
            },
            firing=f'directory="/d",{R}',
        ),
        Case(
            {
                f'tsferry_receiver_directory_free_bytes{{directory="/d",{R}}}': "9e9-2e7x300",
                f"tsferry_receiver_min_free_bytes{{{R}}}": "1e9x300",
            },
            minutes=240,
            firing=f'directory="/d",{R}',
        ),
        Case(  # a first load is no trend
            {
                f'tsferry_receiver_directory_free_bytes{{directory="/d",{R}}}': "9e9-2e7x300",
                f"tsferry_receiver_min_free_bytes{{{R}}}": "1e9x300",
            },
            minutes=90,
        ),
        Case(
            {
                f'tsferry_receiver_directory_free_bytes{{directory="/d",{R}}}': "9e9x300",
                f"tsferry_receiver_min_free_bytes{{{R}}}": "1e9x300",
            }
        ),
    ],
    "TsferryCertificateEnds": one(
        "receiver_certificate_expiry_timestamp_seconds", f"{13 * DAY}", f"{15 * DAY}"
    ),
    "TsferryTokenEnds": one(
        "receiver_token_expiry_timestamp_seconds", f"{13 * DAY}", f"{15 * DAY}"
    ),
    "TsferryTokenEnded": one("receiver_tokens_ended", "1", "0"),
    "TsferryClientCaEnds": one(
        "receiver_client_ca_expiry_timestamp_seconds", f"{13 * DAY}", f"{15 * DAY}"
    ),
    "TsferryClientCrlEnds": one(
        "receiver_client_crl_expiry_timestamp_seconds", f"{DAY // 2}", f"{2 * DAY}"
    ),
    "TsferryVerificationOld": one(
        "receiver_oldest_verification_timestamp_seconds", f"-{91 * DAY}", f"-{80 * DAY}", minutes=90
    ),
    "TsferryNodesDown": one("receiver_nodes", "1", "0", f'{R},state="down"'),
    "TsferryNodesSilent": one("receiver_nodes_longest_silence_seconds", "4000", "30"),
    "TsferryNodesLost": one("receiver_nodes", "1", "0", f'{R},state="lost"', minutes=75),
    "TsferryNodesPartial": one("receiver_nodes_partial", "1", "0", minutes=45),
    "TsferryNodesDoubt": one("receiver_nodes_doubting", "1", "0"),
    "TsferryFilesNowhere": one("receiver_released_files_nowhere", "1", "0"),
    "TsferryTabletsShort": one("receiver_tablets_short", "1", "0", minutes=45),
    "TsferryCopiesDoubted": one("receiver_copies_doubted", "1", "0", minutes=75),
    "TsferryClockDoubted": one("receiver_clock_doubted", "1", "0"),
    "TsferryBackupOld": one("receiver_backup_timestamp_seconds", f"-{2 * DAY}", "0"),
    "TsferryCopiesBehind": one(
        "receiver_storage_log_behind_timestamp_seconds", "0", "7200", minutes=75
    )
    + one("receiver_storage_up", "0", "1"),
    "TsferryNodeBehind": one("receiver_follow_behind_seconds", "90", "5"),
    "TsferryBackgroundTasks": one("receiver_background_tasks", "1", "0", f'{R},state="failed"')
    + one("receiver_background_oldest_waiting_timestamp_seconds", f"-{DAY}", "0")
    + one("receiver_background_oldest_running_timestamp_seconds", f"-{DAY}", "0"),
    "TsferryHooksFail": one(
        "receiver_hooks_failing_since_timestamp_seconds",
        "0",
        "7200",
        f'{R},way="command"',
        minutes=75,
    )
    + one(
        "sender_hooks_failing_since_timestamp_seconds",
        "0",
        "7200",
        f'{R},way="webhook"',
        minutes=75,
    ),
    "TsferryEdgeLate": one("edge_late", "1", "0", EDGE),
    "TsferryEdgeCloned": one("edge_clone_refused_timestamp_seconds", "0", f"-{DAY}", EDGE),
    "TsferryEdgesLate": [
        Case(
            {
                f"tsferry_receiver_edges_late{{{R}}}": "2x300",
                f"tsferry_receiver_edges_left_out{{{R}}}": "5x300",
            },
            firing=R,
        ),
        Case(
            {
                f"tsferry_receiver_edges_late{{{R}}}": "2x300",
                f"tsferry_receiver_edges_left_out{{{R}}}": "0x300",
            }
        ),
    ],
    "TsferryEdgePendingGrows": [
        Case({f"tsferry_edge_pending_files{{{EDGE}}}": "1+1x300"}, minutes=200, firing=EDGE),
        Case({f"tsferry_edge_pending_files{{{EDGE}}}": "400-1x300"}, minutes=200),
        Case({f"tsferry_edge_pending_files{{{EDGE}}}": "0 9 0 9x1 0x60"}, minutes=60),
    ],
    "TsferryEdgeRoundsFail": one("edge_last_round_failed", "1", "0", EDGE, minutes=40),
    "TsferryEdgeTrouble": one("edge_trouble_files", "1", "0", f'{EDGE},trouble="lost"', minutes=40),
    "TsferryEdgeDisk": one("edge_free_bytes", "5e8", "2e9", EDGE),
    "TsferryEdgeCertificateEnds": one(
        "edge_client_certificate_expiry_timestamp_seconds", f"{13 * DAY}", f"{15 * DAY}", EDGE
    ),
    "TsferryEdgesShareLabel": one("receiver_edges_sharing_labels", "1", "0"),
    "TsferrySenderStale": one(
        "sender_last_success_timestamp_seconds", f"-{DAY}", "0", f'{R},receiver="dc1"'
    )
    + one("sender_failing_since_timestamp_seconds", f"-{DAY}", "0", f'{R},receiver="dc1"'),
    "TsferrySenderTokenEnds": one(
        "sender_token_expiry_timestamp_seconds",
        f"{13 * DAY}",
        f"{15 * DAY}",
        f'{R},receiver="dc1"',
    )
    + one(
        "sender_certificate_expiry_timestamp_seconds",
        f"{13 * DAY}",
        f"{15 * DAY}",
        f'{R},receiver="dc1"',
    ),
}


def alerts() -> dict[str, str]:
    """Name -> severity, of all rules."""
    found = re.findall(r"- alert: (\w+)(?s:.*?)severity: (\w+)", RULES.read_text())
    return dict(found)


def test_each_rule_has_a_case_that_fires_and_one_that_does_not() -> None:
    assert alerts().keys() == CASES.keys()
    for name, cases in CASES.items():
        assert any(each.firing is not None for each in cases), name
        assert any(each.firing is None for each in cases), name


def test_rules_and_panels_ask_for_measures_that_there_are() -> None:
    there = {each.name for each in (*RECEIVER_MEASURES, *SENDER_MEASURES)}
    for file in (RULES, ROOT / "conf" / "dashboard.json"):
        asked = set(re.findall(r"\btsferry_(?:receiver|edge|sender)_\w+", file.read_text()))
        assert {re.sub(r"_(bucket|sum|count)$", "", each) for each in asked} <= there


def test_each_rule_says_what_to_do() -> None:
    rules = RULES.read_text().split("- alert: ")[1:]
    for each in rules:
        assert "summary:" in each
        assert "action:" in each


@needs_promtool
def test_promtool_takes_the_rules() -> None:
    code, said = promtool("check", "rules", RULES)
    assert code == 0, said
    assert f"{len(CASES)} rules found" in said


def _as_group(cases: Mapping[str, Case]) -> dict[str, object]:
    """One test of promtool: a case of each rule, all at once; opening a database takes its time."""
    series: dict[str, str] = {}
    for case in cases.values():
        assert not series.keys() & case.series.keys(), "two cases would be one"
        series |= case.series
    return {
        "interval": "1m",
        "input_series": [{"series": key, "values": value} for key, value in series.items()],
        "promql_expr_test": [_expected(name, case) for name, case in cases.items()],
    }


def _expected(name: str, case: Case) -> dict[str, object]:
    expected = []
    if case.firing is not None:
        labels = f'alertname="{name}",alertstate="firing",severity="{alerts()[name]}"'
        labels += f",{case.firing}" if case.firing else ""
        expected = [{"labels": f"ALERTS{{{labels}}}", "value": 1}]
    return {
        "expr": f'ALERTS{{alertname="{name}",alertstate="firing"}}',
        "eval_time": f"{case.minutes}m",
        "exp_samples": expected,
    }


def _run(directory: Path, groups: list[dict[str, object]]) -> tuple[int, str]:
    file = directory / "alerts_test.yml"
    file.write_text(
        json.dumps({"rule_files": [str(RULES)], "evaluation_interval": "5m", "tests": groups})
    )
    return promtool("test", "rules", file)


@needs_promtool
def test_each_rule_fires_when_it_should_and_only_then(tmp_path: Path) -> None:
    most = max(map(len, CASES.values()))
    groups = [
        _as_group({name: cases[number] for name, cases in CASES.items() if number < len(cases)})
        for number in range(most)
    ]
    code, said = _run(tmp_path, groups)
    assert code == 0, said


@needs_promtool
def test_a_case_that_is_wrong_is_seen(tmp_path: Path) -> None:
    wrong = Case({f"tsferry_receiver_lost_files{{{R}}}": "1x300"})
    assert _run(tmp_path, [_as_group({"TsferryLost": wrong})])[0] != 0
