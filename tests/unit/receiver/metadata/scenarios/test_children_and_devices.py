"""Children of nodes, as paths and as names, and devices below a path."""

import pytest

from tests.support.asking import column, run

PLAIN = "with datatype=INT32, encoding=PLAIN"
LAPTOP = ["b1.d1.s0", "b1.d1.s1", "b1.d2.s0", "b2.d1.s1", "b2.d1.s3", "b2.d2.s2"]
VEHICLE = ["b1.d0.s0", "b1.d2.s2", "b1.d3.s3", "b2.d0.s1"]


@pytest.fixture
def world(engine):
    run(engine, "set storage group to root.laptop, root.vehicle")
    run(engine, *(f"create timeseries root.laptop.{path} {PLAIN}" for path in LAPTOP))
    run(engine, *(f"create timeseries root.vehicle.{path} {PLAIN}" for path in VEHICLE))
    return engine


@pytest.mark.parametrize(
    ("path", "children"),
    [
        ("root", "laptop vehicle"),
        ("root.laptop", "laptop.b1 laptop.b2"),
        ("root.laptop.b1", "laptop.b1.d1 laptop.b1.d2"),
        ("root.*", "laptop.b1 laptop.b2 vehicle.b1 vehicle.b2"),
        ("root.*.b1", "laptop.b1.d1 laptop.b1.d2 vehicle.b1.d0 vehicle.b1.d2 vehicle.b1.d3"),
        ("root.l*.b1", "laptop.b1.d1 laptop.b1.d2"),
        ("root.v*.*", "vehicle.b1.d0 vehicle.b1.d2 vehicle.b1.d3 vehicle.b2.d0"),
        ("root.l*.b*.*", " ".join(f"laptop.{path}" for path in LAPTOP)),
        ("root.laptopp", ""),
        ("root.laptop.b1.d1.s0", ""),
    ],
)
def test_child_paths_are_one_level_below_whatever_matches(world, path, children):
    expected = [f"root.{child}" for child in children.split()]
    assert column(world, f"show child paths {path}") == expected


def test_child_nodes_are_their_names(world):
    assert column(world, "show child nodes root") == ["laptop", "vehicle"]
    assert column(world, "show child nodes root.laptop.b1.d1") == ["s0", "s1"]
    assert column(world, "show child nodes root.*") == ["b1", "b2"]
    assert column(world, "show child nodes root.laptop.b1.d1.s0") == []


def test_devices_below_a_path(world):
    assert column(world, "show devices root.laptop.b1") == [
        "root.laptop.b1.d1",
        "root.laptop.b1.d2",
    ]
    assert column(world, "show devices root.*.b2.*") == [
        "root.laptop.b2.d1",
        "root.laptop.b2.d2",
        "root.vehicle.b2.d0",
    ]
    assert column(world, "show devices root.laptop limit 2 offset 1") == [
        "root.laptop.b1.d2",
        "root.laptop.b2.d1",
    ]
    assert column(world, "show devices root.other") == []


def test_a_path_shows_itself_or_what_is_below(world):
    assert column(world, "show timeseries root.laptop.b1.d1.s0") == ["root.laptop.b1.d1.s0"]
    assert len(column(world, "show timeseries root.laptop.b1")) == 3
    assert column(world, "show timeseries root.*.b2.*.s1") == [
        "root.laptop.b2.d1.s1",
        "root.vehicle.b2.d0.s1",
    ]
    assert column(world, "show timeseries root.a.b") == []


def test_what_is_shown_was_there_at_the_time(world):
    before = world.newest_commit
    run(
        world,
        "delete storage group root.vehicle",
        f"create timeseries root.laptop.b3.d1.s1 {PLAIN}",
    )
    assert column(world, "show child paths root") == ["root.laptop"]
    assert column(world, "show child paths root", at=before) == ["root.laptop", "root.vehicle"]
    assert "b3" in column(world, "show child nodes root.laptop")
    assert column(world, "show child nodes root.laptop", at=before) == ["b1", "b2"]
