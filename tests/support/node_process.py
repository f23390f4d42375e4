"""A storage node as a child process, beside a real receiver."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from receiver.cli.commands import cli
from tests.support.centre import COMMAND
from tests.support.procs import Child, Children


class NodeProcess:
    """Directories of a storage node, and the process that serves them while it runs."""

    def __init__(
        self, root: Path, processes: Children, master: str, token: str, *, more: str = ""
    ) -> None:
        self.root = root
        self.processes = processes
        self.server: Child | None = None
        self.disk = root / "disk"
        root.mkdir(parents=True)
        self.config = root / "node.toml"
        self.config.write_text(
            f'schema_dir = "{root / "home"}"\n'
            f'data_dirs = ["{self.disk}"]\n'
            '[listen]\nhost = "127.0.0.1"\nport = 0\n'
            "[limits]\nmin_free_bytes = 0\n"
            f'[node]\nmaster = ["{master}"]\nhost = "{root.name}"\ntoken = "{token}"\n'
            f'heartbeat = "0.2s"\nscrub_every = "1s"\n{more}'
        )
        self.config.chmod(0o600)

    def start(self, env: Mapping[str, str] | None = None) -> str:
        ready = self.root / "ready"
        ready.unlink(missing_ok=True)
        self.server = self.processes.start(
            [COMMAND, "--config", str(self.config), "serve", "--node", "--ready-file", str(ready)],
            env=env,
            forked=True,
        )
        self.server.until(lambda: ready.exists() and ready.read_text().strip(), "listening")
        return ready.read_text().strip()

    def kill(self) -> None:
        assert self.server is not None
        self.server.kill()

    @property
    def uuid(self) -> str:
        mark = json.loads((self.root / "home" / "storage-node.json").read_text())
        return str(mark["uuid"])

    def copies(self) -> dict[str, bytes]:
        """Content of each copied file, by physical name."""
        while True:
            with suppress(FileNotFoundError):  # what was seen has gone meanwhile: look again
                return self._copies()

    def _copies(self) -> dict[str, bytes]:
        found: dict[str, bytes] = {}
        for each in self.disk.glob("tablets/*/*/**/*.tsfile"):
            physical = str(each.relative_to(self.disk)).split("/", 2)[2]
            if not physical.startswith("pulling/"):
                found[physical] = each.read_bytes()
        return found

    def status(self) -> Any:
        done = CliRunner().invoke(cli, ["--config", str(self.config), "status", "--json"])
        assert done.exit_code == 0, (done.output, done.exception)
        return json.loads(done.stdout)
