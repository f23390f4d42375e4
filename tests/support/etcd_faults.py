"""A client of etcd between which and the server requests and answers are lost, by a script."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from common.errors import UnreachableError
from receiver.metadata.etcd.gateway import EtcdClient
from receiver.metadata.etcd.patience import Patience
from receiver.metadata.model.errors import UnknownOutcomeError
from tests.support.etcd import Etcd

FAULTS = ("answer lost", "request lost", "late", "no connection")


class LossyClient(EtcdClient):
    """Each write takes one step off the script; with nothing on it all goes well.

    Steps are "ok", one of `FAULTS`, or a function to be called before the request is made. "late":
    the request arrives when the test says so, long after the client gave up on it.
    """

    def __init__(self, settings) -> None:
        super().__init__(settings)
        self.script: deque[str | Callable[[], None]] = deque()
        self.writes = 0
        self._held: list[tuple[str, object]] = []

    def _call(self, path, request, *, changes):
        if not changes:
            return super()._call(path, request, changes=changes)
        self.writes += 1
        step = self.script.popleft() if self.script else "ok"
        while callable(step):
            step()
            step = self.script.popleft() if self.script else "ok"
        if step == "no connection":
            raise UnreachableError("no connection, says the test")
        if step == "late":
            self._held.append((path, request))
        if step in ("ok", "answer lost"):
            answer = super()._call(path, request, changes=changes)
            if step == "ok":
                return answer
        raise UnknownOutcomeError(f"{step}, says the test")

    def arrive(self) -> list[bool]:
        """What was late arrives now; whether each was done."""
        held, self._held = self._held, []
        return [
            bool(super(LossyClient, self)._call(path, request, changes=True).get("succeeded"))
            for path, request in held
        ]


@contextmanager
def stopped(etcd: Etcd, client: EtcdClient) -> Iterator[None]:
    """A server that stands still for longer than a client waits, which waits long at other times.

    Whatever is begun in the block may be answered behind it.
    """
    patient = client._settings
    etcd.pause()
    timer = threading.Timer(0.8, etcd.resume)
    timer.start()
    client._settings = replace(patient, timeout=0.3)
    try:
        yield
    finally:
        timer.join()
        client._settings = patient


def quick(seconds: float = 5.0) -> Patience:
    """A patience that takes no time: its clock moves by what is slept."""
    now = [0.0]

    def sleep(pause: float) -> None:
        now[0] += pause

    return Patience(seconds, clock=lambda: now[0], sleep=sleep)
