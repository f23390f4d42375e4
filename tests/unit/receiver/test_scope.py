from __future__ import annotations

import pytest

from common.errors import UsageError
from receiver.scope import Scope


@pytest.mark.parametrize(
    ("pattern", "device", "covered"),
    [
        ("root.siteA.**", "root.siteA.d1", True),
        ("root.siteA.**", "root.siteA.x.d1", True),
        ("root.siteA.**", "root.siteA", False),
        ("root.siteA.**", "root.siteAB.d1", False),
        ("root.siteA.**", "root.siteB.d1", False),
        ("root.siteA.*", "root.siteA.d1", True),
        ("root.siteA.*", "root.siteA.x.d1", False),
        ("root.*.d1", "root.any.d1", True),
        ("root.**.d1", "root.a.b.d1", True),
        ("root.siteA.**", "root.`siteA.d1`", False),
        ("root.`a.b`.**", "root.`a.b`.d1", True),
        ("root.s.**", "root.s.`d\n1`", True),
        ("sensors:**", "sensors:plant1", True),
        ("sensors:plant1.**", "sensors:plant1.x", True),
        ("sensors:**", "other:plant1", False),
        ("root.**", "sensors:plant1", False),
        ("**", "anything.at.all", True),
        ("sensors:**", "/plant/sensors:a", True),
        ("/plant/sensors:**", "/plant/sensors:a", True),
        ("/plant/sensors:**", "/other/sensors:a", False),
        ("/plant/sensors:**", "sensors:a", False),
        ("root.**", "/root/root:a", False),
    ],
)
def test_a_pattern_covers_what_it_says(pattern: str, device: str, covered: bool) -> None:
    assert Scope([pattern]).covers(device) is covered


def test_a_node_with_a_nul_passes_for_nothing() -> None:
    assert not Scope(["root.siteA.**"]).covers("root.`siteA\0x`")


def test_no_pattern_covers_all() -> None:
    assert Scope([]).first_outside(["root.a", "root.b"]) is None


def test_the_first_device_outside_is_named() -> None:
    assert Scope(["root.a.**"]).first_outside(["root.a.d", "root.b.d", "root.c.d"]) == "root.b.d"


@pytest.mark.parametrize("pattern", ["", "root..d", ".root", "root."])
def test_an_empty_node_is_refused(pattern: str) -> None:
    with pytest.raises(UsageError):
        Scope([pattern])


@pytest.mark.parametrize(
    ("pattern", "path", "reaches"),
    [
        ("root.siteA.**", "root.siteA", True),
        ("root.siteA.**", "root.siteA.x.y", True),
        ("root.siteA.**", "root", True),
        ("root.siteA.**", "root.siteB", False),
        ("root.*.d1", "root.any", True),
        ("root.*.d1", "root.any.d1", True),
        ("root.*.d1", "root.any.d2", False),
        ("root.*.d1", "root.any.d1.x", False),
        ("root.`a.b`.**", "root.`a.b`", True),
        ("sensors:**", "root.`/plant`", True),
        ("/plant/sensors:**", "root.`/plant`", True),
        ("/plant/sensors:**", "root.`/other`", False),
    ],
)
def test_a_pattern_reaches_below_what_its_devices_lie_in(
    pattern: str, path: str, reaches: bool
) -> None:
    assert Scope([pattern]).reaches_below(path) is reaches
    assert Scope([]).reaches_below(path)


def test_a_path_of_the_schema_is_refused_as_the_scope_that_would_cover_nothing():
    schema = "root.`/plant`.**"
    assert not Scope([schema]).covers("/plant/sensors:a"), "of a token that is there"
    with pytest.raises(UsageError, match=r"are /plant/\*\*, those of one table /plant/TABLE:\*\*"):
        Scope.asked([schema])
    for pattern in ("/plant/**", "/plant/sensors:**"):
        assert Scope.asked([pattern]).covers("/plant/sensors:a.b")
        assert not Scope.asked([pattern]).covers("/other/sensors:a")
    assert Scope.asked(["root.plant.**"]).covers("root.plant.d")
