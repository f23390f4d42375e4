from __future__ import annotations

import pytest

from common.errors import NotFoundError
from receiver.node import Node
from receiver.operator.senders import accept_sender
from tests.support.node_world import (
    A,
)


def test_a_sender_that_was_never_here_is_not_found(node: Node) -> None:
    with pytest.raises(NotFoundError):
        accept_sender(node.engine, A)
