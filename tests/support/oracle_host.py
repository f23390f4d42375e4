"""Where the receiver of an oracle runs: in this process, or in one that can be killed.

The second is a fork, so that it costs no start of an interpreter, and it dies as processes do: by
SIGKILL, at any crash point, in the middle of loads, proofs and of its own recovery.
"""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Protocol

import msgspec

from common import crash
from receiver.config import ReceiverConfig
from receiver.load.upkeep.fsck import fsck
from receiver.load.upkeep.fsck_findings import Report
from receiver.load.upkeep.verdicts import Verdict, record_verdicts
from receiver.metadata.engine import Engine
from receiver.metadata.model import records
from receiver.metadata.state.state import State
from receiver.node import Node
from receiver.operator.edges.owners import adopt_sender, set_owner
from receiver.operator.edges.senders import accept_sender
from receiver.operator.edges.tokens import make_token
from receiver.operator.stored.files import undelete_files
from receiver.principal import Principal
from receiver.web.app import close, create_app, site_of
from tests.support.merging_node import MergedHere, compactions, merge_here
from tests.support.proving import in_this_process
from tests.support.web import running

_BOUND = 60.0
_OPERATOR = Principal("operator", None, (), None, "an oracle")


class Host(Protocol):
    """What an oracle asks of its receiver."""

    config: ReceiverConfig
    url: str

    def reading(self) -> contextlib.AbstractContextManager[State]:
        """What is committed."""

    def prove(self) -> int | None:
        """Go over what is due; how many files are superseded by it, None if it died of it."""

    def merge(self, group: str) -> int | None:
        """Merge what can be merged of a group; how many merges are read, None if it died of it."""

    def make_final(self) -> int | None:
        """Have merged files take the place of what is gone at the edge; how many merges did."""

    def adopt(self, old: str, new: str) -> None:
        """All that a sender owns is another's from now on."""

    def rest(self) -> None:
        """Wait until what was received is loaded: whoever sent it may have died meanwhile."""


class InProcess:
    """A receiver in this process."""

    def __init__(self, node: Node, url: str) -> None:
        self.node, self.config, self.url = node, node.config, url

    def reading(self) -> contextlib.AbstractContextManager[State]:
        return self.node.engine.reading()

    def prove(self) -> int:
        return self.node.prover.run_once()

    def merge(self, group: str) -> int:
        return _merge(self.node, group)

    def make_final(self) -> int:
        return _make_final(self.node)

    def adopt(self, old: str, new: str) -> None:
        adopt_sender(self.node.engine, _OPERATOR, old, new)

    def rest(self) -> None:
        _rest(self.node)

    def transfer(self, pattern: str, sender: str) -> None:
        """Devices are another sender's from now on."""
        set_owner(self.node.engine, _OPERATOR, pattern, sender)

    def release(self, pattern: str) -> int:
        """Devices are nobody's from now on; returns the commit."""
        return set_owner(self.node.engine, _OPERATOR, pattern, None).commit

    def reap(self) -> int:
        """What may leave the disk leaves it."""
        return self.node.load.reaper.run_once()


class Countdown:
    """Kills this process at the n-th crash point from when it was set."""

    def __init__(self, left: int = 0) -> None:
        self.left = left

    def __call__(self, name: str) -> None:
        del name
        if self.left > 0:
            self.left -= 1
            if not self.left:
                os.kill(os.getpid(), signal.SIGKILL)


def in_child(run: Callable[[], object]) -> int:
    """Run in a fork of this process, which ends without cleaning up; returns its pid."""
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        run()
        status = 0
    except BaseException:  # whatever it is must not go on in a second copy of the tests
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(status)


class Killable:
    """A receiver in a process of its own, on the same port over restarts."""

    def __init__(self, config: ReceiverConfig) -> None:
        self.config, self.url = config, ""
        self._port = 0
        self._pid: int | None = None
        self._line: Connection | None = None

    # -- its life --------------------------------------------------------------------------

    def start(self, *, dies_at: int = 0) -> bool:
        """Open and serve; whether it came so far, without dying at a crash point before."""
        _warm()
        ours, theirs = Pipe()
        config, port = self.config, self._port

        def serve() -> None:
            ours.close()
            _serve(config, port, theirs, Countdown(dies_at))

        self._pid = in_child(serve)
        theirs.close()
        self._line = ours
        url = self._answer()
        if url is None:
            return False
        self.url, self._port = url, int(url.rpartition(":")[2])
        return True

    def kill(self) -> None:
        if self._pid is not None:
            os.kill(self._pid, signal.SIGKILL)
            self._wait()

    def stop(self) -> None:
        """It ends in its own time."""
        if self._pid is not None and self._line is not None:
            self._line.send(("stop",))
            self._wait()

    def _wait(self) -> None:
        assert self._pid is not None
        end = time.monotonic() + _BOUND
        while os.waitpid(self._pid, os.WNOHANG) == (0, 0):
            assert time.monotonic() < end, "the receiver does not end"
            time.sleep(0.002)
        self._gone()

    def _gone(self) -> None:
        assert self._line is not None
        self._line.close()
        self._pid = self._line = None

    # -- what it is asked ------------------------------------------------------------------

    def reading(self) -> contextlib.AbstractContextManager[State]:
        return self._on_disk()

    @contextlib.contextmanager
    def _on_disk(self) -> Iterator[State]:
        with Engine.read_only(self.config.schema_dir) as engine, engine.reading() as state:
            yield state

    def dies_in(self, points: int) -> None:
        """Let it die at so many crash points from now."""
        self._ask("dies", points)

    def outlives(self) -> bool:
        """Whether it has not died; from now on it will not."""
        return self._line is not None and self._ask("dies", 0) is True

    def prove(self) -> int | None:
        return self._ask("prove")

    def merge(self, group: str) -> int | None:
        return self._ask("merge", group)

    def make_final(self) -> int | None:
        return self._ask("final")

    def reap(self) -> int | None:
        """What may leave the disk leaves it."""
        return self._ask("reap")

    def rest(self) -> None:
        if self._line is not None:
            self._ask("rest")

    def condemn(self, physical: str, md5: str, why: str) -> None:
        """A verification found a file bad."""
        self._ask("condemn", physical, md5, why)

    def adopt(self, old: str, new: str) -> None:
        self._ask("adopt", old, new)

    def give_up(self, physicals: Sequence[str]) -> None:
        """An operator deletes files, whoever lists them."""
        self._ask("give up", list(physicals))

    def undelete(self, physicals: Sequence[str]) -> list[str]:
        """An operator calls files back; those that are there again."""
        return self._ask("undelete", list(physicals)) or []

    def accept(self, sender: str) -> None:
        """An operator says that a sender was restored from a copy."""
        self._ask("accept", sender)

    def copy_to(self, where: Path) -> None:
        """A backup of all that it has."""
        self.stop()
        shutil.rmtree(where, ignore_errors=True)
        for place in (self.config.schema_dir, *self.config.data_dirs):
            shutil.copytree(place, where / place.name, symlinks=True)
        assert self.start()

    def restore_from(self, where: Path) -> None:
        """It is what its backup was, and goes on with commits of its own at once."""
        self.kill()
        for place in (self.config.schema_dir, *self.config.data_dirs):
            shutil.rmtree(place)
            shutil.copytree(where / place.name, place, symlinks=True)
        assert self.start()
        self._ask("commit")

    def examine(self) -> Report:
        """`fsck --repair`, for which it is stopped."""
        self.stop()
        report = fsck(self.config, repair=True, confirm=True)
        assert self.start()
        return report

    def with_no_history(self) -> None:
        """From now on nothing that was deleted is kept."""
        self.stop()
        changes = {
            "metadata": msgspec.structs.replace(self.config.metadata, history=0.001),
            "load": msgspec.structs.replace(self.config.load, keep_deleted=0.0),
        }
        self.config = msgspec.structs.replace(self.config, **changes)
        assert self.start()

    def _ask(self, *what: Any) -> Any:
        """Its answer; None if it died."""
        assert self._line is not None
        with contextlib.suppress(BrokenPipeError):
            self._line.send(what)
        return self._answer()

    def _answer(self) -> Any:
        assert self._line is not None
        try:
            assert self._line.poll(_BOUND), "the receiver does not answer"
            answer = self._line.recv()
        except (EOFError, ConnectionError):
            self._wait()
            return None
        if isinstance(answer, BaseException):
            raise answer
        return answer


@functools.cache
def _warm() -> None:
    """Import here, once, what each fork would import by itself."""
    with tempfile.TemporaryDirectory() as root:
        data = Path(root) / "data"
        data.mkdir()
        close(create_app(ReceiverConfig(schema_dir=Path(root) / "schema", data_dirs=(data,))))


def _serve(config: ReceiverConfig, port: int, line: Connection, countdown: Countdown) -> None:
    with crash.arm(countdown):
        app = create_app(config)
        site = site_of(app)
        in_this_process(site.node)
        if not config.load.keep_deleted:
            site.node.load.reaper.close()  # only when it is told to, as its judge has to see it
        with running(app, gate=site.gate, port=port) as server:
            countdown.left = 0
            line.send(f"http://127.0.0.1:{server.addresses[0][1]}")
            while (what := line.recv())[0] != "stop":
                try:
                    answer = _answered(site.node, countdown, *what)
                except Exception as error:
                    answer = error
                line.send(answer)
            site.polls.close()
        close(app)


def _answered(node: Node, countdown: Countdown, name: str, *given: Any) -> Any:
    match name:
        case "dies":
            (countdown.left,) = given
        case "prove":
            return node.prover.run_once()
        case "merge":
            return _merge(node, *given)
        case "final":
            return _make_final(node)
        case "reap":
            return node.load.reaper.run_once()
        case "condemn":
            physical, md5, why = given
            record_verdicts(node.engine, [Verdict(physical=physical, md5=md5, bad=why)])
        case "adopt":
            adopt_sender(node.engine, _OPERATOR, *given)
        case "give up":
            _rest(node)
            node.engine.commit([records.FileDeleted(each, "operator") for each in given[0]])
        case "undelete":
            return undelete_files(node.operator, given[0]).back
        case "accept":
            accept_sender(node.engine, *given)
        case "commit":
            make_token(node.engine, "reader")
        case "rest":
            _rest(node)
    return True


def _merge(node: Node, group: str) -> int:
    _rest(node)
    if not isinstance(node.compactor._process, MergedHere):
        merge_here(node)
    node.compactor.compact(group)
    node.compactor.run_once()
    return len(compactions(node))


def _make_final(node: Node) -> int:
    """Only when it is told to: who judges has to know the moment."""
    merges = node.final_merges
    assert merges._after is None
    if not isinstance(node.compactor._process, MergedHere):
        merge_here(node)
    merges._after = 0.0
    try:
        return merges.run_once()
    finally:
        merges._after = None


def _rest(node: Node) -> None:
    end = time.monotonic() + _BOUND
    while any(each.task is not None and each.task.loading for each in node.load.folders.all()):
        assert time.monotonic() < end, "the receiver does not come to rest"
        time.sleep(0.002)
