"""Structs are decoded by decoders that are made one at a time."""

import re
import threading

import msgspec

from common.decoders import from_json
from tests.support.architecture import PACKAGES, ROOT


def test_no_struct_is_decoded_past_the_one_maker_of_decoders():
    found = [
        f"{path.relative_to(ROOT)}: {each}"
        for package in PACKAGES
        for path in (ROOT / package).rglob("*.py")
        for each in re.findall(r"json\.decode\([^\n]*type=", path.read_text(encoding="utf-8"))
    ]
    assert found == []


def test_threads_that_decode_a_struct_for_the_first_time_share_one_decoder():
    for number in range(50):
        kind = msgspec.defstruct(f"Kind{number}", [("a", list[int]), ("b", dict[str, int])])
        start, seen = threading.Barrier(4), []

        def work(kind=kind, start=start, seen=seen):
            start.wait(60)
            seen.append(from_json(b'{"a": [1], "b": {"c": 2}}', kind))

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert [(each.a, each.b) for each in seen] == [([1], {"c": 2})] * 4
