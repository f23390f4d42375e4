"""Past is what every single point is; nothing else ever expires."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from receiver.load.deciding.expiry import Expiry
from receiver.metadata.schema import Schema

NOW = 1_000.0
groups = st.dictionaries(st.sampled_from("abc"), st.none() | st.integers(1, 1_000_000), max_size=3)
times = st.integers(-2_000_000, 2_000_000)
points = st.dictionaries(
    st.tuples(st.sampled_from("abcd"), st.sampled_from(["d1", "d2"])),
    st.lists(times, max_size=3),
    max_size=4,
)


def schema_of(ttls: dict[str, int | None]) -> Schema:
    schema = Schema()
    for ts, (name, ttl) in enumerate(ttls.items(), 1):
        schema.changes.set_storage_group(("root", name), ts)
        schema.changes.set_ttl(("root", name), ttl, ts + 10)
    return schema


@given(groups, points)
def test_a_file_expires_exactly_if_each_of_its_points_has(
    ttls: dict[str, int | None], file: dict[tuple[str, str], list[int]]
) -> None:
    expiry = Expiry(schema_of(ttls), NOW, "ms")
    every = [(sg, time) for (sg, _), found in file.items() for time in found]
    expired = bool(every) and all(
        (ttl := ttls.get(sg)) is not None and time < NOW * 1000 - ttl for sg, time in every
    )
    ranges = [
        (f"root.{sg}.{device}", min(found), max(found))
        for (sg, device), found in file.items()
        if found
    ]
    assert expiry.is_past(ranges) == expired
    devices = [name for name, _, _ in ranges]
    last = max((last for _, _, last in ranges), default=None)
    if expiry.is_past_word("root.a", devices, last):
        assert expired or not ranges
