"""The hooks of a sender: of the daemon, whose threads tell, or of a single round."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Final

from common.hooks.hook_event import HookSource
from common.hooks.hook_service import HookService
from sender.hooks.round_events import tell_round

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from sender.config import SenderConfig
    from sender.round.round_words.round_report import RoundReport

__all__ = ["hooks_directory", "open_sender_hooks", "tell_of_rounds"]

_log = logging.getLogger(__name__)

_TRIES: Final = (0.5,) * 40
"""Pauses of a `sync` until another one that tells has ended."""
_DRAIN_S: Final = 12.0
"""For which a `sync` goes on telling, and three more for what is on its way then; what is left is
told by the next."""


def hooks_directory(schema_dir: Path) -> Path:
    """The directory above that of the queues."""
    return schema_dir / "sync"


def open_sender_hooks(config: SenderConfig, uuid: str, label: str) -> HookService:
    """The hooks of a daemon; the threads are not started.

    Args:
        config: of the sender.
        uuid: of it.
        label: that it goes by.
    """
    who = HookSource(program="sender", uuid=uuid, label=label)
    return HookService.open(config.hooks, hooks_directory(config.schema_dir), who)


def tell_of_rounds(
    config: SenderConfig,
    uuid: str,
    label: str,
    reports: Iterable[RoundReport],
    *,
    sleep: Callable[[float], object] = time.sleep,
) -> None:
    """Tell what came of rounds that no daemon did, and what waits from before.

    Args:
        config: of the sender.
        uuid: of it.
        label: that it goes by.
        reports: of the rounds.
        sleep: waits so many seconds.
    """
    if not config.hooks.are_any:
        return
    who = HookSource(program="sender", uuid=uuid, label=label)
    above = hooks_directory(config.schema_dir)
    with HookService.open(config.hooks, above, who, tries=_TRIES, sleep=sleep) as hooks:
        for report in reports:
            try:
                tell_round(hooks, uuid, label, report)
            except Exception:
                _log.exception("hooks: what a round came to could not be told")
        hooks.drain(_DRAIN_S)
