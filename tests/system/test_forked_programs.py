"""The forks that stand for our programs in the tests end with who had them made."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.support.architecture import ROOT
from tests.support.procs import children, wait_until

KILLED = """
import os, signal, sys, time
from pathlib import Path
from tests.support import warm

config, out = map(Path, sys.argv[1:])
config.write_text('schema_dir = "schema"\\ndata_dirs = ["data"]\\n[listen]\\nport = 0\\n')
ready = out.with_name("ready")
program = str(Path(sys.executable).with_name("tsferry-receiver"))
serve = warm.fork(
    [program, "--config", str(config), "serve", "--ready-file", str(ready)], out, out
)
while not (ready.exists() and ready.read_text()):
    assert serve.poll() is None, out.read_text()
    time.sleep(0.01)
kept = os.fork()  # as a test that lets a copy of itself die, and holds all that is open here
if not kept:
    time.sleep(300)
    os._exit(0)
parent = Path(f"/proc/{serve.pid}/stat").read_text().rpartition(")")[2].split()[1]
print(kept, serve.pid, parent, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def runs(pid: int) -> bool:
    """Whether a process is there, and is more than what waits to be looked at."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


@pytest.mark.slow
def test_programs_end_with_a_drill_that_is_killed_even_if_a_copy_of_it_lives_on(
    tmp_path: Path,
) -> None:
    (tmp_path / "data").mkdir()
    script = tmp_path / "killed.py"
    script.write_text(KILLED)
    with children(tmp_path) as processes:
        drill = processes.start(
            [sys.executable, str(script), str(tmp_path / "receiver.toml"), str(tmp_path / "out")],
            env={"PYTHONPATH": str(ROOT)},
        )
        assert drill.wait() == -9, drill.text()
        kept, *programs = map(int, drill.text().split())
        try:
            wait_until(lambda: not any(map(runs, programs)), f"{programs} to end")
        finally:
            for each in filter(runs, (kept, *programs)):
                os.kill(each, 9)
