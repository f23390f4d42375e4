"""Devices and the senders that they take data from."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from common.errors import NotFoundError
from receiver.metadata.commit.guards import Guard
from receiver.metadata.model import records
from receiver.operator.paging import every_row
from receiver.operator.views import OwnersPage, OwnerView
from receiver.transfer.listing import page_limit

if TYPE_CHECKING:
    from receiver.metadata.engine import Engine
    from receiver.operator.directories import ReceiverDirectories
    from receiver.principal import Principal

__all__ = ["list_owners", "set_owner"]


def list_owners(
    there: ReceiverDirectories,
    *,
    sender: str | None = None,
    after: str | None = None,
    limit: int | None = None,
) -> OwnersPage:
    """A page of devices that have an owner, of one sender if told so, in order of their names."""
    limit = page_limit(limit, there.config.limits.max_page_items)
    every = every_row(
        there.engine,
        lambda state, behind, count: state.owner_table.page(behind, count),
        lambda each: each[0],
        after,
    )
    wanted = (each for each in every if sender is None or each[1].sender == sender)
    found = list(islice(wanted, limit + 1))  # one more says whether there is a page after this one
    page = found[:limit]
    with there.engine.reading() as state:
        known = [state.senders.get(row.sender) for _, row in page]
    return OwnersPage(
        owners=[
            OwnerView(
                device=device,
                sender=row.sender,
                label="" if owner is None else owner.label,
                since=row.since,
            )
            for (device, row), owner in zip(page, known, strict=True)
        ],
        next=page[-1][0] if len(found) > limit else None,
    )


def set_owner(engine: Engine, who: Principal, device: str, sender: str | None) -> int:
    """The device belongs to `sender` from now on, or to whoever comes first; returns the commit.

    Raises:
        NotFoundError: the device has no owner, or there is no such sender.
    """
    with engine.reading() as state:
        seen = state.changed("owner", device)
        known = sender is None or sender in state.senders
    if not seen:
        raise NotFoundError(f"nobody owns the device {device[:200]!a}")
    if not known:
        raise NotFoundError(f"sender {(sender or '')[:60]!a} is not known here")
    by = f"token {who.token_id}" if who.token_id else "an operator"
    reason = f"{'released' if sender is None else 'transferred'} by {by}"
    return engine.commit([records.OwnerSet(device, sender, reason)], [Guard("owner", device, seen)])
