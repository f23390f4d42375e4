"""Posts events to a webhook, signed; what the other side says to that.

Any 2xx takes the event. A redirect is a failure: who may be told is in the configuration. 410 says
that nothing is wanted any more. `Retry-After` is heeded.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from http.client import HTTPException, RemoteDisconnected
from pathlib import Path
from typing import TYPE_CHECKING

import common
from common.console.terminal import printable
from common.errors import ConfigError
from common.hooks.delivery_outcome import DeliveryOutcome
from common.hooks.hooks_config import HooksConfig, shown_address
from common.hooks.webhook_signing import signature_headers
from common.text_numbers import retry_after_seconds

if TYPE_CHECKING:
    import requests

    from common.hooks.hook_event import HookEvent

__all__ = ["Webhook"]

_SHOWN = 200
_GONE = 410
_NO_HTTP = "what it answers is no HTTP, or was cut off"


class Webhook:
    """A webhook; one thread at a time.

    Args:
        config: says where it is, and what requests are signed with.
        clock: seconds since the epoch.
    """

    def __init__(self, config: HooksConfig, clock: Callable[[], float] = time.time) -> None:
        assert config.webhook is not None
        self._config = config
        self._clock = clock
        self._url = config.webhook
        self._shown = shown_address(config.webhook)

    def post(self, event: HookEvent) -> DeliveryOutcome:
        """Post an event, on a connection of its own."""
        import requests.exceptions

        from common.network.timed_http import timed_session

        try:
            key = self._config.key()
        except ConfigError as error:
            return DeliveryOutcome(ok=False, text=error.message)
        body, now = event.line(), self._clock()
        headers = signature_headers(key, event.id, now, body) | {
            "Content-Type": "application/json",
            "User-Agent": f"tsferry-{event.who.program}/{common.__version__}",
            "Accept-Encoding": "identity",
        }
        ca_cert = self._config.ca_cert
        try:
            with (
                timed_session() as session,
                session.post(
                    self._url,
                    data=body,
                    headers=headers,
                    timeout=self._config.timeout,
                    verify=True if ca_cert is None else str(ca_cert),
                    allow_redirects=False,
                    stream=True,  # its body is nothing to us, however long it is
                ) as answer,
            ):
                return self._judged(answer)
        except requests.exceptions.Timeout:
            text = f"{self._shown}: no answer within {self._config.timeout:g} s"
        except OSError as error:  # of requests' own errors all are
            text = f"{self._shown}: {self._words(error, ca_cert)}"
        return DeliveryOutcome(ok=False, text=text)

    def _judged(self, answer: requests.Response) -> DeliveryOutcome:
        status = answer.status_code
        text = f"{self._shown}: HTTP {status}"
        if 300 <= status < 400:
            text += (
                ": it redirects, which is not followed: hooks.webhook has to be the address itself"
            )
        elif status == _GONE:
            text += ": it wants no events any more"
        return DeliveryOutcome(
            ok=200 <= status < 300,
            text=text,
            retry_after=retry_after_seconds(answer.headers.get("Retry-After"), self._clock()),
            gone=status == _GONE,
        )

    def _words(self, error: OSError, ca_cert: Path | None) -> str:
        """What went wrong, without what stands behind the host."""
        if ca_cert is not None and not ca_cert.is_file():
            return f"ca_cert {ca_cert}: there is no such file"
        words, cause = "", error
        seen: set[int] = set()
        pending: list[object] = [error]
        while pending:
            cause = pending.pop()  # type: ignore[assignment]  # errors wrap in arguments as well
            if not isinstance(cause, BaseException) or id(cause) in seen:
                continue
            seen.add(id(cause))
            said = getattr(cause, "verify_message", None) or getattr(cause, "strerror", None)
            if isinstance(cause, HTTPException):
                cut = isinstance(cause, RemoteDisconnected)
                said = "it closed the connection before its answer" if cut else _NO_HTTP
            words = said if isinstance(said, str) and said else words
            pending += [cause.__cause__, cause.__context__, getattr(cause, "reason", None)]
            pending += cause.args
        return printable((words or type(error).__name__)[:_SHOWN])
