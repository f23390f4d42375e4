"""For which devices the word of a sender counts: its own, and those that nobody owns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from receiver.metadata.commit.guards import Guard
from receiver.metadata.model.paths import Nodes, device_name, format_path

if TYPE_CHECKING:
    from receiver.metadata.state.state import State
    from receiver.scope import Scope

__all__ = ["Authority"]


class Authority:
    """Whose word it is, and for which devices it counts."""

    def __init__(self, state: State, sender: str | None, scope: Scope) -> None:
        """Judge for a sender, or, for None, an operator.

        Args:
            state: committed.
            sender: uuid.
            scope: of the sender's token.
        """
        self._state = state
        self._sender = sender
        self._scope = scope
        self._seen: dict[Nodes, str | None] = {}
        self.guards: list[Guard] = []

    def refusal(self, device: Nodes) -> str | None:
        """Why nothing of this device is changed; None: it may be."""
        if self._sender is None:
            return None
        if device not in self._seen:
            self._seen[device] = self._judge(device_name(device))
        return self._seen[device]

    def _judge(self, device: str) -> str | None:
        if not self._scope.covers(device):
            return f"device {device} is outside of the token's scope"
        owner = self._state.owners.get(device)
        if owner is not None and owner.sender != self._sender:
            return f"device {device} belongs to another sender"
        self.guards.append(Guard("owner", device, 0 if owner is None else owner.changed))
        return None

    def refusal_of_group(self, group: Nodes) -> str | None:
        """Why a storage group is not made; None: it may be."""
        if self._sender is None or self._scope.reaches_below(format_path(group)):
            return None
        return f"storage group {format_path(group)} is outside of the token's scope"
