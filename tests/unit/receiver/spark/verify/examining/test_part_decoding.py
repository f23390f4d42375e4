"""What passes by while a file is decoded is counted right, at the ends of time too."""

from __future__ import annotations

from pathlib import Path

from receiver.points.reader import TsFileReader
from tests.support.tsfile_bytes import build


def test_a_gap_of_all_of_time_is_the_longest_that_can_be_told(tmp_path: Path) -> None:
    from receiver.spark.verify.examining.part_decoding import _Steps

    path = tmp_path / "1-1-0-0.tsfile"
    path.write_bytes(build({"root.sg.d": {"s": [(-(1 << 63), 1), (0, 2), ((1 << 63) - 1, 3)]}}))
    steps = _Steps("s")
    with TsFileReader(path) as file:
        (device,) = file.tail.devices

        def observe(_measurement: str, block: object) -> None:
            steps.look(block.times)  # type: ignore[attr-defined]

        assert all(each.rows == 3 for each in file.summaries(device, observe=observe))
    span = steps.span("root.sg.d")
    assert span is not None
    assert (span.gap, span.gap_begins) == ((1 << 63) - 1, -(1 << 63))
    assert span.interval == (1 << 63) - 1
