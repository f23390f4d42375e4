"""A command that is told to end in its first second does so: one line at most, no traceback."""

import os
import re
import signal
import subprocess
import sys
import time

import pytest

from tests.support import tiers
from tests.support.architecture import ROOT

DELAYS = tiers.sample((0.0, 0.05, 0.1, 0.2, 0.4, 0.7, 1.0), 1, kind=lambda seconds: seconds > 0.15)
BOUND = 120
COMMANDS = {
    "tsferry-sender": ("sender.cli", "--config", "sender.toml", "run"),
    "tsferry-receiver": ("receiver.cli", "--config", "receiver.toml", "serve", "--port", "0"),
    "tsferry-verify": ("receiver.spark.verify", "--path", "data"),
}


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """A directory in which each of the commands would work for longer than a second."""
    root = tmp_path_factory.mktemp("site")
    for each in ("data", "schema"):
        (root / each).mkdir()
    (root / "data/a.tsfile").write_bytes(b"damaged, which is found out after Java has started")
    (root / "receiver.toml").write_text('schema_dir = "centre"\ndata_dirs = ["loaded"]\n')
    (root / "sender.toml").write_text(
        'schema_dir = "schema"\ndata_dirs = ["data"]\n'
        '[[receiver]]\nname = "dc1"\nurl = "http://127.0.0.1:9"\n'
    )
    call("sender.cli", root, "--config", "sender.toml", "init").communicate(timeout=BOUND)
    return root


def call(module, root, *arguments, blocked=frozenset()):
    """As the script that pip writes does.

    What the interpreter does before it comes to the first line of ours cannot be ours: with SIGINT
    blocked it waits until then.
    """
    code = f"import sys; from {module} import main; sys.exit(main())"
    return python(root, "-c", code, *arguments, blocked=blocked)


def python(root, *arguments, blocked):
    return subprocess.Popen(
        [sys.executable, *arguments],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_BLOCK, blocked),
    )


def ended(process, number, delay):
    time.sleep(delay)
    process.send_signal(number)
    try:
        _, err = process.communicate(timeout=BOUND)  # which waits for all that could write there
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        raise
    assert not re.search("Traceback|Exception ignored|Fatal", err), err
    return process.returncode, err


@pytest.mark.few(3)
@pytest.mark.parametrize("delay", DELAYS)
@pytest.mark.parametrize("name", COMMANDS)
def test_ctrl_c_is_130_and_one_line_as_early_as_it_comes(site, name, delay):
    module, *arguments = COMMANDS[name]
    process = call(module, site, *arguments, blocked={signal.SIGINT})
    code, err = ended(process, signal.SIGINT, delay)
    if code == 0 and name != "tsferry-verify":  # a fast machine: the service was up, and stopped
        return
    assert code == 130
    assert err.splitlines()[-1] == f"{name}: error: interrupted"


@pytest.mark.parametrize("delay", DELAYS)
def test_ctrl_c_ends_the_quickstart_as_it_does_a_command(tmp_path, delay):
    script = ROOT / "scripts/quickstart.py"
    process = python(tmp_path, script, "--dir", "run", blocked={signal.SIGINT})
    code, err = ended(process, signal.SIGINT, delay)
    assert code == 130
    assert err.splitlines()[-1] == "quickstart: error: interrupted"


@pytest.mark.parametrize("delay", DELAYS[1::2])
@pytest.mark.parametrize("name", COMMANDS)
def test_sigterm_is_silent_or_as_ctrl_c(site, name, delay):
    module, *arguments = COMMANDS[name]
    code, _ = ended(call(module, site, *arguments), signal.SIGTERM, delay)
    assert code in (-signal.SIGTERM, 0, 130)
