"""What the page keeps between requests: who is logged in, wrong logins, what was loaded when."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from receiver.operator.edges.load_rates import LoadRates
from receiver.web.ui.login_limits import LoginLimits
from receiver.web.ui.page_sessions import PageSessions

if TYPE_CHECKING:
    from collections.abc import Callable

    from receiver.config import ReceiverConfig
    from receiver.metadata.engine import Engine

__all__ = ["PageState"]


class PageState:
    """Of one server; it ends with it.

    Attributes:
        sessions: who is logged in.
        limits: of wrong logins.
        rates: what each edge had loaded, by hour.
        cookie: name of the session's cookie. Cookies are shared by all ports of a host, so
            receivers on one machine have one each.
        cookie_path: where it is sent.
        secure: whether it goes over TLS only.
    """

    def __init__(
        self,
        config: ReceiverConfig,
        engine: Engine,
        clock: Callable[[], float],
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begin with nobody.

        Args:
            config: of the receiver.
            engine: of it.
            clock: seconds since the epoch.
            monotonic: seconds that nobody sets, by which sessions end.
        """
        self.sessions = PageSessions(config.page.session, config.page.idle, monotonic)
        self.limits = LoginLimits(monotonic)
        self.rates = LoadRates(engine, clock)
        self.secure = config.listen.tls
        # A browser takes a cookie of this kind only from the very host, over TLS, for all paths.
        prefix, self.cookie_path = ("__Host-", "/") if self.secure else ("", "/ui/")
        self.cookie = f"{prefix}tsferry-{engine.uuid[:8]}"
