"""The daemon: a loop for each receiver, an eye on the directories, an ear for commands."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path
from stat import S_ISDIR
from typing import TYPE_CHECKING, Any

import common
from common.durable import Tree, failed_sync
from common.errors import ConfigError, ReadOnlyError, StoppedError, TsferryError, UsageError
from common.names import Kind
from sender.config import SenderConfig
from sender.daemon.control import ControlServer
from sender.daemon.digests_ahead import DigestsAhead
from sender.daemon.processes import take_daemon_lock
from sender.daemon.receiver_loop import ReceiverLoop, Request
from sender.daemon.watch import Watch
from sender.hooks.round_events import tell_round
from sender.hooks.sender_hooks import open_sender_hooks
from sender.kept import identity
from sender.round.round import RoundOptions
from sender.select.known_digests import KnownDigests
from sender.send.remote import Remote
from sender.send.sent_bytes.progress import RoundProgress, Told

if TYPE_CHECKING:
    from common.hooks.hook_service import HookService
    from sender.metrics.metrics_out import MetricsOut
    from sender.round.round_words.round_report import RoundReport

__all__ = ["Daemon"]

_log = logging.getLogger(__name__)

_LOOK_S = 2.0
_RELOAD_S = 30.0
"""Seconds that a round which is asked for waits for a configuration that is to be read again."""
"""How often the main thread looks after the others."""
_LINGER_S = 3.0
"""For which the end waits until hooks are told what the last rounds came to."""


class Daemon:
    """Runs until `stop` is set."""

    def __init__(
        self,
        config: SenderConfig,
        stop: threading.Event,
        *,
        reload: Callable[[], SenderConfig] | None = None,
    ) -> None:
        self._config = config
        self._stop = stop
        self._load = reload
        self._again = threading.Event()
        self._reads_again = False
        self._ended = threading.Event()
        """Set when the threads of the present configuration are to end."""
        self._pid_file = config.daemon.pid_file
        self._loops: dict[str, ReceiverLoop] = {}
        self._watch: Watch | None = None
        self._watched: dict[Path, tuple[int, int]] = {}
        """Each directory, and which one it was: another may be mounted in its place."""
        self._digests = KnownDigests()
        self._ahead: DigestsAhead | None = None
        self._metrics: MetricsOut | None = None
        self._hooks: HookService | None = None
        self._started = time.time()

    def run(self, ready: Callable[[], None] = lambda: None) -> None:
        """Do the work of the daemon.

        Args:
            ready: called once commands are answered.

        Raises:
            LockedError: another daemon of this schema directory runs.
            ReadOnlyError: a flush to disk failed; the process must be started again.
        """
        uuid = identity.read(self._config.schema_dir)
        with identity.open_sync_dir(self._config.schema_dir) as sync:
            lock = take_daemon_lock(sync)
            try:
                self._write_pid_file()
                self._serve(uuid, ready)
            finally:
                self._remove_pid_file()
                lock.release()

    def reload(self) -> None:
        """Read the configuration again, soon; may be called from a signal handler."""
        self._again.set()

    def _serve(self, uuid: str, ready: Callable[[], None]) -> None:
        self._begin(*self._made(self._config, uuid))
        control = ControlServer(self._config.schema_dir, self.handle)
        control.start()
        _log.info("tsferry-sender %s runs", common.__version__, extra={"pid": os.getpid()})
        ready()
        try:
            while not self._stop.wait(_LOOK_S):
                if self._again.is_set():
                    self._reads_again = True
                    self._again.clear()
                    self._reload(uuid)
                    self._reads_again = False
                self._look_after()
        finally:
            self._stop.set()
            control.close()
            self._end()
            _log.info("tsferry-sender has ended")

    def _made(
        self, config: SenderConfig, uuid: str
    ) -> tuple[threading.Event, dict[str, ReceiverLoop]]:
        """What a configuration asks for, and the event that ends it; nothing is started."""
        ended = threading.Event()
        remotes = [
            Remote.make(config, entry, uuid, ended, digests=self._digests)
            for entry in config.receivers
        ]
        return ended, {
            each.name: ReceiverLoop(
                each, watched=self._watched_well, told=partial(self._told, each.uuid, each.label)
            )
            for each in remotes
        }

    def _begin(self, ended: threading.Event, loops: dict[str, ReceiverLoop]) -> None:
        """Start it."""
        self._ended, self._loops = ended, loops
        config = self._config
        smallest = config.transfer.batch_bytes + 1
        self._ahead = DigestsAhead(config.data_dirs, smallest, self._digests)
        self._ahead.start()
        self._look_after()
        remote = next(iter(loops.values())).remote
        self._hooks = open_sender_hooks(config, remote.uuid, remote.label)
        self._hooks.start()
        for loop in loops.values():
            loop.start()
        self._metrics = self._metrics_out(config, loops)

    def _metrics_out(
        self, config: SenderConfig, loops: dict[str, ReceiverLoop]
    ) -> MetricsOut | None:
        """Where measures go; None where nowhere: then nothing of them is loaded."""
        if config.metrics.listen is None and config.metrics.textfile is None:
            return None
        from sender.metrics.metrics_out import MetricsOut
        from sender.metrics.sender_readings import sender_text

        remote = next(iter(loops.values())).remote
        return MetricsOut.or_nothing(
            config.metrics,
            lambda: sender_text(
                config,
                remote.uuid,
                remote.label,
                [each.seen for each in loops.values()],
                started=self._started,
                hooks=[] if self._hooks is None else self._hooks.standings(),
            ),
        )

    def _end(self) -> None:
        """Stop it: after the blocks on their way; the next round goes on from there."""
        self._ended.set()
        if self._metrics is not None:
            self._metrics.close()
            self._metrics = None
        if self._watch is not None:
            self._watch.close()
            self._watch, self._watched = None, {}
        if self._ahead is not None:
            self._ahead.close()
        for loop in self._loops.values():
            loop.join()
        if self._hooks is not None:
            self._hooks.linger(_LINGER_S)
            self._hooks.close()
            self._hooks = None

    def _told(self, uuid: str, label: str, report: RoundReport) -> None:
        hooks = self._hooks
        if hooks is None:
            return
        try:
            tell_round(hooks, uuid, label, report)
        except Exception:
            _log.exception("hooks: what a round came to could not be told")

    def _reload(self, uuid: str) -> None:
        """Begin anew with the configuration as it is now; with a wrong one all stays as it is."""
        if self._load is None:
            return
        try:
            config = self._load()
            if config.schema_dir != self._config.schema_dir:
                raise ConfigError(f"schema_dir = {config.schema_dir}: another one needs a restart")
            made = self._made(config, uuid)
        except (TsferryError, OSError) as error:
            _log.error("the configuration stays as it was: %s", error)
            return
        self._end()
        self._config = config
        self._begin(*made)
        _log.info("the configuration was read again")

    def _look_after(self) -> None:
        reason = failed_sync()
        if reason is not None:
            raise ReadOnlyError(f"no more writes after a failed sync: {reason}; restart the daemon")
        if self._config.daemon.watch:
            self._keep_watching()

    # -- watching --------------------------------------------------------------------------

    def _keep_watching(self) -> None:
        """Watch the directories that are there; anew when a mount comes or goes."""
        wanted = self._directories()
        if self._watch is not None and wanted == self._watched:
            self._watch.check()
            return
        before = self._watch
        if before is not None:
            before.close()
        self._watched = wanted
        self._watch = Watch(
            tuple(wanted),
            self._changed,
            closed=self._ahead.closed if self._ahead is not None else None,
            poll=self._config.daemon.watch_poll,
            recursive=self._config.layout != "flat",
        )
        self._watch.start()
        if before is not None:
            self._changed()  # whatever came while nobody watched

    def _directories(self) -> dict[Path, tuple[int, int]]:
        if all(entry.source == "receiver" for entry in self._config.receivers):
            return {}
        paths: Iterable[Path] = self._config.data_dirs
        if self._config.layout != "flat":
            paths = [each / kind for each in paths for kind in Kind]
        found = {}
        for each in paths:
            with suppress(OSError):
                stat = each.stat()
                if S_ISDIR(stat.st_mode):
                    found[each] = (stat.st_dev, stat.st_ino)
        return found

    def _watched_well(self) -> bool:
        """Whether each change of a name in the data directories is told of."""
        return self._watch is not None and self._watch.polls_because is None

    def _changed(self) -> None:
        for loop in self._loops.values():
            if loop.remote.entry.source == "directories":
                loop.changed()

    # -- commands --------------------------------------------------------------------------

    def handle(
        self, request: dict[str, Any], tell: Callable[[dict[str, Any]], None]
    ) -> dict[str, Any]:
        """Answer a request of the control socket."""
        match request.get("do"):
            case "ping":
                return {"version": common.__version__, "pid": os.getpid()}
            case "status":
                watch = self._watch
                polls = watch.polls_because if watch is not None else None
                remotes = {name: loop.now for name, loop in self._loops.items()}
                return {"pid": os.getpid(), "lanes": remotes, "polls_because": polls}
            case "round":
                return self._round(request, tell)
        raise UsageError(f"the daemon knows no {request.get('do')!a}")

    def _round(
        self, request: dict[str, Any], tell: Callable[[dict[str, Any]], None]
    ) -> dict[str, Any]:
        # Who says reload and then sync means the round with what is read again.
        end = time.monotonic() + _RELOAD_S
        while self._again.is_set() or self._reads_again:
            if time.monotonic() > end or self._stop.wait(0.05):
                break
        loop = self._loops.get(str(request.get("receiver")))
        if loop is None:
            raise UsageError(
                f"the daemon serves no receiver {request.get('receiver')!a}; was it started with "
                "another configuration?"
            )
        heard = threading.Event()

        def told(progress: Told) -> None:
            if not heard.is_set():
                try:
                    tell(progress.as_event())
                except OSError:
                    heard.set()  # whoever asked has gone; the round goes on

        names = ("accept_source", "forget", "schema", "only_recover", "accept_receiver")
        options = RoundOptions(**{name: bool(request.get(name, False)) for name in names})
        asked = Request(options, told, events=bool(request.get("events", False)))
        told(RoundProgress(loop.remote.name, step="waiting"))
        loop.ask(asked)
        while not asked.done.wait(1.0):
            if loop.remote.stop.is_set() and loop.state == "stopped":
                break
        if asked.report is None:
            raise StoppedError("the daemon was stopped, or began anew with its configuration")
        return {"report": asked.report.as_json()}

    # -- pid file --------------------------------------------------------------------------

    def _write_pid_file(self) -> None:
        path = self._pid_file
        if path is not None:
            with Tree(path.parent, create=True) as tree:
                tree.write_atomic(path.name, f"{os.getpid()}\n".encode())

    def _remove_pid_file(self) -> None:
        path = self._pid_file
        if path is not None:
            with suppress(OSError, TsferryError), Tree(path.parent) as tree:
                tree.unlink(path.name)
