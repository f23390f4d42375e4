from __future__ import annotations

import pytest

from common.config import Timetable
from common.network.bandwidth import Bandwidth
from sender.send.connection.paced_body import PacedBody


def test_a_body_is_read_whole_and_paced():
    now = [1000.0]

    def sleep(seconds: float) -> bool:
        now[0] += seconds
        return False

    line = Bandwidth(Timetable.parse("1000/s"), sleep=sleep, clock=lambda: now[0])
    body = PacedBody(bytes(range(256)) * 8, line)
    assert len(body) == 2048
    pieces = list(body)
    assert b"".join(pieces) == bytes(range(256)) * 8
    assert max(map(len, pieces)) == 250
    assert now[0] - 1000.0 == pytest.approx(2.0, abs=0.3)
