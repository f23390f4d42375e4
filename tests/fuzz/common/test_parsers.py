"""Parsers of names, logs and bodies against damaged input: a verdict each time, nothing else."""

from __future__ import annotations

import tracemalloc

import pytest

from common import wire
from common.digests import xxh3_64
from common.errors import DigestError, NameRefusedError, ProtocolError
from common.formats.linelog import parse_lines, parse_load, parse_paths, parse_sync
from common.formats.schemaitems import Group, SeriesItem, encode_items, read_items
from common.formats.schemawire import decode_block, encode_schema_block
from common.formats.tlogtext import TlogSlotError, read_slot, write_slot
from common.names import FilePath, escape, unescape
from receiver.metadata.text import mlog_text
from tests.support import mlog
from tests.support.mutate import mutants

ROUNDS = 4000
PATHS = [
    "sequence/root.turbine/0/0/1581324718762-101-1.tsfile",
    "unsequence/root.größe_1/3/-7/1-2-3-4.tsfile.resource",
    "sequence/root.two words/0/9223372036854775807/x.tsfile",
]
SYNC = (
    f"sync start {'0' * 32}\nsync deleted file names start\n{PATHS[0]}\n"
    f"sync deleted file names end\nsync tsfile start\n{PATHS[1]}\n{PATHS[2]}\n"
    "sync tsfile end\nsync end\n"
).encode()
LOAD = f"delete {PATHS[0]}\nload {PATHS[1]}\nload {PATHS[2]}\n".encode()


@pytest.mark.parametrize(
    ("parse", "seed"), [(parse_lines, LOAD), (parse_sync, SYNC), (parse_load, LOAD)]
)
def test_a_damaged_log_gives_its_good_part(parse, seed):
    for data in mutants([seed, SYNC, LOAD], ROUNDS):
        read = parse(data)
        assert 0 <= read.good_bytes <= len(data)
        again = parse(data[: read.good_bytes])
        assert again.problem is None
        assert (read.problem is None) == (read.good_bytes == len(data))


@pytest.mark.parametrize("seed", range(3))
def test_a_damaged_list_gives_paths_that_pass_the_door(seed):
    for data in mutants(["\n".join([*PATHS, ""]).encode()], ROUNDS, seed):
        paths, problem = parse_paths(data)
        assert all(FilePath.parse(path.text) == path for path in paths)
        if problem is None:
            assert "".join(f"{path}\n" for path in paths).encode() == data


def test_a_damaged_path_is_itself_or_refused():
    refused = []
    for data in mutants([each.encode() for each in PATHS], 3 * ROUNDS):
        text = data.decode("utf-8", "surrogateescape")
        try:
            assert FilePath.parse(text).text == text
        except NameRefusedError as error:
            refused.append(str(error))
    assert refused
    assert all(message.isascii() for message in refused)


def test_a_damaged_escape_is_itself_or_refused():
    for data in mutants([escape(each).encode() for each in [*PATHS, "::1", "", "."]], ROUNDS):
        text = data.decode("utf-8", "surrogateescape")
        try:
            assert escape(unescape(text)) == text
        except NameRefusedError:
            continue


def batch() -> bytes:
    contents = [b"one", b"", bytes(300)]
    return wire.encode_batch(
        (
            wire.BatchEntry(path=path, size=len(each), md5="0" * 32, xxh3=xxh3_64(each)),
            each,
        )
        for path, each in zip(PATHS, contents, strict=True)
    )


def test_a_damaged_batch_is_refused_or_cut_within_its_bytes():
    tracemalloc.start()
    for data in mutants([batch()], ROUNDS):
        try:
            total = sum(len(content) for _, content in wire.decode_batch(data))
            assert total <= len(data)
        except ProtocolError:
            continue
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4 << 20


BODIES = [
    wire.encode(
        wire.PlanPage(
            entries=[
                wire.PlanEntry(path=PATHS[0], size=5, tail="0" * 32, devices=["root.a.b"]),
                wire.PlanEntry(
                    path=PATHS[1], size=6, tail="1" * 32, first_time=-5, last_time=9,
                    resource=wire.ResourceEntry(size=1, md5="0" * 32),
                ),
            ]
        )
    ),
    wire.encode(
        wire.Problem(type="urn:tsferry:busy", status=503, retry_after=1.5, offset=3, device="d")
    ),
]  # fmt: skip


def test_a_damaged_body_is_a_value_or_a_protocol_error():
    for data in mutants(BODIES, 2 * ROUNDS):
        for kind in (wire.PlanPage, wire.Problem):
            try:
                value = wire.decode(data, kind, "body")
            except ProtocolError:
                continue
            assert wire.decode(wire.encode(value), kind, "body") == value
            if isinstance(value, wire.Problem):
                assert wire.from_problem(value).message


# -- schemas -------------------------------------------------------------------------------------

MLOG = (
    b"2,root.turbine\n10,root.turbine,3600000\n"
    b"0,root.turbine.d,1.s1,3,2,1,k=v&l=w,temperature,700\n"
    b'0,root.turbine."a.b".`c,d`,2,0,0,,,\n12,root.turbine.d,1.s1,1400\n'
    b"13,root.turbine.d,1.s1,x\n1,root.turbine.d,1.s1\n11,root.turbine\n"
)
BLOCK = encode_schema_block(
    wire.SchemaKind.TEXT, "log", 0, 0, MLOG, {700: write_slot({"k": "v"}, {"a": "b"}, None)}
)
ITEMS = encode_items(
    [
        Group(path="root.a", ttl=5),
        SeriesItem(path="root.a.b.c", type=1, encoding=0, compression=1, tags={"k": "v"}),
    ]
)


@pytest.mark.parametrize("wide", [False, True])
def test_a_damaged_schema_log_gives_records_and_reports(wide):
    seeds = [MLOG, mlog_text.HEADER.encode() + b"\n" + MLOG]
    for data in mutants(seeds, ROUNDS):
        parsed = mlog.parse(data, wide=wide)
        assert parsed.end <= len(data)
        assert len(parsed.records) + len(parsed.bad) <= parsed.lines
        for _, record in parsed.records:
            line = mlog_text.print_line(record, wide=True)
            assert mlog_text.parse_line(line, wide=True) == record


def test_a_damaged_slot_is_one_or_an_error():
    for data in mutants([write_slot({"k": "v", "größe": ""}, {"a": "b"}, None)], ROUNDS):
        try:
            slot = read_slot(data)
        except TlogSlotError:
            continue
        assert slot.size <= len(data)


def test_a_damaged_block_is_refused_or_whole():
    for data in mutants([BLOCK], ROUNDS):
        try:
            block = decode_block(data)
        except (ProtocolError, DigestError):
            continue
        assert block.end <= len(data)
        assert len(block.data) == block.head.size


def test_damaged_items_are_items_or_reports():
    for data in mutants([ITEMS], ROUNDS):
        found = list(read_items(data))
        assert len(found) == data.count(b"\n")
