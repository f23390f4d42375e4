"""Random histories of transactions by whatever way they are begun, beside plain commits.

Blocks of `engine.transaction()`, sessions over HTTP that lose answers, and plain commits append to
lists (`txn_histories`); some end at once, in one batch of the engine, some when their lease is
over, and some as the receiver is started anew.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import msgspec

from common import wire
from common.errors import BusyError, UnreachableError
from receiver.config import ListenConfig, MetadataConfig, ReceiverConfig
from receiver.metadata.commit.guards import Guard
from receiver.metadata.model.errors import GuardFailed, KeyMissingError
from receiver.metadata.model.records import KeysWritten
from receiver.metadata.sql.executing import execute
from receiver.txn.errors import TxnEndedError, TxnMissingError, WriteConflictError
from receiver.web.app import close, create_app, site_of
from receiver.web.txn_client import TxnClient
from tests.support.txn_histories import Done, anomalies

__all__ = ["SessionCentre", "played_history"]

Cell = tuple[str, str]
Values = tuple[int, ...]

_OVER = (WriteConflictError, TxnEndedError, TxnMissingError, BusyError)
_LEASE = 60.0
_TOKEN = "an-operators-secret"
_TAG_BYTES = 4096


class SessionCentre:
    """A receiver, with calls that may be lost on their way.

    Attributes:
        met: how often what a history is made of has happened, by its name.
    """

    def __init__(self, root: Path) -> None:
        metadata = MetadataConfig(txn_lease=_LEASE, txn_most=1000, tag_bytes=_TAG_BYTES)
        data = root / "data"
        data.mkdir(parents=True)
        self.config = ReceiverConfig(
            schema_dir=root / "schema", data_dirs=(data,), metadata=metadata,
            listen=ListenConfig(host="127.0.0.1", port=0),
        )  # fmt: skip
        self.met: Counter[str] = Counter()
        self.passed = 0.0
        self.starts = 0
        self.start()
        self.engine.set_storage_group("root.sg")

    def start(self) -> None:
        self.starts += 1
        self._app = create_app(self.config)
        site = site_of(self._app)
        site.access.accept_operator(_TOKEN)
        self.engine = site.node.engine
        self.manager = site.node.transactions
        self.manager._clock = lambda: time.monotonic() + self.passed

    def close(self) -> None:
        close(self._app)

    def restart(self) -> None:
        self.close()
        self.start()

    def session(self, rng: Random) -> TxnClient:
        server: Any = _Calls(self, rng)
        return TxnClient(lambda: server, sleep=lambda _: None)

    def call(self, method: str, path: str, body: Any) -> bytes:
        answer = self._app.test_client().open(
            path,
            method=method,
            data=None if body is None else wire.encode(body),
            headers={"Authorization": f"Bearer {_TOKEN}", "Content-Type": "application/json"},
        )
        if answer.status_code >= 300:
            raise wire.from_problem(msgspec.json.decode(answer.get_data(), type=wire.Problem))
        return answer.get_data()


class _Calls:
    """In the place of `OperatorClient`: the application itself; some ends are lost on the way."""

    def __init__(self, centre: SessionCentre, rng: Random) -> None:
        self._centre, self._rng = centre, rng

    def ask(self, method: str, path: str, kind: type[Any], *, body: Any = None) -> Any:
        return msgspec.json.decode(self._call(method, path, body), type=kind)

    def tell(self, method: str, path: str, body: Any = None) -> None:
        self._call(method, path, body)

    def _call(self, method: str, path: str, body: Any) -> bytes:
        lost = self._rng.random() if path.endswith("/commit") else 1.0
        if lost < 0.1:
            self._centre.met["commits lost on their way"] += 1
            raise UnreachableError("lost on its way")
        found = self._centre.call(method, path, body)
        if lost < 0.2:
            self._centre.met["answers lost"] += 1
            raise UnreachableError("lost on its way back")
        return found


def _list(text: str) -> Values:
    return tuple(map(int, filter(None, text.split(","))))


def _text(values: Values) -> str:
    return ",".join(map(str, values))


class _Block:
    """A transaction in a `with`, in this process."""

    kind = "blocks"

    def __init__(self, centre: SessionCentre, rng: Random) -> None:
        del rng
        self._block = centre.engine.transaction()
        self._txn = self._block.__enter__()

    def read(self, cell: Cell) -> Values:
        if cell[0] == "key":
            try:
                return _list(self._txn.keys.load(cell[1]))
            except KeyMissingError:
                return ()
        (row,) = execute(self._txn.database, f"show timeseries {cell[1]}")
        return _list(row[6].get("list", ""))

    def write(self, cell: Cell, values: Values) -> None:
        if cell[0] == "key":
            self._txn.keys.save(cell[1], _text(values))
        else:
            execute(self._txn.database, _upsert(cell, values))

    def commit(self) -> None:
        state = self._txn.state
        self._block.__exit__(None, None, None)
        if state != "active":
            raise TxnEndedError(f"it is {state}")

    def rollback(self) -> None:
        error = ValueError("an error leaves the block")
        self._block.__exit__(ValueError, error, None)


class _Session:
    """A transaction over HTTP, of which tags alone can be asked for."""

    kind = "sessions over HTTP"

    def __init__(self, centre: SessionCentre, rng: Random) -> None:
        self._client = centre.session(rng)
        self._client.begin()

    def read(self, cell: Cell) -> Values:
        answer = self._run(f"show timeseries {cell[1]}")
        return _list(answer.rows[0][6].get("list", ""))

    def write(self, cell: Cell, values: Values) -> None:
        self._run(_upsert(cell, values))

    def _run(self, statement: str) -> Any:
        if self._client.txn is None:
            raise TxnEndedError("it was over")
        return self._client.run(statement)

    def commit(self) -> None:
        if self._client.txn is None:
            raise TxnEndedError("it was over")
        self._client.commit()

    def rollback(self) -> None:
        self._client.close()


def _upsert(cell: Cell, values: Values) -> str:
    return f"alter timeseries {cell[1]} upsert tags(list='{_text(values)}')"


class _History:
    """One: at most so many transactions at a time, over lists that are its own."""

    def __init__(self, centre: SessionCentre, number: int, rng: Random) -> None:
        self.centre, self.rng = centre, rng
        self.ticks, self.values = itertools.count(1), itertools.count(1)
        self.done: list[Done] = []
        self.open: list[tuple[Any, Done]] = []
        # Behind each other in one device are only those of some: a look copies the schema.
        self.tags: list[Cell] = [("tag", f"root.sg.d.s{number}_{each}") for each in range(2)]
        self.keys: list[Cell] = [("key", f"{number}/{each}") for each in range(3)]
        for _, name in self.tags:
            centre.engine.create_series(name, "INT32")

    def begin(self) -> None:
        kind = _Session if self.rng.random() < 0.25 else _Block
        began = next(self.ticks)
        self.open.append((kind(self.centre, self.rng), Done(began)))
        self.centre.met[kind.kind] += 1

    def step(self) -> None:
        what = self.rng.random()
        if len(self.open) < 2 or (len(self.open) < 5 and what < 0.15):
            self.begin()
        elif what < 0.25:
            self.plain()
        elif what < 0.33:
            self.together()
        elif what < 0.35:
            self.lease_over()
        elif what < 0.45:
            self.end(*self.taken(), commits=self.rng.random() < 0.8)
        else:
            self.use()

    def taken(self) -> tuple[Any, Done]:
        return self.open.pop(self.rng.randrange(len(self.open)))

    def use(self) -> None:
        """Read a list, and mostly append to it."""
        at = self.rng.randrange(len(self.open))
        txn, done = self.open[at]
        cells = self.tags if isinstance(txn, _Session) else self.keys + self.tags[:1]
        cell = self.rng.choice(cells)
        try:
            values = txn.read(cell)
            own = any(where == cell for where, _ in done.appends)
            (done.seen_own if own else done.reads).append((cell, values))
            if self.rng.random() < 0.7:
                value = next(self.values)
                txn.write(cell, (*values, value))
                done.appends.append((cell, value))
        except _OVER:
            self.open.pop(at)
            self.end(txn, done, commits=self.rng.random() < 0.5)

    def end(self, txn: Any, done: Done, *, commits: bool) -> None:
        try:
            if commits:
                txn.commit()
                done.is_committed = True
                self.centre.met["committed"] += 1
            else:
                txn.rollback()
        except _OVER as error:
            self.centre.met[error.slug] += 1
        done.ended = next(self.ticks)
        self.done.append(done)

    def plain(self) -> None:
        """A commit by itself, which holds only if the list is as it was read."""
        engine, cell = self.centre.engine, self.rng.choice(self.keys)
        done = Done(next(self.ticks))
        with engine.reading() as state:
            values = _list(state.keys.load(cell[1], None) or "")
            guard = Guard("key", cell[1], state.changed("key", cell[1]))
        done.reads.append((cell, values))
        value = next(self.values)
        done.appends.append((cell, value))
        try:
            engine.commit([KeysWritten((), {cell[1]: _text((*values, value))})], [guard])
            done.is_committed = True
            self.centre.met["plain commits"] += 1
        except GuardFailed:
            self.centre.met["plain commits that came too late"] += 1
        done.ended = next(self.ticks)
        self.done.append(done)

    def together(self) -> None:
        """Several commit at one moment, and a plain commit with them; a batch takes what it can."""
        some = [self.taken() for _ in range(min(len(self.open), 3))]
        work: list[Callable[[], None]] = [self.plain]
        work += [lambda each=each: self.end(*each, commits=True) for each in some]
        threads = [threading.Thread(target=each) for each in work]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        self.centre.met["batches"] += 1

    def lease_over(self) -> None:
        """Nobody used what is open for too long."""
        self.centre.passed += _LEASE + 1
        self.centre.manager.sweep()
        self.centre.met["leases over"] += len(self.open)

    def restart(self) -> None:
        """What is open is over, and who commits it is told so."""
        self.centre.met["over by a restart"] += len(self.open)
        self.centre.restart()
        while self.open:
            self.end(*self.open.pop(), commits=self.rng.random() < 0.7)

    def finish(self) -> None:
        while self.open:
            self.end(*self.open.pop(), commits=True)
        txn, done = _Block(self.centre, self.rng), Done(next(self.ticks))
        done.reads += [(cell, txn.read(cell)) for cell in self.keys + self.tags]
        self.end(txn, done, commits=True)


def played_history(
    centre: SessionCentre, number: int, rng: Random, steps: int, *, restarts: bool
) -> list[str]:
    """Play one; returns what is wrong with it.

    Args:
        centre: where.
        number: of it, which no other one has there.
        rng: what chance decides.
        steps: of it.
        restarts: whether the receiver is started anew in it.
    """
    history = _History(centre, number, rng)
    at = rng.randrange(steps) if restarts else -1
    for each in range(steps):
        history.step()
        if each == at:
            history.restart()
    history.finish()
    return anomalies(history.done)
