"""A receiver that is killed at any moment has, from etcd alone, all that it acknowledged."""

import shutil
import signal
from functools import partial

import pytest

from receiver.metadata.engine import Engine
from receiver.metadata.etcd.commits import open_remote
from receiver.metadata.kv.embedded import EmbeddedKV
from tests.support import tiers
from tests.support.procs import children

pytestmark = pytest.mark.slow

ALL_POINTS = [
    "etcd.append.part:2",
    "etcd.append.before:5",
    "etcd.append.after:5",
    "etcd.checkpoint.piece:2",
    "etcd.checkpoint.before:1",
    "etcd.trim.before:1",
    "etcd.trim.frames:1",
]
POINTS = tiers.sample(ALL_POINTS, 1, kind=lambda point: point.split(".")[1])


def acknowledged(child):
    return [line for line in child.text().splitlines() if line.isdigit()]


def committed(child, enough):
    return len(acknowledged(child)) >= enough


def test_what_was_acknowledged_survives_kills_at_named_steps(shared_etcd, tmp_path):
    settings = shared_etcd.settings(lease=2.0)
    known: list[str] = []
    with children(tmp_path) as running:
        for number, point in enumerate(POINTS):
            child = running.python(
                "tests.support.etcd_writer", shared_etcd.url, settings.prefix, tmp_path / "schema",
                env={"TSFERRY_CRASH_AT": point},
            )  # fmt: skip
            assert child.wait() == -9, child.text()
            known += acknowledged(child)
            shared_etcd.end_lease(settings.prefix)
            if number % 2:
                shutil.rmtree(tmp_path / "schema")
    found = all_keys(settings, tmp_path / "schema")
    assert set(known) <= set(found)
    assert found == [f"{number:06}" for number in range(len(found))]
    assert len(found) <= len(known) + len(POINTS)


def test_a_receiver_that_was_paused_past_its_lease_writes_no_more(shared_etcd, tmp_path):
    settings = shared_etcd.settings(lease=2.0)
    with children(tmp_path) as running:
        child = running.python(
            "tests.support.etcd_writer", shared_etcd.url, settings.prefix, tmp_path / "one"
        )
        child.until(partial(committed, child, 3), "commits")
        child.signal(signal.SIGSTOP)
        engine = Engine.open(tmp_path / "two", remote=open_remote(settings), background=False)
        before = EmbeddedKV(engine).load_with_prefix("0")[0]
        assert set(acknowledged(child)) <= set(before)
        ts = EmbeddedKV(engine).save("taken", "over")
        child.signal(signal.SIGCONT)
        assert child.wait() == 1
        assert "FencedError" in child.text()
        assert set(acknowledged(child)) <= set(before)
        assert EmbeddedKV(engine).load_with_prefix("0")[0] == before
        assert engine.newest_commit == ts
        engine.close()


def all_keys(settings, directory):
    engine = Engine.open(directory, remote=open_remote(settings), background=False)
    found = EmbeddedKV(engine).load_with_prefix("0")[0]
    engine.close()
    return found
