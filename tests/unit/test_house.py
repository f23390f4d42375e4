"""The rules of the whole: rooms import downward, no circle, names are used and mean one thing."""

from __future__ import annotations

import functools
import sys
import textwrap

import pytest

from tests.support import house
from tests.support.architecture import ROOT, Module
from tests.support.house import House

PAGE = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")


@functools.cache
def here() -> House:
    """Read when the first rule asks: collecting the tests is to be quick."""
    return House.as_it_stands()


def test_no_module_imports_itself_by_way_of_others():
    assert house.circles(here().arrows) == []


def test_a_room_imports_only_those_below_it():
    assert house.against_the_order(here()) == []


def test_every_public_name_is_used_in_the_source():
    assert house.unused_names(here(), house.names_of_grammars() | house.API) == []


def test_every_name_of_the_api_is_still_there_and_still_needs_to_be_named():
    unused = {
        said.rsplit(": ", 1)[1] for said in house.unused_names(here(), house.names_of_grammars())
    }
    assert unused == house.API


def test_a_public_class_alias_or_constant_has_a_name_of_its_own():
    assert house.names_twice(here()) == []


def test_a_module_has_a_name_of_its_own_unless_it_is_about_the_same_thing():
    assert house.modules_of_one_name(here()) == []


def test_every_name_that_several_may_have_is_one_that_several_have():
    def names(said):
        return {each.partition(":")[0] for each in said}

    assert names(house.names_twice(here(), {})) == set(house.ONE_EACH)
    shared = house.SUBJECTS | house.ON_EACH_SIDE
    assert names(house.modules_of_one_name(here(), frozenset())) == shared


def test_a_name_has_one_address():
    packages = {name.rpartition(".")[0] for name in here().modules}
    assert house.handed_on(here(), packages | house.FACES) == []


def test_what_a_module_gives_to_other_packages_is_in_its_all():
    assert house.not_offered(here()) == []


def test_every_room_is_on_the_page_of_the_architecture_and_every_room_of_the_page_is_there():
    assert house.on_the_page(PAGE) == house.table(here())


# -- each rule can fail --------------------------------------------------------------------------


def a_house(**texts: str) -> House:
    return House.of(
        Module.of(name.replace("__", "."), textwrap.dedent(text)) for name, text in texts.items()
    )


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("from a.two import x", "from a.one import y"),
        ("import a.two", "def f():\n    import a.one"),
        ("from a import two", "if TYPE_CHECKING:\n    from a.one import y"),
    ],
)
def test_a_circle_is_seen(one, other):
    assert house.circles(a_house(a__one=one, a__two=other).arrows) == [["a.one", "a.two"]]


def test_a_circle_of_three_is_seen_once_and_a_chain_is_none():
    arrows = a_house(
        a__one="import a.two", a__two="import a.three", a__three="import a.one", b="import a.one"
    ).arrows
    assert house.circles(arrows) == [["a.one", "a.three", "a.two"]]
    assert house.circles(a_house(a="import b", b="import c", c="").arrows) == []


def test_an_import_of_a_room_above_is_seen():
    rooms = {"p": ("top", "ground")}
    down = a_house(p__top__x="from p.ground import y", p__ground__y="")
    assert house.against_the_order(down, rooms) == []
    up = a_house(p__top__x="", p__ground__y="from p.top.x import z")
    assert house.against_the_order(up, rooms) == ["p: p.ground.y -> p.top.x runs up"]


def test_a_room_that_no_floor_has_and_a_floor_without_a_room_are_seen():
    built = a_house(p__top="", p__cellar="")
    assert house.against_the_order(built, {"p": ("top", "ground")}) == [
        "p: cellar is no floor",
        "p: ground is not there",
    ]


@pytest.mark.parametrize(
    ("text", "unused"),
    [
        ("def f(): ...", ["f"]),
        ("class C:\n    def m(self): ...", ["C", "C.m"]),
        ("LIMIT = 5", ["LIMIT"]),
        ("LIMIT: int = 5", ["LIMIT"]),
        ("__all__ = ['f']\ndef f(): ...", ["f"]),
        ("def f(): ...\nf()", []),
        ("@click.command()\ndef f(): ...", []),
        ("def _f(): ...", []),
    ],
)
def test_a_name_that_nothing_uses_is_seen(text, unused):
    found = house.unused_names(a_house(a=text, b="from a import f"))
    assert [said.rsplit(": ", 1)[1] for said in found] == unused


def test_a_name_that_is_used_elsewhere_is_fine():
    built = a_house(a="class C:\n    def m(self): ...", b="from a import C\nC().m()")
    assert house.unused_names(built) == []
    assert house.unused_names(a_house(a="def f(): ..."), {"f"}) == []


def test_a_class_name_that_means_two_things_is_seen():
    built = a_house(a="class Facts: ...", b="class Facts: ...", c="class _Facts: ...")
    assert house.names_twice(built) == ["Facts: a, b"]


@pytest.mark.parametrize(
    "text",
    [
        "Rows = list[int]",
        "Rows: TypeAlias = list[int]",
        "Rows = NewType('Rows', int)",
        "Rows = np.int64 | np.int32",
        "Rows = Literal['a', 'b']",
        *(["type Rows = list[int]"] if sys.version_info >= (3, 12) else []),
    ],
)
def test_an_alias_that_means_two_things_is_seen(text):
    assert house.names_twice(a_house(a=text, b="class Rows: ...")) == ["Rows: a, b"]
    assert house.names_twice(a_house(a=text, b=text)) == ["Rows: a, b"]
    assert house.names_twice(a_house(a=text, b="from a import Rows", c="_Rows = 1")) == []


@pytest.mark.parametrize("text", ["PART = 1", "PART: Final = 2", "MAX, PART = 3, 4"])
def test_a_constant_that_means_two_things_is_seen(text):
    assert house.names_twice(a_house(a=text, b="PART = 1")) == ["PART: a, b"]
    assert house.names_twice(a_house(a=text, b="_PART = 1", c="part = 1")) == []


def test_a_constant_of_which_several_have_one_each_is_seen_only_elsewhere():
    texts = {"p__a": "ROUTES = 1", "p__b": "ROUTES = 2"}
    assert house.names_twice(a_house(**texts), {"ROUTES": ("p",)}) == []
    built = a_house(**texts, other="ROUTES = 3")
    assert house.names_twice(built, {"ROUTES": ("p",)}) == ["ROUTES: p.a, p.b, other"]


def test_a_variable_of_types_may_be_called_as_everywhere():
    built = a_house(a="T = TypeVar('T')", b="T = typing.TypeVar('T')", c="P = ParamSpec('P')")
    assert house.names_twice(built) == []


def test_a_module_name_that_means_two_things_is_seen():
    built = a_house(a__rows="", b__rows="", a__files="", b__files="", c__one="")
    assert house.modules_of_one_name(built) == ["rows: a.rows, b.rows"]


def test_a_module_that_is_called_like_a_package_elsewhere_is_seen():
    built = a_house(
        a__verify="", a__verify__one="", b__verify="", c="", c__plan="", c__plan__plan=""
    )
    assert house.modules_of_one_name(built) == ["verify: a.verify, b.verify"]


def test_a_name_that_is_handed_on_is_seen():
    built = a_house(a="from b import C\n__all__ = ['C', 'D']\nclass D: ...", b="class C: ...")
    assert house.handed_on(built) == ["a: C"]
    assert house.handed_on(built, {"a"}) == []


def test_a_name_that_is_not_offered_is_seen_where_another_package_takes_it():
    built = a_house(
        a__one="__all__ = ['f']\ndef f(): ...\ndef g(): ...",
        a__two="from a.one import g",
        a="from a.one import g",
        b="from a.one import f, g",
    )
    assert house.not_offered(built) == ["a.one: g"]


def test_a_page_that_lacks_a_room_is_seen():
    whole = house.table(here())
    page = f"# x\n{house.BEGIN}\n{whole}{house.END}\n"
    assert house.on_the_page(page) == whole
    cut = page.replace("| `select` |", "| `chosen` |")
    assert house.on_the_page(cut) != whole
