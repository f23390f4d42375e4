"""Without `storage.url` nothing of the copies is there: no import, no thread, no call."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PROGRAM = """
import sys, threading
from pathlib import Path
from receiver.cli.commands import cli
from tests.support.node_world import World

before = set(threading.enumerate())
with World(Path(sys.argv[1])).node() as node:
    assert node.storage is None
    names = [each.name for each in threading.enumerate() if each not in before]
    assert not [each for each in names if "copies" in each], names
cli.main(["storage", "--help"], standalone_mode=False)
found = [each for each in sys.modules if each.startswith("receiver.storage.")]
assert not found, found
assert not {"botocore", "obstore"} & sys.modules.keys()
"""


def test_nothing_of_the_copies_is_imported(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", PROGRAM, str(tmp_path)], check=True, timeout=60)
