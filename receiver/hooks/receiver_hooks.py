"""The hooks of a running receiver."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

from common.hooks.hook_event import HookSource
from common.hooks.hook_service import HookService
from receiver.hooks.commit_log import CommitLog

if TYPE_CHECKING:
    from receiver.config import ReceiverConfig
    from receiver.metadata.engine import Engine

__all__ = ["open_receiver_hooks", "receiver_source"]


def open_receiver_hooks(config: ReceiverConfig, engine: Engine) -> HookService:
    """The hooks of a receiver; the threads are not started.

    Args:
        config: of the receiver.
        engine: whose commits are told.
    """
    who = receiver_source(engine.uuid)
    log = CommitLog(engine, who)
    return HookService.open(config.hooks, config.schema_dir, who, log=log, clock=engine.clock)


def receiver_source(uuid: str) -> HookSource:
    """Who tells, at a receiver.

    Args:
        uuid: of the engine.
    """
    return HookSource(program="receiver", uuid=uuid, label=socket.gethostname())
