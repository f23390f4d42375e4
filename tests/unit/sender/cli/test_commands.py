"""The commands of the sender, and what starting one loads."""

from __future__ import annotations

import subprocess
import sys

import pytest

import common.tsfile
from sender.cli import commands
from tests.support.architecture import ROOT


@pytest.mark.parametrize("name", commands._NAMES)
def test_each_command_is_found_by_its_name(name):
    found = commands.cli.get_command(None, name)
    assert found is not None
    assert found.name == name


def test_there_is_no_other_command():
    assert commands.cli.get_command(None, "sink") is None


def test_each_name_of_the_tail_reader_is_where_it_says():
    assert common.tsfile._HOMES.keys() == set(common.tsfile.__all__)
    for name in common.tsfile.__all__:
        assert getattr(common.tsfile, name) is not None


def test_a_round_without_news_loads_nothing_to_send_with():
    needless = (
        "common.tsfile.tail", "common.tsfile.proof", "common.schemawire", "sender.cli.check",
        "sender.daemon.daemon", "sender.round.catalogue_source", "sender.round.freeing",
        "sender.round.look", "sender.round.task_run", "sender.schema.server_log",
        "sender.schema.text_log", "sender.select.upstream", "sender.send.sending", "watchdog",
    )  # fmt: skip
    code = (
        "import sys; from sender.cli.commands import cli; cli.get_command(None, 'sync'); "
        f"import sender.round.round; print(*(set(sys.modules) & set({needless!r})))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert done.stdout.split() == []
