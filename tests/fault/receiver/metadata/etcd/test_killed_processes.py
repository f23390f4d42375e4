"""A receiver's engine with its commits in etcd, in a process that is killed: nothing is lost."""

import json
import signal
import subprocess
import sys

import pytest

from receiver.metadata.engine import Engine
from receiver.metadata.etcd.commits import open_remote
from tests.support.asking import column, rows, run

_CHILD = """
import json, sys, threading
from pathlib import Path
from receiver.metadata.engine import Engine
from receiver.metadata.etcd.commits import open_remote
from receiver.metadata.sql.executing import execute
from tests.support.etcd import Settings

home, turn, settings = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
engine = Engine.open(Path(home), remote=open_remote(Settings(**settings)))
execute(engine, "create storage group root.t" + turn)
lock = threading.Lock()

def work(thread):
    for number in range(100000):
        path = f"root.t{turn}.d{thread}.s{number}"
        execute(engine, f"create timeseries {path} with datatype=FLOAT tags(n=v{number % 5})")
        with lock:
            print(path, flush=True)

for thread in range(3):
    threading.Thread(target=work, args=(thread,), daemon=True).start()
while True:
    engine.checkpoint()
    threading.Event().wait(0.2)
"""


def start(home, turn, settings):
    arguments = {"endpoints": list(settings.endpoints), "prefix": settings.prefix, "lease": 3.0}
    return subprocess.Popen(
        [sys.executable, "-c", _CHILD, str(home), str(turn), json.dumps(arguments)],
        stdout=subprocess.PIPE,
        text=True,
    )


def kill_after(child, count):
    """Kill it when so many series were acknowledged; all that were, to the last line."""
    seen = []
    for line in child.stdout:
        seen.append(line.strip())
        if len(seen) >= count:
            break
    child.send_signal(signal.SIGKILL)
    seen += [line.strip() for line in child.stdout if line.endswith("\n")]
    child.wait()
    child.stdout.close()
    assert len(seen) >= count, "the child ended by itself"
    return seen


def take_over(etcd, home, settings):
    """The engine behind the lease of the dead process: `test_killed_receivers.py` waits for one."""
    etcd.end_lease(settings.prefix)
    return Engine.open(home, remote=open_remote(settings), background=False)


@pytest.mark.slow
def test_all_that_a_killed_process_acknowledged_is_there_here_and_on_another_machine(
    shared_etcd, tmp_path
):
    settings = shared_etcd.settings(lease=3.0)
    acknowledged = []
    for turn, count in enumerate([30, 90]):
        home = tmp_path / "here"
        acknowledged += kill_after(start(home, turn, settings), count)
        with take_over(shared_etcd, home, settings) as engine:
            assert set(acknowledged) <= set(column(engine, "show timeseries"))
            run(engine, f"set ttl to root.t{turn} {turn + 1}")
            expected = rows(engine, "show timeseries"), rows(engine, "show ttl")
    with take_over(shared_etcd, tmp_path / "there", settings) as engine:
        assert (rows(engine, "show timeseries"), rows(engine, "show ttl")) == expected
        for value in range(5):
            tagged = column(engine, f"show timeseries where n=v{value}")
            assert tagged == [
                row["timeseries"] for row in expected[0] if row["tags"] == {"n": f"v{value}"}
            ]


@pytest.mark.slow
def test_etcd_and_the_process_are_killed_together(own_etcd, tmp_path):
    settings = own_etcd.settings(lease=3.0)
    child = start(tmp_path / "here", 0, settings)
    acknowledged = []
    for line in child.stdout:
        acknowledged.append(line.strip())
        if len(acknowledged) == 40:
            own_etcd.kill()
            break
    child.send_signal(signal.SIGKILL)
    acknowledged += [line.strip() for line in child.stdout if line.endswith("\n")]
    child.wait()
    child.stdout.close()
    own_etcd.start()
    for name in ("here", "there"):
        with take_over(own_etcd, tmp_path / name, settings) as engine:
            assert set(acknowledged) <= set(column(engine, "show timeseries"))
