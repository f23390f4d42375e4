"""A receiver that copies into an object store, loses its machine, and is made anew of the store."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from click.testing import CliRunner

from receiver.cli.commands import cli
from tests.support.centre import Centre
from tests.support.procs import Children


class CopyingCentre(Centre):
    """Its store is a directory beside its own, or what it is told.

    Args:
        root: of its directories.
        processes: that it is one of.
        before_ack: see the configuration, as `upload`.
        upload: when files go.
        store: further lines of ``[storage]``, with a URL; None for the directory.
    """

    def __init__(
        self,
        root: Path,
        processes: Children,
        *,
        before_ack: bool,
        upload: str = "at once",
        store: str | None = None,
    ) -> None:
        bucket = root.parent / "bucket"
        bucket.mkdir()
        self.store = f'url = "{bucket.as_uri()}"' if store is None else store
        self.before_ack = before_ack
        self.upload = upload
        super().__init__(root, processes)

    def _write(self) -> None:
        super()._write()
        self.config.write_text(
            f"{self.config.read_text()}[storage]\n{self.store}\n"
            f"lag = 0.5\nbefore_ack = {str(self.before_ack).lower()}\n"
            f'upload = "{self.upload}"\n'
        )

    def lose_all(self) -> None:
        """The machine burns down; nothing of it is left but the store."""
        self.kill()
        shutil.rmtree(self.root / "schema")
        shutil.rmtree(self.data)
        self.data.mkdir()

    def restore(self, *arguments: str) -> set[str]:
        """Paths of what was not in the store."""
        given = ["--config", str(self.config), "restore", *arguments]
        done = CliRunner().invoke(cli, given)
        assert done.exit_code in (0, 3), (done.output, done.exception)
        named = re.findall(r"^not in the store: (\S+) of ", done.output, re.MULTILINE)
        assert (done.exit_code == 3) == bool(named)
        return set(named)
