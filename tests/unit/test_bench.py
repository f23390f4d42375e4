"""The benchmarks: one command runs all of them."""

from __future__ import annotations

import re

from tests.support.architecture import ROOT

BENCH = ROOT / "scripts" / "bench"
PAGES = ("everything.py", "performance_page.py", "figures_page.py")
PARTS = {"s3fs_peer.py", "sensor_tsfile.py", "sync_tool_writer.py"}
"""Programs that others start, or that write what they read."""
OF_TWO_CHECKOUTS = {"transfer_versions.py", "centre_versions.py"}


def programs():
    return {
        each.name
        for each in BENCH.glob("*.py")
        if "def main(" in each.read_text() and each.name not in PAGES
    }


def test_one_command_runs_every_benchmark():
    run = {
        name for page in PAGES for name in re.findall(r'"(\w+\.py)"', (BENCH / page).read_text())
    }
    assert programs() - run - PARTS == OF_TWO_CHECKOUTS


def test_what_starts_programs_starts_them_as_installed():
    for each in BENCH.glob("*.py"):
        text = each.read_text()
        if "tsferry-sender" in text or "tsferry-receiver" in text:
            assert re.search(r"compile_modules\(|transfer_peers import .*\bserving\b", text), each
