from __future__ import annotations

from types import SimpleNamespace

import pytest

from common.console.terminal import size_text
from common.errors import (
    ConfigError,
    DiskError,
    FailedSyncError,
    LockedError,
    NotFoundError,
    StoppedError,
    TsferryError,
    UnreachableError,
)
from sender.round.round_words.round_report import (
    FileDevice,
    FileReason,
    RoundReport,
    as_text,
    worst,
)
from sender.send.sent_bytes.progress import Meter, RoundEvent, RoundProgress, ShownRounds

REASON = FileReason("sequence/root.a/0/0/1-1-0-0.tsfile", "why")


@pytest.mark.parametrize(
    ("settings", "code"),
    [
        ({}, 0),
        ({"failed": [REASON]}, 3),
        ({"conflicts": [FileDevice("f", "root.a.d1")]}, 3),
        ({"quarantined": [REASON]}, 3),
        ({"unmounted": [REASON]}, 3),
        ({"expired": [REASON]}, 0),
        ({"changed": [REASON]}, 0),
        ({"held": [REASON]}, 0),
        ({"guarded": True}, 6),
        ({"guarded": True, "failed": [REASON]}, 3),
        ({"error": UnreachableError("x"), "failed": [REASON]}, 4),
        ({"error": NotFoundError("x")}, 4),
        ({"error": LockedError("x")}, 5),
        ({"error": StoppedError("x"), "failed": [REASON]}, 130),
        ({"error": ConfigError("x")}, 2),
        ({"error": TsferryError("x")}, 1),
        ({"error": DiskError("this one's")}, 1),
        ({"error": DiskError("the receiver's", extra={"status": 503})}, 4),
        ({"error": FailedSyncError("the receiver's", extra={"status": 503})}, 4),
    ],
)
def test_a_round_has_the_documented_exit_code(settings, code):
    report = RoundReport("dc1", **settings)
    assert report.exit_code == code
    assert report.as_json()["exit_code"] == code


def test_of_several_receivers_the_weightiest_code_counts():
    assert worst([0, 6, 3]) == 3
    assert worst([3, 4]) == 4
    assert worst([5, 4]) == 5
    assert worst([0, 0]) == 0
    assert worst([]) == 0


def test_the_text_of_a_report_obeys_no_name():
    report = RoundReport("dc\x1b[2J", failed=[FileReason("a\nb", "c\x07")])
    text = as_text(report.as_json())
    assert "\x1b" not in text
    assert "\x07" not in text
    assert len(text.splitlines()) == 2


def test_a_long_report_is_cut_and_says_so():
    report = RoundReport("dc1", failed=[REASON] * 50)
    text = as_text(report.as_json())
    assert len(text.splitlines()) == 12
    assert "40 more failed" in text


def test_sizes_for_people():
    assert [size_text(n) for n in (0, 1023, 1024, 5 << 20, 3 << 40, 2 << 50)] == [
        "0 B",
        "1023 B",
        "1.0 KiB",
        "5.0 MiB",
        "3.0 TiB",
        "2.0 PiB",
    ]


def test_a_round_is_shown_with_its_bytes_and_files_and_its_events_are_not():
    shown = []
    progress = SimpleNamespace(
        say=lambda text, row: shown.append(text),
        show=lambda step, done, total, **more: shown.append((step, done, total, more)),
    )
    rounds = ShownRounds(progress)
    rounds.show(RoundProgress("dc1", "scan"))
    rounds.show(RoundEvent("dc1", "sent", {}))
    rounds.show(RoundProgress("dc1", "send", 10, 5, 100, 50))
    more = {"size": True, "note": "5 of 10 files", "row": "dc1"}
    assert shown == ["dc1: scan", ("dc1: send", 50, 100, more)]


def test_a_meter_counts_all_and_tells_seldom():
    told = []
    now = [0.0]
    meter = Meter("dc1", told.append, every=1.0, clock=lambda: now[0])
    meter.expect(2, 1000)
    for _ in range(100):
        meter.sent(10)
    assert len(told) == 1
    now[0] = 2.0
    meter.done()
    assert told[-1] == RoundProgress("dc1", "", 2, 1, 1000, 1000)
