"""Edges that send files to nodes by tickets, with all that may come in between: `EdgesWithTickets`.

Beside them others send to masters, as edges of 0.1.0 do: files of the same tablets, and the same
file once a ticket does not help. The oracle knows nothing of tickets. What counts is what an edge
is told by a master; what lies staged at a node is no copy of anything.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from common.errors import TsferryError
from common.tsfile.tail_digest import tail_digest
from common.wire import PlanEntry, UploadNode
from tests.support.homed_nodes import HomedNode
from tests.support.masters_and_edges import GROUP, MASTER, NODE, MastersAndEdges
from tests.support.two_masters import OneOfTwo

__all__ = ["EdgesWithTickets"]

_DAY = 86400.0
_MOMENT = st.sampled_from(("begin", "half", "whole", "read"))
_MEANWHILE = st.sampled_from(("", "node", "power", "anew", "stand-by", "drain", "clock", "lie"))


@dataclass
class _Sending:
    """A file that an edge sends to a node, and the ticket that it has for it."""

    entry: PlanEntry
    sender: str
    ticket: UploadNode | None = None


class EdgesWithTickets(MastersAndEdges):
    """See the module."""

    def __init__(self) -> None:
        super().__init__()
        self.sending: dict[str, _Sending] = {}

    @rule(partition=st.integers(0, 1), group=GROUP, at=_MOMENT, meanwhile=_MEANWHILE, pick=MASTER)
    def an_edge_sends_to_a_node(
        self, partition: int, group: str, at: str, meanwhile: str, pick: int
    ) -> None:
        """And something happens behind a step of that."""
        if self.is_turned_back:
            return
        self.there.parted.clear()
        self.somebody_leads()
        self.all_go_on(1)  # else there is hardly ever a ticket
        path = self.new_file(partition, group)
        self.sending[path] = self._new(path)
        self._plan(path)
        if self.sending[path].ticket is None:  # its tablet does not run yet
            self.an_edge_sends(partition, group)
            self.all_go_on(2)
            self._plan(path)
        self._send(path, at, meanwhile, pick)

    @rule(partition=st.integers(0, 1), group=GROUP, at=_MOMENT, meanwhile=_MEANWHILE, pick=MASTER)
    def two_edges_send_one_path_to_nodes(
        self, partition: int, group: str, at: str, meanwhile: str, pick: int
    ) -> None:
        """The other one when the first has sent half of it."""
        self.an_edge_sends_to_a_node(partition, group, "half", "node", pick)
        first = [each for each in sorted(self.sending) if self.at_edge(each)[1] == each]
        if first and not self.is_turned_back:
            path = self.namesake(first[pick % len(first)])
            self.sending[path] = self._new(path)
            self._plan(path)
            self._send(path, at, meanwhile, pick)

    def _new(self, path: str) -> _Sending:
        sender, its = self.at_edge(path)
        content = self.contents[path]
        return _Sending(PlanEntry(path=its, size=len(content), tail=tail_digest(content)), sender)

    @precondition(lambda self: self.sending)
    @rule(anew=st.booleans(), number=st.integers(0, 1 << 16))
    def an_edge_goes_on_with_a_file(self, anew: bool, number: int) -> None:
        """With the ticket that it had, or another one."""
        if self.is_turned_back:
            return
        path = sorted(self.sending)[number % len(self.sending)]
        if anew or self.sending[path].ticket is None:
            self._plan(path)
        self._send(path, "", "", 0)

    @precondition(lambda self: self.sending)
    @rule()
    def edges_give_up_their_tickets(self) -> None:
        """The master gets these files, as it does from an edge that may not send to nodes."""
        self.sending.clear()
        self.an_edge_sends_again_what_it_was_not_told_of()

    @rule(at=NODE, days=st.sampled_from((-30, -1, 0, 1, 30)))
    def the_clock_of_a_node_is_off(self, at: int, days: int) -> None:
        """From one moment to the next, or it is set right again."""
        self.there.nodes[at].is_off_by = days * _DAY

    @rule(at=NODE)
    def a_node_lies_or_does_no_more(self, at: int) -> None:
        """It gives other bytes than it has, to whoever asks."""
        self.there.nodes[at].lies = not self.there.nodes[at].lies

    # -- its steps -----------------------------------------------------------------------------

    def _plan(self, path: str) -> None:
        sending = self.sending[path]

        def plan(master: OneOfTwo) -> None:
            task = hashlib.md5(path.encode()).hexdigest()
            sending.ticket = master.upload_nodes.offer(sending.sender, task, sending.entry, ())

        self._ask(plan)

    def _send(self, path: str, at: str, meanwhile: str, pick: int) -> None:
        """All of it, as far as it goes; what is left goes on another time."""
        sending = self.sending[path]
        if sending.ticket is None:
            return
        node = self._node_of(sending.ticket)
        for step in ("begin", "half", "whole"):
            try:
                if node is None or not self._is_done(node, sending, self.contents[path], step):
                    return
            except TsferryError:
                sending.ticket = None  # it plans anew
                return
            if step == at:
                self._happens(meanwhile, node, pick)
        self._ask(lambda master: self._read_at_node(master, path))
        if at == "read" and node is not None:
            self._happens(meanwhile, node, pick)

    def _node_of(self, ticket: UploadNode) -> HomedNode | None:
        return next((it for it in self.there.nodes if it.url == ticket.url and it.is_up), None)

    def _is_done(self, node: HomedNode, sending: _Sending, content: bytes, step: str) -> bool:
        if not node.is_up or sending.ticket is None:
            return False
        if step == "begin":
            node.uploads.begin(node.door.opens(sending.ticket.ticket, sending.sender))
            return True
        upload = node.door.opens(sending.ticket.ticket, sending.sender).upload
        file = node.door.goes_on(sending.ticket.ticket, sending.sender, upload)
        end = len(content) if step == "whole" else len(content) // 2
        offset = node.uploads.head(file).offset
        if offset < end:
            whole = hashlib.md5(content).hexdigest() if end == len(content) else None
            node.uploads.patch(file, offset, content[offset:end], repr_md5=whole)
        return True

    def _read_at_node(self, master: OneOfTwo, path: str) -> None:
        """The master reads it there, and loads it if it is what the edge says."""
        if path not in self.sending:
            return  # another one has it, and did not say so in time
        sending, content = self.sending[path], self.contents[path]
        assert sending.ticket is not None
        node, entry = sending.ticket.uuid, sending.entry
        try:
            found = master.upload_nodes.read(node, sending.sender, entry, 0, entry.size)
        except TsferryError:
            return
        if hashlib.md5(found).hexdigest() == hashlib.md5(content).hexdigest():
            self._load(master, path)
            del self.sending[path]

    def _happens(self, what: str, node: HomedNode, pick: int) -> None:
        if what == "node" and node.is_up:
            node.stop()
        elif what == "power" and node.is_up:
            node.stop(power=True)
            node.start()
        elif what == "anew":
            self.somebody_leads()
        elif what == "stand-by":
            self.the_other_leads_while_a_master_sleeps(pick, 0)
        elif what == "drain" and node in self.there.nodes:
            self.a_node_is_drained_or_not(self.there.nodes.index(node) % 4)
            self.all_go_on(2)
        elif what == "clock":
            node.is_off_by = 30 * _DAY
            node.goes_on()
        elif what == "lie":
            node.lies = True
