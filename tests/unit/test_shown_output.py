"""What pages outside of the manual show of a command is what it prints, to the word."""

from __future__ import annotations

import datetime
import re
import time

import msgspec
import pytest
from click.testing import CliRunner

from common.hooks.event_queue import QueueStanding
from common.hooks.hook_showing import HooksView, view_lines
from receiver.cli.box_commands.receiver_check import check_line_of
from receiver.cli.commands import cli
from receiver.operator.views.sender_views import LateView
from receiver.operator.views.status_views import StorageView
from receiver.operator.views.tree_views import TreeNodeView, TreePage
from tests.support.architecture import ROOT
from tests.support.page_commands import commands_of, differing
from tests.unit.receiver.cli.box_commands.test_receiver_check import FINE

COMMIT = 467941871616000001


@pytest.fixture(autouse=True)
def in_utc(monkeypatch):
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def shown(page: str, typed: str) -> tuple[str, ...]:
    """What a page has a command print."""
    (found,) = [
        each.shown
        for each in commands_of(ROOT / page)
        if each.typed.startswith(typed) and each.shown
    ]
    return found


def said(*words: str) -> str:
    done = CliRunner().invoke(cli, ["--set", "schema_dir=/x", "--set", 'data_dirs=["/x"]', *words])
    assert done.exit_code == 0, done.output
    return done.stdout


def at(text: str) -> float:
    return datetime.datetime.fromisoformat(f"{text}+00:00").timestamp()


def test_the_tree_of_the_past(monkeypatch):
    nodes = [
        TreeNodeView(kind=kind, path=path, created=COMMIT, created_at=at("2026-11-29T07:53:48"),
                     files=3, size=62669, **more)
        for kind, path, more in (
            ("database", "root", {}),
            ("storage_group", "root.wind", {}),
            ("partition", "root.wind/0/2931",
             {"deleted": COMMIT, "deleted_at": at("2026-11-29T08:14:52")}),
            ("partition", "root.wind/0/2932", {}),
        )
    ]  # fmt: skip
    page = TreePage(commit=COMMIT, commit_at=at("2026-11-29T07:58:12"), nodes=nodes)
    monkeypatch.setattr("receiver.cli.engine_commands.tree._page", lambda *_, **__: page)
    assert differing(shown("docs/operation.md", "tsferry-receiver tree"), said("tree")) == []


def test_how_the_copies_are(monkeypatch):
    view = StorageView(
        url="s3://measurements/centre-1", uploaded_files=1204, uploaded_bytes=100_977_868,
        waiting_files=2, waiting_bytes=42_047_897, oldest_waiting=COMMIT,
        oldest_waiting_at=at("2026-11-29T08:12:44"), ended_files=3, shipped=COMMIT,
        shipped_at=at("2026-11-29T08:12:51"), incarnation=1, asked_files=4, fetched_files=1,
        requests={"get": 31, "head": 2411, "list": 96, "put": 2460},
    )  # fmt: skip
    monkeypatch.setattr("receiver.cli.copy_commands.storage.ask", lambda *_: view)
    page = shown("docs/storage.md", "tsferry-receiver storage status")
    assert differing(page, said("storage", "status")) == []


def test_how_it_stands_with_the_hooks():
    queue = QueueStanding(
        way="command", delivered=812, delivered_at=at("2026-11-30T08:12:05"), waiting=0, dropped=0,
        failed=3, failed_at=at("2026-11-29T22:40:11"), failing_since=None, place=None,
        error="/usr/local/lib/tsferry-hook did not end within 10 s",
    )  # fmt: skip
    command = "/usr/local/lib/tsferry-hook"
    view = HooksView(command=command, webhook=None, events=(), problems=(), hooks=(queue,))
    page = shown("docs/hooks.md", "tsferry-receiver hooks list")
    assert differing(page, "\n".join(view_lines(view))) == []


def test_what_a_plugin_says_of_late_edges():
    edges = tuple(LateView(sender="a", label=each) for each in ("plant-3", "plant-7"))
    view = msgspec.structs.replace(FINE, late=2, late_senders=edges)
    page = shown("docs/operation.md", "tsferry-receiver status --check")
    assert differing(page, check_line_of(view, running=True).text()) == []


@pytest.mark.parametrize(
    ("page", "printed", "differs"),
    [
        (("a  3 files, 1.0 KiB",), "x\n  a      12 files, 33 B\n", ["+ x"]),
        (("a  3 files", "..."), "a 4 files\nb 1\n", []),
        (("a  3 files",), "b 4 files\n", ["a  3 files", "+ b 4 files"]),
        (("at 2026-01-31 10:00:00",), "at 2027-02-03 11:12:13+00:00",
         ["at 2026-01-31 10:00:00", "+ at 2027-02-03 11:12:13+00:00"]),
        (("b 1", "a 2"), "a 1\nb 2", ["a 2", "+ a 1"]),
        (("a  12 files, 1.0 KiB", "12 entries"), "a 1 file, 2 B\n1 entries", []),
        ((), "whatever", []),
    ],
)  # fmt: skip
def test_where_a_page_and_a_command_differ(page, printed, differs):
    assert differing(page, printed) == differs


def test_what_a_command_counts_may_be_one():
    nouns = "files|tasks|records|tablets|nodes|rows|senders|objects|points|edges|tokens|problems"
    counted = re.compile(rf"[^,]\}} (?:{nouns})\b(?! a second)")
    places = ("sender/cli", "receiver/cli", "sender/round", "receiver/spark/report")
    lines = [
        f"{each.relative_to(ROOT)}: {line.strip()}"
        for place in places
        for each in sorted((ROOT / place).rglob("*.py"))
        for line in each.read_text().splitlines()
        if counted.search(line) and "raise " not in line
    ]
    assert lines == [], "common.console.terminal.counted"
