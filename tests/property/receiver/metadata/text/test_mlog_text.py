"""The text log against itself: what is written reads back, and every cut gives a prefix."""

from hypothesis import given
from hypothesis import strategies as st

from common.formats.tlogtext import TlogSlotError, read_slot, write_slot
from receiver.metadata.text import mlog_text
from receiver.metadata.text.mlog_text import (
    AlignedDevice,
    ChangeAlias,
    ChangeOffset,
    CreateSeries,
    DeletePath,
    DeleteStorageGroup,
    SetStorageGroup,
    TtlLine,
)
from tests.support import mlog

words = st.text(min_size=1, max_size=6) | st.sampled_from(
    ["a", "s1", "a,b", "1,2,3", "x=y", "`", "\\", "\\x41", "\n", "\r", '"', "#", "&"]
)
paths = st.lists(words, min_size=1, max_size=4).map(lambda rest: ("root", *rest))
codes = st.integers(0, 255)
offsets = st.just(-1) | st.integers(0, mlog_text.FOREVER)
props = st.dictionaries(words, st.text(max_size=4), max_size=3)
creations = st.builds(CreateSeries, paths, codes, codes, codes, props, st.none() | words, offsets)
records = (
    creations
    | st.builds(DeletePath, paths)
    | st.builds(SetStorageGroup, paths)
    | st.builds(DeleteStorageGroup, paths)
    | st.builds(TtlLine, paths, st.none() | st.integers(1, mlog_text.FOREVER - 1))
    | st.builds(ChangeOffset, paths, offsets)
    | st.builds(ChangeAlias, paths, st.none() | words)
    | st.builds(AlignedDevice, paths)
)


@given(st.lists(records, max_size=8))
def test_what_is_written_in_the_wider_form_reads_back(given_records):
    text = "".join(mlog.dump(given_records)).encode()
    parsed = mlog.parse(text)
    assert [record for _, record in parsed.records] == given_records
    assert not parsed.bad
    assert parsed.end == len(text)


@given(records)
def test_the_plain_form_says_the_same_or_is_known_not_to(record):
    if mlog_text.needs_wide(record):
        return
    parsed = mlog.parse(f"{mlog_text.print_line(record)}\n".encode())
    assert [each for _, each in parsed.records] == [record]


@given(st.lists(records, max_size=5), st.integers(0, 1000))
def test_every_cut_of_a_log_gives_a_prefix_of_its_records(given_records, cut):
    text = "".join(mlog.dump(given_records)).encode()
    parsed = mlog.parse(text[:cut])
    found = [record for _, record in parsed.records]
    assert found == given_records[: len(found)]
    assert not parsed.bad
    assert text[: parsed.end].count(b"\n") == parsed.lines


@given(st.binary(max_size=200) | st.text('0123,root.a&=`"\n#-', max_size=80).map(str.encode))
def test_any_bytes_are_records_or_reports(data):
    parsed = mlog.parse(data)
    assert parsed.end <= len(data)
    assert len(parsed.records) + len(parsed.bad) <= parsed.lines


texts = st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=4)


@given(texts, texts)
def test_slots_read_back(tags, attributes):
    slot = read_slot(write_slot(tags, attributes))
    assert (slot.tags, slot.attributes) == (tags, attributes)


@given(st.binary(max_size=60))
def test_any_bytes_are_a_slot_or_an_error(data):
    try:
        slot = read_slot(data)
    except TlogSlotError:
        return
    assert slot.size <= len(data)
