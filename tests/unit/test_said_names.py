"""Names in the text lead somewhere: in docstrings, and on the pages."""

from __future__ import annotations

import textwrap

import pytest

from tests.support import said_names
from tests.support.architecture import ROOT, Module
from tests.support.house import House
from tests.support.said_names import NAME, SaidNames
from tests.unit.test_architecture_page import points_in_the_source

HOUSE = House.as_it_stands()
HERE = SaidNames(HOUSE, said_names.keys_of_the_configuration())
PAGES = (
    "README.md",
    "SECURITY.md",
    *(str(each.relative_to(ROOT)) for each in sorted(ROOT.glob("docs/**/*.md"))),
)


@pytest.fixture(scope="module")
def crash_points():
    return points_in_the_source()


def test_every_name_in_a_docstring_leads_somewhere():
    assert HERE.leading_nowhere() == []


@pytest.mark.parametrize("page", PAGES)
def test_every_name_on_a_page_leads_somewhere(page, crash_points):
    said = set(NAME.findall((ROOT / page).read_text(encoding="utf-8"))) - crash_points
    assert {each for each in said if not HERE.means_something(each)} == set()


def test_names_were_read():
    said = {
        each
        for module in HOUSE.modules.values()
        for _, text in said_names.docstrings(module)
        for each in NAME.findall(text)
    }
    assert len(said) > 150
    assert "listen.allow" in said_names.keys_of_the_configuration()


# -- each kind of name can fail ------------------------------------------------------------------

SOURCE = {
    "sender.plan.shelf": """
        import socket
        from sender.plan.board import Board
        if True:
            DEPTH = 3
        class Shelf(Board):
            width: int
            def __init__(self): self.load = 0
            def put(self): return self.load.weight
        class Cupboard(Shelf[int]): ...
        """,
    "sender.plan.board": "class Board:\n    def saw(self): ...",
}


def nowhere(text):
    """What of a text leads nowhere, where it stands in `sender.plan.shelf`."""
    modules = {name: textwrap.dedent(each) for name, each in SOURCE.items()}
    modules["sender.plan.shelf"] = f'"""{text}"""\n{modules["sender.plan.shelf"]}'
    house = House.of(Module.of(*each) for each in modules.items())
    names = SaidNames(house, frozenset({"listen.allow"}))
    return [said.rsplit(": ", 1)[1] for said in names.leading_nowhere()]


@pytest.mark.parametrize(
    "name",
    [
        "sender.plan.shelf", "plan.board", "plan.shelf.DEPTH", "shelf.Shelf", "board.Board.saw",
        "Shelf.width", "Shelf.load", "Shelf.put", "Shelf.saw", "Cupboard.saw", "load.weight",
        "socket.socket", "listen.allow", "sync.log", "root.turbine",
    ],
)  # fmt: skip
def test_a_name_that_leads_somewhere_is_fine(name):
    assert nowhere(f"See `{name}`, ``{name}`` and `{name}()`.") == []


@pytest.mark.parametrize(
    "name",
    [
        "sender.plan.shelve", "plans.board", "plan.shelf.WIDTH", "shelf.Shelve", "board.Board.cut",
        "Shelf.depth", "Board.put", "Shelve.put", "load.volume", "sockets.socket", "listen.deny",
    ],
)  # fmt: skip
@pytest.mark.parametrize("text", ["See `{}`.", "See ``{}``.", "See `{}()`.", "See `{}(1, 2)`."])
def test_a_name_that_leads_nowhere_is_seen(name, text):
    assert nowhere(text.format(name)) == [name]
