import json
import socket
import time

import pytest

from common.hooks.event_content import StandingTrouble
from common.hooks.hook_service import HookService, ask_hooks, hook_standings
from common.hooks.hooks_config import HooksConfig
from tests.support.hook_server import hook_server, status
from tests.support.hooked import WHO, Commits, Ticks, event

FULL, FINE = StandingTrouble(problem="full"), StandingTrouble(problem="")


@pytest.fixture
def secret(tmp_path):
    path = tmp_path / "secret"
    path.write_text("whsec_" + "A" * 44)
    path.chmod(0o600)
    return path


@pytest.fixture
def command(tmp_path):
    """A command that keeps what it is told, and where."""
    out, path = tmp_path / "out", tmp_path / "hook"
    path.write_text(f"#!/bin/sh\ncat >> {out}\n")
    path.chmod(0o755)
    return (str(path),), out


def told(out):
    lines = out.read_text().splitlines() if out.exists() else []
    return [(each["kind"], each["state"]) for each in map(json.loads, lines)]


def opened(config, tmp_path, **more):
    return HookService.open(config, tmp_path / "home", WHO, clock=lambda: 100.0, **more)


def test_both_ways_are_told_the_same_event_each_by_its_own_queue(tmp_path, command, secret):
    given, out = command
    with hook_server() as server:
        config = HooksConfig(command=given, webhook=server.url, secret_file=secret)
        server.answers.append(status(500))
        with opened(config, tmp_path) as hooks:
            hooks.happened("disk", FULL)
            hooks.drain(60)
        assert told(out) == [("disk", "happened")]
        standings = {each.way: each for each in hook_standings(config, tmp_path / "home")}
        assert (standings["command"].delivered, standings["command"].waiting) == (1, 0)
        assert (standings["webhook"].delivered, standings["webhook"].waiting) == (0, 1)
        assert "HTTP 500" in standings["webhook"].error
        with opened(config, tmp_path) as hooks:
            hooks.drain(60)
        assert len(server.asked) == 2
        assert json.loads(server.asked[1][2]) == json.loads(out.read_text())


def test_what_stands_is_told_once_and_once_more_when_it_is_over(tmp_path, command):
    given, out = command
    config = HooksConfig(command=given)
    with opened(config, tmp_path) as hooks:
        hooks.stands("disk", "disk", "short", FULL)
        hooks.stands("disk", "disk", "short", FULL)
        hooks.drain(60)
    with opened(config, tmp_path) as hooks:  # a restart tells nothing again
        hooks.stands("disk", "disk", "short", FULL)
        assert hooks.standing("disk") == {"disk"}
        hooks.stands("disk", "disk", "", FINE)
        hooks.stands("disk", "disk", "", FINE)
        hooks.drain(60)
    assert told(out) == [("disk", "raised"), ("disk", "resolved")]


def test_kinds_that_are_not_wanted_are_not_queued(tmp_path, command):
    given, out = command
    with opened(HooksConfig(command=given, events=("late",)), tmp_path) as hooks:
        assert not hooks.tells("disk")
        hooks.happened("disk", FULL)
        hooks.stands("disk", "disk", "short", FULL)
        hooks.drain(60)
    assert told(out) == []


def test_without_a_hook_nothing_is_made(tmp_path):
    with opened(HooksConfig(), tmp_path) as hooks:
        hooks.happened("disk", FULL)
        assert hooks.standings() == []
    assert not (tmp_path / "home").exists()


def test_what_keeps_hooks_from_being_told_stops_nobody_and_is_said(tmp_path, command):
    given, _ = command
    (tmp_path / "home").write_text("in the way")
    with opened(HooksConfig(command=given), tmp_path) as hooks:
        hooks.happened("disk", FULL)
        hooks.stands("disk", "disk", "short", FULL)
        hooks.start()
        (concern,) = hooks.concerns()
    assert concern.startswith("Hooks are told nothing: ")


def test_two_processes_do_not_tell_at_once(tmp_path, command):
    given, _ = command
    config = HooksConfig(command=given)
    waits = []
    with opened(config, tmp_path):
        with opened(config, tmp_path, tries=(1.0, 2.0), sleep=waits.append) as other:
            assert "another process tells" in other.problem
        assert waits == [1.0, 2.0]
    with opened(config, tmp_path) as again:
        assert again.problem is None


def test_a_command_that_is_not_there_is_said_at_the_start_and_loses_nothing(tmp_path, caplog):
    path = tmp_path / "later"
    config = HooksConfig(command=(str(path),))
    with opened(config, tmp_path) as hooks:
        assert "there is no such file" in caplog.text
        hooks.happened("disk", FULL)
        hooks.drain(60)
    out = tmp_path / "out"
    path.write_text(f"#!/bin/sh\ncat >> {out}\n")
    path.chmod(0o755)
    with opened(config, tmp_path) as hooks:
        hooks.drain(60)
    assert told(out) == [("disk", "happened")]


def test_a_hook_that_takes_nothing_for_long_is_a_concern(tmp_path):
    config = HooksConfig(command=("/bin/false",))
    now = [1_700_000_000.0]
    with HookService.open(config, tmp_path / "home", WHO, clock=lambda: now[0]) as hooks:
        hooks.happened("disk", FULL)
        hooks.drain(60)
        assert hooks.concerns() == []
        now[0] += 601
        (concern,) = hooks.concerns()
    assert "the command has taken nothing since 2023-11-14 22:13:20 UTC" in concern
    assert "exit code 1" in concern


def test_the_place_in_a_log_is_noted_when_the_queues_are_opened(tmp_path, command):
    given, out = command
    config, log = HooksConfig(command=given), Commits([[event("1", "loaded")]])
    with opened(config, tmp_path, log=log):
        log.commits.append([event("2", "loaded")])
    # Killed before anything was told: what came behind the first opening is told by the next.
    with opened(config, tmp_path, log=log, monotonic=Ticks()) as hooks:
        hooks.drain(60)
    assert told(out) == [("loaded", "happened")]


def test_a_test_goes_by_every_way_now_and_by_no_queue(tmp_path, command, secret):
    given, out = command
    with hook_server() as server:
        server.answers.append(status(403))
        config = HooksConfig(command=given, webhook=f"{server.url}/x", secret_file=secret)
        found = ask_hooks(config, WHO)
    assert (found["command"].ok, found["webhook"].ok) == (True, False)
    assert found["webhook"].text == f"{server.url}/...: HTTP 403"
    assert told(out) == [("test", "happened")]
    assert hook_standings(config, tmp_path / "home") == []


def test_a_program_that_ends_waits_no_longer_than_it_says_for_hooks_that_hang(tmp_path, secret):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        config = HooksConfig(
            command=("/bin/sleep", "1000"),
            webhook=f"http://127.0.0.1:{silent.getsockname()[1]}/x",
            secret_file=secret,
            timeout=600.0,
        )
        begin = time.monotonic()
        with opened(config, tmp_path) as hooks:
            hooks.happened("disk", FULL)
            hooks.drain(1)
        assert time.monotonic() - begin < 60
    standings = {each.way: each for each in hook_standings(config, tmp_path / "home")}
    assert (standings["command"].failed, standings["command"].waiting) == (1, 1)
    assert standings["webhook"].waiting == 1


def test_what_is_no_utf8_is_told_with_a_mark_in_its_place(tmp_path, command):
    given, out = command
    with opened(HooksConfig(command=given), tmp_path) as hooks:
        hooks.happened("disk", StandingTrouble(problem="/data/\udcff.tsfile"))
        hooks.drain(60)
    assert json.loads(out.read_text())["what"]["problem"] == "/data/?.tsfile"
