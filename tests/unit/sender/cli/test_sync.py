"""Rounds of the command line: signals are heard while they run."""

import signal
import threading
import time
from types import SimpleNamespace

import pytest

from sender.cli import sync
from sender.round.round import RoundOptions


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_that_reaches_another_thread_ends_the_rounds(monkeypatch, number):
    stop = threading.Event()

    def round_that_is_interrupted(remote, options, line):
        time.sleep(0.2)  # the first thread waits by now
        signal.pthread_kill(threading.get_ident(), number)
        return {"stopped": stop.wait(60)}

    monkeypatch.setattr(sync, "_round", round_that_is_interrupted)
    session = SimpleNamespace(stop=stop, remotes=[SimpleNamespace(name="dc1")])
    assert sync.run_rounds(session, RoundOptions()) == {"dc1": {"stopped": True}}
