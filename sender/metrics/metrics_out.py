"""Where a sender's measures go: the port of the daemon, and the file for node_exporter."""

from __future__ import annotations

import logging
from contextlib import ExitStack
from typing import TYPE_CHECKING

from common.config.metrics_rules import listen_of
from common.durable import Closing, Tree
from common.errors import TsferryError
from common.metering.metrics_port import MetricsPort
from common.threads import PeriodicThread

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from sender.config import SenderMetrics

__all__ = ["MetricsOut", "write_textfile"]

_log = logging.getLogger(__name__)


def write_textfile(path: Path, text: bytes) -> None:
    """Replace the file by these measures, readable for everybody; a failure is logged.

    What reads it ignores the temporary file, whose name does not end in `.prom`.
    """
    try:
        with Tree(path.parent) as tree:
            tree.write_atomic(path.name, text)
    except (TsferryError, OSError) as error:
        _log.error("measures cannot be written to %s: %s", path, error)


class MetricsOut(Closing):
    """Hands the measures of the daemon out, as it is configured, until it is closed.

    Args:
        config: where they go.
        text: makes them.

    Raises:
        TsferryError: the port cannot be had.
    """

    def __init__(self, config: SenderMetrics, text: Callable[[], bytes]) -> None:
        self._config = config
        self._text = text
        self._resources = ExitStack()
        self.port: MetricsPort | None = None
        if config.listen is not None:
            self.port = MetricsPort(*listen_of(config.listen), text)
            self._resources.callback(self.port.close)
        if config.textfile is not None:
            thread = PeriodicThread(
                "metrics-file",
                self._write,
                _log,
                "measures cannot be written",
                retry=config.textfile_every,
            )
            self._resources.callback(thread.close)
            thread.start()

    @classmethod
    def or_nothing(cls, config: SenderMetrics, text: Callable[[], bytes]) -> MetricsOut | None:
        """The same; where the port cannot be had the log says so, and files are sent anyway."""
        try:
            return cls(config, text)
        except TsferryError as error:
            _log.error("measures are not served: %s", error.message)
            return None

    def close(self) -> None:
        """Serve no more; the file stays as it was written last."""
        self._resources.close()

    def _write(self) -> float:
        assert self._config.textfile is not None
        write_textfile(self._config.textfile, self._text())
        return self._config.textfile_every
