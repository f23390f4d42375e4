"""The playbook of the manual's page on many edges, by Ansible itself where it is installed."""

from __future__ import annotations

import os
import pwd
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.architecture import ROOT

pytestmark = [
    pytest.mark.slow,
    pytest.mark.long,
    pytest.mark.skipif(
        shutil.which("ansible-playbook") is None, reason="no ansible-playbook (pip: ansible-core)"
    ),
]
PAGE = (ROOT / "docs" / "manual" / "rollout.md").read_text(encoding="utf-8")
BIN = Path(sys.executable).parent
UUIDS = {
    "plant-8": "0f4e1c0e9a8b4d7c8e6f5a4b3c2d1e0f",
    "plant-9": "1e2d3c4b5a697887766554433221100f",
}
_SERVICE = re.compile(r"ansible\.builtin\.systemd_service: \{.*\}")
_PATH = re.compile(r'(/etc/tsferry|/var/lib/iotdb)([^\s,\]}"]*)')
_BELOW = r"{{ root }}\1\2"
"""A path of the page, below an edge's directory."""


def block(begin: str) -> str:
    """The one block of the page that begins so."""
    (found,) = re.findall(rf"```\w+\n({begin}.*?)```", PAGE, re.DOTALL)
    return found


class Edges:
    """Two edges, each a directory of this machine, and what the playbook's directory has."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.said = ""
        self.play = root / "play"
        (self.play / "tokens").mkdir(parents=True)
        (self.play / "sender.toml").write_text(_PATH.sub(_BELOW, block("schema_dir = ")))
        (self.play / "centre.pem").write_text("its certificate\n")
        for name, uuid in UUIDS.items():
            (self.play / "tokens" / f"{name}.token").write_text("tsf_1a2b3c4d_x\n")
            (self.play / "tokens" / f"{name}.uuid").write_text(f"{uuid}\n")
            # What the package brings, and the database.
            for each in (
                "etc/tsferry",
                "var/lib/iotdb/data/data",
                "var/lib/iotdb/data/system/schema",
            ):
                (self.edge(name) / each).mkdir(parents=True)
        hosts = [
            f"{name} ansible_connection=local ansible_python_interpreter={sys.executable} "
            f"root={self.edge(name)}"
            for name in UUIDS
        ]
        (self.play / "hosts").write_text("\n".join(["[edges]", *hosts, ""]))
        (self.play / "site.yml").write_text(self._playbook())

    def edge(self, name: str) -> Path:
        return self.root / name

    def _playbook(self) -> str:
        """The page's, for a machine without systemd, and without a user of the database's own."""
        text, services = _SERVICE.subn(
            'ansible.builtin.debug: {msg: "service"}', block("- hosts: ")
        )
        assert services == 2
        text = text.replace("become: true", "become: false")
        text = re.sub(r"\n *become_user: iotdb", "", text)
        text = text.replace("owner: iotdb", f"owner: {pwd.getpwuid(os.getuid()).pw_name}")
        text = text.replace("command: tsferry-sender", f"command: {BIN}/tsferry-sender")
        # The configuration has each machine's own paths here, so it is a template.
        text = text.replace("copy: {src: sender.toml", "template: {src: sender.toml")
        lines = (
            _PATH.sub(_BELOW if "command:" in line else f'"{_BELOW}"', line)
            for line in text.splitlines(keepends=True)
        )
        made = "".join(lines)
        # Whoever runs this may be root: nothing of this machine is to be written to.
        assert not re.search(r"(?<!{{ root }})/(etc|var)/", made)
        return made

    def run(self, *more: str) -> dict[str, dict[str, int]]:
        """Play it; host -> the counts of its recap."""
        done = subprocess.run(
            ["ansible-playbook", "-i", "hosts", "site.yml", *more],
            cwd=self.play,
            env={**os.environ, "ANSIBLE_NOCOLOR": "1", "ANSIBLE_HOME": str(self.root / "home")},
            capture_output=True,
            text=True,
            timeout=600,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        self.said = done.stdout
        recap = done.stdout.partition("PLAY RECAP")[2]
        found = {
            line.split()[0]: {key: int(value) for key, value in re.findall(r"(\w+)=(\d+)", line)}
            for line in recap.splitlines()
            if "ok=" in line
        }
        assert found.keys() == UUIDS.keys()
        return found


def test_the_playbook_of_the_page_sets_edges_up_and_changes_nothing_when_said_again(tmp_path):
    edges = Edges(tmp_path)
    before = sorted(each for name in UUIDS for each in edges.edge(name).rglob("*"))
    checked = edges.run("--check")
    assert sorted(each for name in UUIDS for each in edges.edge(name).rglob("*")) == before
    assert all(each["changed"] for each in checked.values())
    first = edges.run()
    assert all(each["changed"] and not each["failed"] for each in first.values())
    for name, uuid in UUIDS.items():
        root = edges.edge(name)
        schema = root / "var/lib/iotdb/data/system/schema"
        assert (schema / "sync/uuid.txt").read_text() == f"{uuid}\n"
        assert uuid in (root / "var/lib/iotdb/data/data/.tsferry").read_text()
        assert (root / "etc/tsferry/centre.token").stat().st_mode & 0o777 == 0o600
        config = root / "etc/tsferry/sender.toml"
        shown = subprocess.run(
            [BIN / "tsferry-sender", "--config", config, "config", "show"],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        assert f'label = "{name}"' in shown.stdout
    assert {each["changed"] for each in edges.run().values()} == {0}
    with (edges.play / "sender.toml").open("a") as file:
        file.write("# changed\n")
    again = edges.run()
    assert {each["changed"] for each in again.values()} == {1}
    assert edges.said.count("RUNNING HANDLER [reload]") == 1
