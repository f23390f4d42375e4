"""A real receiver as a child process, for tests of the sender."""

from __future__ import annotations

import hashlib
import json
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from receiver.cli.commands import cli
from tests.support.ports import free_port
from tests.support.procs import Child, Children, children

COMMAND = str(Path(sys.executable).with_name("tsferry-receiver"))


class Centre:
    """Directories of a receiver, and the process that serves them while it runs."""

    def __init__(self, root: Path, processes: Children, more: str = "") -> None:
        self.root = root
        self.more = more
        self.processes = processes
        root.mkdir(parents=True, exist_ok=True)
        self.config = root / "receiver.toml"
        self.data = root / "data"
        self.port = free_port()
        self.server: Child | None = None
        self._write()

    def _write(self) -> None:
        self.config.write_text(
            f'schema_dir = "{self.root / "schema"}"\n'
            f'data_dirs = ["{self.data}"]\n'
            f'[listen]\nhost = "127.0.0.1"\nport = {self.port}\n'
            "[limits]\nmin_free_bytes = 0\n[deletes]\nmax_fraction = 1\n"
            f"{self.more}"
        )
        self.data.mkdir(exist_ok=True)

    def start(self, *, env: Mapping[str, str] | None = None) -> str:
        """Serve; returns the URL, which stays the same over restarts.

        One that is to die at a step may do so before it listens: the last has left it work.
        """
        ready = self.root / "ready"
        ready.unlink(missing_ok=True)
        for _ in range(10):
            self.server = self.processes.start(
                [COMMAND, "--config", str(self.config), "serve", "--ready-file", str(ready)],
                env=env,
                forked=True,
            )
            try:
                self.server.until(lambda: ready.exists() and ready.read_text().strip(), "listening")
                break
            except AssertionError as error:
                if "TSFERRY_CRASH_AT" in (env or {}) and self.server.returncode == -9:
                    return f"http://127.0.0.1:{self.port}"
                # Another run of the tests on this machine may have it.
                if "Address already in use" not in str(error):
                    raise
                time.sleep(0.5)
        return ready.read_text().strip()

    def kill(self) -> None:
        """As a power cut would."""
        assert self.server is not None
        self.server.kill()

    def stop(self) -> int:
        assert self.server is not None
        return self.server.terminate()

    def call(self, *arguments: str) -> Any:
        """An operator command with --json."""
        return json.loads(self._operator(*arguments, "--json"))

    def sql(self, statement: str) -> str:
        """Carry out one statement; returns what it writes with --json."""
        return self._operator("sql", "--json", statement)

    def _operator(self, *arguments: str) -> str:
        """What a command writes; in this process, whose start would take the longest of it."""
        done = CliRunner().invoke(cli, ["--config", str(self.config), *arguments])
        assert done.exit_code == 0, (done.output, done.exception)
        return done.stdout

    def loaded(self, sender: str) -> dict[str, str]:
        """path -> MD5 of the bytes on disk, for every live file of a sender."""
        found: dict[str, str] = {}
        for each in self.call("files", "--sender", sender, "--limit", "100000")["files"]:
            if each["state"] != "live":
                continue
            where = Path(each["data_dir"]) / each["physical"]
            md5 = hashlib.md5(where.read_bytes()).hexdigest()
            assert md5 == each["md5"], each
            assert each["path"] not in found, f"loaded twice: {each['path']}"
            found[each["path"]] = md5
        return found


@contextmanager
def centre(root: Path, more: str = "") -> Iterator[Centre]:
    """A receiver that is served from the first `start` to the end of the block.

    Args:
        root: where its directories are made.
        more: tables of its configuration.
    """
    root.mkdir(parents=True, exist_ok=True)
    with children(root) as processes:
        yield Centre(root / "centre", processes, more)
