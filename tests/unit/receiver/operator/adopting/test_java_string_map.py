from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from common.errors import DamagedError
from receiver.operator.adopting.java_string_map import read_string_map
from tests.support import tiers
from tests.support.java_map import java_map

# Of the OpenJDK 17: two values are one object, and one value is a key of before.
REAL = bytes.fromhex(
    "aced0005737200116a6176612e7574696c2e486173684d61700507dac1c31660d103000246000a6c6f616446616374"
    "6f724900097468726573686f6c6478703f4000000000000c77080000001000000006740012726f6f742e7367322e63"
    "6166c3a92ee9a38e740008726f6f742e73673274000b726f6f742e7367312e643174002f3139322e3136382e313330"
    "2e31345f613435623665363365623433346161643839313236346235633038643434386574000c726f6f742e78eda0"
    "bdedb880740006726f6f742e7874000b726f6f742e7367322e643074002f3139322e3136382e3133302e31355f3066"
    "34653163306539613862346437633865366635613462336332643165306674000b726f6f742e7367312e643071007e"
    "000574000e726f6f742e7367312e6f776e657271007e000a78"
)
# Of a receiver of Apache IoTDB 0.12.0, with two storage groups of one sender.
OF_0_12_0 = bytes.fromhex(
    "aced0005737200116a6176612e7574696c2e486173684d61700507dac1c31660d103000246000a6c6f616446616374"
    "6f724900097468726573686f6c6478703f4000000000000c7708000000100000000374000c726f6f742e77696e642e"
    "7431740009726f6f742e77696e6474000d726f6f742e706c616e742e643174000a726f6f742e706c616e7474000d72"
    "6f6f742e706c616e742e643271007e000578"
)
EMPTY = bytes.fromhex(
    "aced0005737200116a6176612e7574696c2e486173684d61700507dac1c31660d103000246000a6c6f616446616374"
    "6f724900097468726573686f6c6478703f4000000000000c7708000000100000000078"
)


def test_what_java_writes_is_read() -> None:
    owner = "192.168.130.14_a45b6e63eb434aad891264b5c08d448e"
    assert read_string_map(REAL, "device_owner") == {
        "root.sg1.d0": owner,
        "root.sg1.d1": owner,
        "root.sg2.d0": "192.168.130.15_0f4e1c0e9a8b4d7c8e6f5a4b3c2d1e0f",
        "root.sg2.caf\u00e9.\u98ce": "root.sg2",
        "root.sg1.owner": "root.sg1.d0",
        "root.x\U0001f600": "root.x",
    }
    assert read_string_map(EMPTY, "device_owner") == {}
    assert read_string_map(OF_0_12_0, "device_owner") == {
        "root.wind.t1": "root.wind",
        "root.plant.d1": "root.plant",
        "root.plant.d2": "root.plant",
    }


@settings(max_examples=tiers.examples(200))
@given(st.dictionaries(st.text(), st.text()))
def test_whatever_strings_come_back(pairs: dict[str, str]) -> None:
    assert read_string_map(java_map(pairs), "x") == pairs


def test_of_a_damaged_one_nothing_is_believed() -> None:
    for end in range(len(REAL)):
        with pytest.raises(DamagedError, match="device_owner: no map"):
            read_string_map(REAL[:end], "device_owner")
    for at in (0, 5, 10, 30, REAL.index(b"\x77\x08"), len(REAL) - 1):
        damaged = REAL[:at] + bytes([REAL[at] ^ 0x40]) + REAL[at + 1 :]
        with pytest.raises(DamagedError):
            read_string_map(damaged, "device_owner")
    for wrong in (
        REAL + b"\0",
        REAL.replace(b"\x71\x00\x7e\x00\x05", b"\x71\x00\x7e\x00\x7f"),
        b"plain\n",
    ):
        with pytest.raises(DamagedError):
            read_string_map(wrong, "device_owner")


def test_a_length_that_lies_takes_no_memory() -> None:
    begin = EMPTY[: EMPTY.index(b"\x77\x08")]
    for lie in (
        b"\x77\x08\0\0\0\x10\x7f\xff\xff\xff\x78",
        b"\x77\x08\0\0\0\x10\0\0\0\x01\x7c" + b"\x7f" * 8,
    ):
        with pytest.raises(DamagedError):
            read_string_map(begin + lie, "device_owner")
