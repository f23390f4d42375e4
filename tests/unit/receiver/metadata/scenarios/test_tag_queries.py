"""Tags find series, with `=` and `contains`, below a path, in pages; attributes do not."""

import pytest

from tests.support.asking import column, number, refused, rows, run

SERIES = {
    "turbine.d0.s0": ("FLOAT", "unit=f, description='turbine this is a test1'", "H=100, M=50"),
    "turbine.d0.s1": ("FLOAT", "unit=kw, description='turbine this is a test2'", "H=99.9, M=44.4"),
    "turbine.d1.s0": ("INT32", "description='turbine this is a test3'", "H=9, M=5"),
    "turbine.d2.s0": ("FLOAT", "unit=f, description='turbine d2 this is a test1'", "Max=100"),
    "turbine.d2.s1": ("FLOAT", "unit=kw, description='turbine d2 this is a test2'", "Max=99.9"),
    "turbine.d2.s3": ("INT32", "description='turbine d2 this is a test3'", "Max=9"),
    "ln.d0.s0": ("FLOAT", "unit=c, description='ln this is a test1'", "H=1000, M=500"),
    "ln.d0.s1": ("FLOAT", "unit=w, description='ln this is a test2'", "H=9.9, M=4.4"),
    "ln.d1.s0": ("INT32", "description='ln this is a test3'", "H=90, M=50"),
}


@pytest.fixture
def world(engine):
    run(engine, "set storage group to root.turbine, root.ln")
    for path, (kind, tags, attributes) in SERIES.items():
        run(
            engine,
            f"create timeseries root.{path} with datatype={kind}, encoding=RLE "
            f"tags({tags}) attributes({attributes})",
        )
    return engine


def found(engine, rest, at=None):
    return [path.removeprefix("root.") for path in column(engine, f"show timeseries {rest}", at=at)]


def test_series_are_found_by_a_tag_in_order_of_their_paths(world):
    assert found(world, "where unit=f") == ["turbine.d0.s0", "turbine.d2.s0"]
    assert found(world, "where unit=c") == ["ln.d0.s0"]
    assert found(world, "where unit='kw'") == ["turbine.d0.s1", "turbine.d2.s1"]
    assert found(world, "where unit=nothing") == []


def test_a_path_narrows_the_answer(world):
    assert found(world, "root.turbine where unit=f") == ["turbine.d0.s0", "turbine.d2.s0"]
    assert found(world, "root.turbine.** where unit=f") == ["turbine.d0.s0", "turbine.d2.s0"]
    assert found(world, "root.turbine.d0 where unit=f") == ["turbine.d0.s0"]
    assert found(world, "root.*.*.s0 where unit=c") == ["ln.d0.s0"]
    assert found(world, "root.turbine where unit=c") == []
    assert found(world, "root.turbine.d0.s0 where unit=f") == ["turbine.d0.s0"]
    assert found(world, "root.turbine.d0.s1 where unit=f") == []


def test_a_part_of_a_value_is_enough_for_contains(world):
    assert found(world, "where description contains 'test1'") == [
        "ln.d0.s0",
        "turbine.d0.s0",
        "turbine.d2.s0",
    ]
    assert found(world, "root.ln where description contains 'test1'") == ["ln.d0.s0"]
    assert found(world, "where description contains 'd2 this'") == [
        "turbine.d2.s0",
        "turbine.d2.s1",
        "turbine.d2.s3",
    ]
    assert found(world, "where unit contains w") == ["ln.d0.s1", "turbine.d0.s1", "turbine.d2.s1"]
    assert found(world, "where description contains 'TEST1'") == []


def test_pages_follow_each_other_without_a_gap(world):
    everything = found(world, "where description contains 'this'")
    assert everything == sorted(SERIES)
    for size in (1, 2, 4, 9, 10):
        pages = [
            each
            for offset in range(0, 10, size)
            for each in found(
                world, f"where description contains 'this' limit {size} offset {offset}"
            )
        ]
        assert pages == everything
    assert found(world, "limit 2 offset 1") == sorted(SERIES)[1:3]
    assert found(world, "root.turbine limit 3") == [
        "turbine.d0.s0",
        "turbine.d0.s1",
        "turbine.d1.s0",
    ]
    assert found(world, "offset 8") == ["turbine.d2.s3"]
    assert found(world, "limit 0") == []
    assert found(world, "offset 100") == []


def test_an_attribute_finds_nothing_and_says_so(world):
    refused(world, "show timeseries where H=90", "H")
    refused(world, "show timeseries where nowhere=1", "nowhere")


def test_a_row_has_its_tags_and_its_attributes(world):
    (row,) = rows(world, "show timeseries root.turbine.d0.s1")
    assert row["tags"] == {"unit": "kw", "description": "turbine this is a test2"}
    assert row["attributes"] == {"H": "99.9", "M": "44.4"}


def test_a_deleted_series_is_found_no_more(world):
    before = world.newest_commit
    run(world, "delete timeseries root.turbine.d2.s0")
    assert found(world, "where unit=f") == ["turbine.d0.s0"]
    assert found(world, "where unit=f", at=before) == ["turbine.d0.s0", "turbine.d2.s0"]
    run(world, "delete timeseries root.turbine.d0.s0")
    assert found(world, "where unit=f") == []
    assert found(world, "where description contains test1") == ["ln.d0.s0"]


def test_a_tag_is_gone_with_its_last_series(world):
    before = world.newest_commit
    run(world, "delete storage group root.turbine", "delete storage group root.ln")
    refused(world, "show timeseries where unit=f", "unit")
    assert found(world, "where unit=f", at=before) == ["turbine.d0.s0", "turbine.d2.s0"]


def test_keys_and_values_in_use(world):
    assert column(world, "show tag keys") == ["description", "unit"]
    run(world, "delete timeseries root.ln.**")
    values = rows(world, "show tag values for key=unit")
    assert [tuple(row.values())[-1] for row in values] == ["f", "kw"]


def test_series_are_counted_by_a_tag(world):
    assert number(world, "count timeseries where unit=f") == 2
    assert number(world, "count timeseries root.turbine where description contains test") == 6


def test_a_tag_and_an_attribute_of_one_name_are_refused(engine):
    run(engine, "set storage group to root.turbine")
    refused(
        engine,
        "create timeseries root.turbine.d1.s1 with datatype=FLOAT, encoding=RLE "
        "tags(tag1=v1, tag2=v2) attributes(tag1=v1, attr2=v2)",
        "tag1",
        "root.turbine.d1.s1",
    )


def test_more_bytes_than_a_series_may_have_are_refused(engine):
    run(engine, "set storage group to root.turbine")
    create = "create timeseries root.turbine.d1.s1 with datatype=FLOAT, encoding=RLE"
    refused(engine, f"{create} tags(a={'x' * 800})", "root.turbine.d1.s1", "700")
    run(engine, f"{create} tags(a={'x' * 500})")
    refused(
        engine, f"alter timeseries root.turbine.d1.s1 add tags b={'x' * 300}", "root.turbine.d1.s1"
    )
    assert rows(engine, "show timeseries")[0]["tags"] == {"a": "x" * 500}
