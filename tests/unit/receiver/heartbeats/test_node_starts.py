"""What a start of a node is to the one that its master knows."""

from __future__ import annotations

from receiver.heartbeats.node_starts import KnownStart, StartStanding, start_standing
from receiver.heartbeats.node_wire import NodeStart

UUID, BOOT, OTHER = "a" * 32, "b" * 32, "c" * 32


def test_a_start_whose_number_was_raised_is_the_same_one_to_a_master_of_before():
    """An operator let it go on with a higher number; then the master was restored from a copy."""
    known = KnownStart(1, BOOT)
    raised = NodeStart(uuid=UUID, instance=2, boot=BOOT)
    assert start_standing(known, raised, ()) is StartStanding.RESTARTED
    assert start_standing(known, NodeStart(uuid=UUID, instance=2, boot=OTHER), ()) is (
        StartStanding.CLONE
    )
