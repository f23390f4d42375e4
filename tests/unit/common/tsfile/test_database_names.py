from __future__ import annotations

import pytest

from common.tsfile import read_tail, split_database
from tests.support.tsfile_bytes import build


def test_tables_of_one_name_in_two_databases_are_two_devices() -> None:
    tail = read_tail(build({("sensors", "plant1", None): {"temp": [(1, 20.5)]}}))
    (device,) = tail.devices
    assert device.name_in("north") == "/north/sensors:plant1"
    assert device.name_in("south") != device.name_in("north")
    assert split_database(device.name_in("db with.dots")) == ("db with.dots", device.name)


@pytest.mark.parametrize("path", ["root.sg.d1", "`/x`.d1", "root.`a/b:c`.d"])
def test_a_tree_device_is_named_the_same_in_every_directory(path: str) -> None:
    (device,) = read_tail(build({path: {"s1": [(1, 1)]}})).devices
    assert device.name_in("anything") == device.name
    assert split_database(device.name) == (None, device.name)
