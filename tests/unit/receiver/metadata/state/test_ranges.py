from receiver.metadata.model.records import DeviceRange
from receiver.metadata.state.ranges import DeviceTable


def pack(table, ranges, first, last):
    return table.pack([DeviceRange(*each) for each in ranges], first, last)


def test_ranges_come_back_as_they_were():
    ranges = [("root.d1", -5, 7), ("root.d2", 0, 0), ("root.d3", 3, 9)]
    devices = pack(DeviceTable(), ranges, -5, 9)
    assert list(devices.ranges()) == ranges
    assert devices.names() == ["root.d1", "root.d2", "root.d3"]
    assert len(devices) == 3


def test_a_range_of_all_64_bits_fits():
    first, last = -(1 << 63), (1 << 63) - 1
    devices = pack(DeviceTable(), [("d", first, last), ("e", 0, 1)], first, last)
    assert list(devices.ranges()) == [("d", first, last), ("e", 0, 1)]


def test_offsets_at_the_border_of_32_bits_are_exact():
    for span in ((1 << 32) - 1, 1 << 32):
        devices = pack(DeviceTable(), [("d", 10, 10 + span)], 10, 10 + span)
        assert list(devices.ranges()) == [("d", 10, 10 + span)]


def test_a_device_without_points_is_named_and_has_no_range():
    table = DeviceTable()
    assert list(pack(table, [("d", None, None)], None, None).ranges()) == []
    devices = pack(table, [("d", None, None), ("e", 4, 5)], 4, 5)
    assert devices.names() == ["d", "e"]
    assert list(devices.ranges()) == [("e", 4, 5)]


def test_files_with_the_same_devices_share_their_names():
    table = DeviceTable()
    ranges = [(f"root.d{number}", 0, 1) for number in range(1000)]
    one, two = pack(table, ranges, 0, 1), pack(table, ranges, 0, 1)
    assert one._ids is two._ids
    assert len(table) == 1000
    assert one._offsets.itemsize == 4


def test_a_deleted_file_keeps_names_alone():
    devices = pack(DeviceTable(), [("d", 1, 2)], 1, 2).without_ranges()
    assert devices.names() == ["d"]
    assert list(devices.ranges()) == []
