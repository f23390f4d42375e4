"""Messages of a master that arrive when another one leads already, at each step: `LateMessages`.

An answer to a node is held back behind any of its calls, an order or a question of a master before
any of those. Meanwhile the other master takes over, and all others go on. What comes then is of one
that was right when it spoke.
"""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import strategies as st
from hypothesis.stateful import rule

from tests.support.homed_nodes import HomedNode
from tests.support.masters_and_edges import GROUP, MASTER, NODE, MastersAndEdges
from tests.support.two_masters import LEASE, OneOfTwo

__all__ = ["LateMessages"]

_STEP = st.integers(0, 7)


class LateMessages(MastersAndEdges):
    """See the module."""

    @rule(host=NODE, step=_STEP, partition=st.integers(0, 1), group=GROUP, deletes=st.booleans())
    def an_answer_of_a_master_comes_late(
        self, host: int, step: int, partition: int, group: str, deletes: bool
    ) -> None:
        """To one of the calls that a node makes in a round: a list, what may go, a heartbeat."""
        node = self.there.nodes[host]
        self.an_edge_sends(partition, group)
        left = [step]

        def arrive(master: OneOfTwo) -> None:
            left[0] -= 1
            if left[0] < 0:
                node.on_answer = lambda _: None
                self._another_leads(master, node, deletes)

        node.on_answer = arrive
        self._goes_on(node)
        node.on_answer = lambda _: None
        self._goes_on(node)
        self.an_edge_asks()

    @rule(at=MASTER, step=st.integers(0, 2), deletes=st.booleans())
    def an_order_of_a_master_comes_late(self, at: int, step: int, deletes: bool) -> None:
        """Each of those of a pass may be the one before which it sleeps."""
        self.all_go_on(1)
        self.a_node_is_drained_or_not(step)  # else there is hardly ever an order
        self._late_in(at, step, deletes, lambda master: master.one_pass())

    @rule(at=MASTER, step=_STEP, deletes=st.booleans())
    def a_question_for_a_proof_comes_late(self, at: int, step: int, deletes: bool) -> None:
        """What was proved to it lets nothing go: it cannot commit that."""
        self.an_edge_sends(step % 2, "root.wind")
        self.all_go_on(2)
        self._late_in(at, step, deletes, lambda master: master.evict())

    def _late_in(
        self, at: int, step: int, deletes: bool, does: Callable[[OneOfTwo], object]
    ) -> None:
        master, left = self.there.masters[at], [step]

        def sleep() -> None:
            left[0] -= 1
            if left[0] < 0:
                master.before_order = lambda: None
                self._another_leads(master, None, deletes)

        master.before_order = sleep
        does(master)
        master.before_order = lambda: None
        self.nodes_report_and_pull()
        self.an_edge_asks()

    def _another_leads(self, master: OneOfTwo, busy: HomedNode | None, deletes: bool) -> None:
        """For as long as it takes to place, to pull and to forget; then the first wakes up."""
        master.is_paused = True
        self.there.pass_time(LEASE + 1)
        other = next(each for each in self.there.masters if each is not master)
        if not other.is_alive:
            other.take_over()
        for _ in range(2):
            for each in self.there.nodes:
                if each is not busy:
                    self._goes_on(each)
            other.one_pass()
            self.there.pass_time(6.0)
        self.an_edge_asks()
        if deletes:
            self.an_operator_deletes_a_file(0)
        master.is_paused = False
