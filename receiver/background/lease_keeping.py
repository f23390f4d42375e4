"""Says now and then that work is still being done, in a thread beside who does it."""

from __future__ import annotations

import logging
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from common.errors import Permanent, TsferryError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["renewing"]

log = logging.getLogger(__name__)


@contextmanager
def renewing(renew: Callable[[], object], every: float) -> Iterator[threading.Event]:
    """Renew until the end; what is given is set once that was refused for good.

    What fails for a moment is tried again: only who judges leases knows when one is over.

    Args:
        renew: says that the work is being done.
        every: seconds between two times.
    """
    lost, ended = threading.Event(), threading.Event()

    def keep() -> None:
        while not ended.wait(every):
            try:
                renew()
            except Permanent as error:
                log.warning("the work is no more ours", extra={"why": str(error)})
                lost.set()
                return
            except (TsferryError, OSError) as error:
                log.info("a lease is not renewed", extra={"why": str(error)})

    thread = threading.Thread(target=keep, name="lease", daemon=True)
    thread.start()
    try:
        yield lost
    finally:
        ended.set()
        thread.join()
