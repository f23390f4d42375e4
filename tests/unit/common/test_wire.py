"""Wire types: what one end says the other reads, and nothing hostile gets past the door."""

from __future__ import annotations

import enum
import struct
import types
import typing

import msgspec
import pytest

from common import errors, wire
from common.digests import xxh3_64
from common.errors import DigestError, ProtocolError, TsferryError
from common.names import FilePath

STRUCTS = [
    each
    for each in vars(wire).values()
    if isinstance(each, type) and issubclass(each, wire.Struct) and each is not wire.Struct
]


def sample(kind, full):
    """A value of an annotation: as much in it as it holds, or as little."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Annotated:
        return sample(arguments[0], full)
    if origin in (typing.Union, types.UnionType):
        return sample(arguments[0], full) if full else None
    if origin is list:
        return [sample(arguments[0], full)] * 2 if full else []
    if origin is dict:
        return {sample(arguments[0], full): sample(arguments[1], full)} if full else {}
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return list(kind)[-1 if full else 0]
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return filled(kind, full)
    return {str: "täxt" if full else "", int: (1 << 53) + 1 if full else 0, bool: full,
            bytes: b"\0\xff" if full else b"",
            float: 1.5 if full else 0.0}[kind]  # fmt: skip


def filled(kind, full):
    hints = typing.get_type_hints(kind, include_extras=True)
    return kind(**{name: sample(hints[name], full) for name in kind.__struct_fields__})


@pytest.mark.parametrize("kind", STRUCTS, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("full", [True, False], ids=["full", "empty"])
def test_every_type_reads_back_as_it_was_said(kind, full):
    value = filled(kind, full)
    assert wire.decode(wire.encode(value), kind, "x") == value


@pytest.mark.parametrize("kind", STRUCTS, ids=lambda kind: kind.__name__)
def test_what_has_its_default_is_left_out_and_comes_back_as_it(kind):
    required = [field for field in msgspec.structs.fields(kind) if field.required]
    hints = typing.get_type_hints(kind, include_extras=True)
    value = kind(**{field.name: sample(hints[field.name], full=False) for field in required})
    assert set(msgspec.json.decode(wire.encode(value))) == {field.name for field in required}
    assert wire.decode(wire.encode(value), kind, "x") == value


@pytest.mark.parametrize("kind", STRUCTS, ids=lambda kind: kind.__name__)
def test_a_newer_peer_may_say_more_and_in_any_order(kind):
    value = filled(kind, full=True)
    members = msgspec.json.decode(wire.encode(value))
    said = msgspec.json.encode({"news": [1, {"a": None}], **dict(reversed(members.items()))})
    assert wire.decode(said, kind, "x") == value


ENUMS = [
    (kind, field.name, member)
    for kind in STRUCTS
    for field in msgspec.structs.fields(kind)
    for hint in [typing.get_type_hints(kind)[field.name]]
    if isinstance(hint, type) and issubclass(hint, enum.Enum)
    for member in hint
]


@pytest.mark.parametrize(("kind", "name", "member"), ENUMS, ids=lambda each: str(each)[-30:])
def test_every_word_of_an_enumeration_comes_through(kind, name, member):
    value = msgspec.structs.replace(filled(kind, full=True), **{name: member})
    again = wire.decode(wire.encode(value), kind, "x")
    assert getattr(again, name) is member


@pytest.mark.parametrize("kind", STRUCTS, ids=lambda kind: kind.__name__)
def test_types_are_frozen_and_take_names_only(kind):
    value = filled(kind, full=True)
    with pytest.raises(AttributeError):
        setattr(value, kind.__struct_fields__[0], None)
    with pytest.raises(TypeError):
        kind("positional")


def test_lists_are_not_shared_between_values():
    one, two = (wire.TaskAnswer(task="a", state=wire.TaskState.OPEN) for _ in range(2))
    one.outcomes.append(1)
    assert two.outcomes == []


@pytest.mark.parametrize(
    "body",
    [
        b"", b"{", b"null", b"[]", b'"x"', b"\xff\xfe", b"{}", b'{"paths": null}',
        b'{"paths": [1]}',
        b'{"paths": ["\xff"]}', b'{"paths": ["\\ud800"]}', b"[" * 200_000, b'{"paths":' * 100_000,
        b'{"paths": [], "paths": 1}', b"{'paths': []}", b'{"paths": [NaN]}',
    ],
    ids=lambda body: ascii(body[:20]),
)  # fmt: skip
def test_a_body_that_is_none_is_a_protocol_error_that_names_it(body):
    with pytest.raises(ProtocolError, match="the page"):
        wire.decode(body, wire.DeletedPage, "the page")


@pytest.mark.parametrize(
    "size", ["-1", "9223372036854775808", "1" * 30, "9" * 5000, "1.0", "1e3", "true", '"1"', "null"]
)
def test_a_number_that_fits_nowhere_is_refused_at_the_door(size):
    body = f'{{"path": "x", "size": {size}, "md5": "x", "series": 0, "points": 0}}'
    with pytest.raises(ProtocolError):
        wire.decode(body.encode(), wire.ManifestEntry, "manifest")


def test_the_largest_numbers_come_through():
    body = (
        b'{"path": "x", "size": 9223372036854775807, "tail": "",'
        b' "first_time": -9223372036854775808}'
    )
    entry = wire.decode(body, wire.PlanEntry, "plan")
    assert (entry.size, entry.first_time) == (2**63 - 1, -(2**63))
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(entry), type=wire.PlanEntry) == entry


# -- problems ------------------------------------------------------------------------------------


def classes(root=TsferryError):
    yield root
    for child in root.__subclasses__():
        if child.__module__ == errors.__name__:
            yield from classes(child)


@pytest.mark.parametrize("kind", list(classes()), ids=lambda kind: kind.__name__)
def test_every_error_arrives_as_what_it_was(kind):
    error = kind("message", retry_after=2.5, extra={"offset": 7, "device": "root.d", "path": "p"})
    problem = wire.decode(wire.encode(wire.to_problem(error)), wire.Problem, "problem")
    assert problem.status == kind.http_status
    assert problem.type == f"urn:tsferry:{kind.slug}"
    again = wire.from_problem(problem)
    assert type(again) is kind
    assert (again.message, again.retry_after, again.extra) == (
        "message", 2.5, {"offset": 7, "device": "root.d", "path": "p"},
    )  # fmt: skip


def test_the_path_of_the_caller_wins():
    problem = wire.to_problem(errors.ConflictError("x", extra={"path": "a"}), path="b")
    assert problem.path == "b"


@pytest.mark.parametrize(
    "extra",
    [
        {"offset": "5"}, {"offset": None}, {"device": 5}, {"path": object()}, {"pid": "5"},
        {"path": "x\udcff"}, {"device": "\ud800"},
    ],
)  # fmt: skip
def test_an_error_can_be_told_whatever_is_in_it(extra):
    problem = wire.to_problem(errors.ConflictError("name \udcff", extra=extra))
    assert "\\udcff" in wire.decode(wire.encode(problem), wire.Problem, "x").detail


@pytest.mark.parametrize("said", [-5.0, 1e300, 10**300])
def test_nobody_is_put_to_sleep_for_ever_by_the_other_side(said):
    body = msgspec.json.encode({"type": "urn:tsferry:busy", "status": 503, "retry_after": said})
    error = wire.from_problem(wire.decode(body, wire.Problem, "x"))
    assert 0 <= error.retry_after <= 86_400


@pytest.mark.parametrize(
    ("problem", "kind"),
    [
        (wire.Problem(), errors.Transient),
        (wire.Problem(type="urn:tsferry:invented-later", status=429), errors.Permanent),
        (wire.Problem(type="urn:tsferry:invented-later", status=503), errors.Transient),
        (wire.Problem(type="https://example.com/p", status=404), errors.Permanent),
        (wire.Problem(type="urn:tsferry:internal", status=500), TsferryError),
    ],
)
def test_a_problem_of_an_unknown_kind_is_judged_by_its_status(problem, kind):
    error = wire.from_problem(problem)
    assert type(error) is kind
    assert error.message


# -- batches -------------------------------------------------------------------------------------


def entry(content=b"content", **changed):
    said = {"path": "p", "size": len(content), "md5": "0" * 32, "xxh3": xxh3_64(content)}
    return wire.BatchEntry(**{**said, **changed})


def read(body):
    return [(header, bytes(content)) for header, content in wire.decode_batch(body)]


def test_a_batch_reads_back():
    files = [(entry(each), each) for each in (b"", b"x", b"TSFB\x01" * 100, bytes(range(256)))]
    assert read(wire.encode_batch(files)) == files
    assert read(wire.encode_batch([])) == []


def test_every_truncation_of_a_batch_is_noticed():
    files = [(entry(each), each) for each in (b"one", b"two")]
    body = wire.encode_batch(files)
    ends = {5: 0, 5 + (len(body) - 5) // 2: 1, len(body): 2}
    for cut in range(len(body) + 1):
        if cut in ends:
            assert read(body[:cut]) == files[: ends[cut]]
        else:
            with pytest.raises(ProtocolError):
                read(body[:cut])


def framed(header: bytes, content: bytes = b"") -> bytes:
    return b"TSFB\x01" + struct.pack(">I", len(header)) + header + content


HEADER = wire.encode(entry(size=100))


@pytest.mark.parametrize(
    "body",
    [
        b"", b"TSF", b"TSFB", b"TSFB\x00", b"TSFB\x02", b"PK\x03\x04\x00", b"TSFB\x01\0",
        b"TSFB\x01\xff\xff\xff\xff", b"TSFB\x01\xff\xff\xff\xff" + b"x" * 100,
        b"TSFB\x01\0\0\0\0", b"TSFB\x01\x00\x00\x10\x01" + b" " * 5000,
        framed(HEADER, b"x" * 99), framed(HEADER, b"x" * 101), framed(b"{}"), framed(b"\xff"),
        framed(HEADER.replace(b"100", b"-1")), framed(HEADER.replace(b"100", b"9" * 400)),
        framed(HEADER.replace(b"100", b"9223372036854775807")), framed(b"[" * 4000),
        framed(HEADER.replace(b"100", b"1e2"), b"x" * 100),
    ],
    ids=lambda body: ascii(body[:30]),
)  # fmt: skip
def test_a_hostile_batch_is_refused_and_nothing_is_allocated_on_its_word(body):
    import tracemalloc

    tracemalloc.start()
    with pytest.raises(ProtocolError):
        read(body)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1 << 20


def test_files_before_the_damage_are_given():
    good = entry(b"one"), b"one"
    body = wire.encode_batch([good]) + b"stray"
    found = wire.decode_batch(body)
    header, content = next(found)
    assert (header, bytes(content)) == good
    with pytest.raises(ProtocolError):
        next(found)


def test_a_batch_is_cut_without_copying():
    body = wire.encode_batch([(entry(), b"content")])
    ((_, content),) = wire.decode_batch(body)
    assert isinstance(content, memoryview)
    assert content.obj is body


def test_the_longest_header_that_a_sender_can_make_is_taken():
    """A name of 200 bytes, all of which JSON escapes, three times; digests; the largest size."""
    quotes = '"' * 200
    path = f"unsequence/{quotes}/{quotes}/-9223372036854775808/{quotes[7:]}.tsfile.resource"
    FilePath.parse(path)
    assert len(wire.encode(entry(path=path, size=2**63 - 1))) <= wire.MAX_BATCH_HEADER
    assert read(wire.encode_batch([(entry(path=path), b"content")]))


def test_a_block_is_compared_with_its_checksum():
    wire.check_block(b"x", xxh3_64(b"x"), "p")
    wire.check_block(memoryview(b"x"), xxh3_64(b"x"), "p")
    for said in ("", "0" * 16, xxh3_64(b"x").upper(), xxh3_64(b"y")):
        with pytest.raises(DigestError, match="p: "):
            wire.check_block(b"x", said, "p")
