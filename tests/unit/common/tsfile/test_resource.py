"""Resources: read where they can be, opaque where not, never a reason to stop."""

from __future__ import annotations

import random
import struct

import pytest

from common.tsfile.resource import DeviceTimes, Resource, parse_resource
from tests.support.tsfile_bytes import blob, uvarint, vstr

TIMES = [(10, 20), (30, -(2**63)), (5, 6)]


def resource(ids, *, order=(0, 1, 2), version=1, more=b"\x00" * 16):
    times = b"".join(struct.pack(">qq", *times) for times in TIMES)
    devices = b"".join(raw + struct.pack(">i", at) for raw, at in zip(ids, order, strict=True))
    return bytes([version, 1]) + struct.pack(">i", len(ids)) + times + devices + more


def segments(*parts):
    return uvarint(len(parts)) + b"".join(map(vstr, parts))


NAMES = ["root.sg.d1", "root.sg.d2", "root.sg.`a.b`"]
PATHS = {
    "int32-prefixed": [blob(name.encode()) for name in NAMES],
    "vstr": [vstr(name) for name in NAMES],
    "segments": [segments("root.sg", name[8:]) for name in NAMES],
}


@pytest.mark.parametrize("form", PATHS)
@pytest.mark.parametrize("more", [b"", b"\x00" * 16, b"\xff" * 7])
def test_the_times_of_each_device_are_read_in_every_known_form(form, more):
    assert parse_resource(resource(PATHS[form], more=more)) == Resource(
        1,
        (
            DeviceTimes("root.sg.d1", 10, 20),
            DeviceTimes("root.sg.d2", 30, None),
            DeviceTimes("root.sg.`a.b`", 5, 6),
        ),
    )


def test_the_index_of_a_device_says_which_times_are_its():
    found = parse_resource(resource(PATHS["segments"], order=(2, 0, 1)))
    assert [(device.name, device.start) for device in found.devices] == [
        ("root.sg.d2", 10), ("root.sg.`a.b`", 30), ("root.sg.d1", 5),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "0 bytes are too few"),
        (b"\x01", "1 bytes are too few"),
        (b"\x01\x01\x7f\xff\xff\xff" + bytes(100), "more than there is room for"),
        (b"\x01\x01\xff\xff\xff\xff" + bytes(100), "more than there is room for"),
        (resource(PATHS["vstr"], order=(0, 0, 1)), "none of the known forms"),
        (resource(PATHS["vstr"], order=(0, 1, 3)), "none of the known forms"),
        (resource(PATHS["vstr"], more=b"")[:-1], "none of the known forms"),
    ],
)
def test_what_cannot_be_read_is_opaque_and_says_why(content, reason):
    found = parse_resource(content)
    assert found.devices == ()
    assert reason in found.opaque


def test_no_content_raises():
    chance = random.Random(7)
    whole = resource(PATHS["segments"])
    for at in range(len(whole)):
        assert isinstance(parse_resource(whole[:at]), Resource)
        changed = bytearray(whole)
        changed[at] = chance.randrange(256)
        assert isinstance(parse_resource(bytes(changed)), Resource)
    for _ in range(500):
        assert isinstance(parse_resource(chance.randbytes(chance.randrange(200))), Resource)
