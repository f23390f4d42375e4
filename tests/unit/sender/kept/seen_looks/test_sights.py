"""What was seen of files that are not on the list: a mapping, whatever its form, and its JSON."""

from __future__ import annotations

import random

import msgspec
import pytest

from sender.kept.seen_looks.looks_state import LooksState
from sender.kept.seen_looks.sights import Sight, Sights

ODD = {
    "sequence/root.a/0/0/a\nb.tsfile": Sight(1, 2, 3),
    "sequence/root.a/0/0/1-1-0.tsfile": Sight(1 << 70, 2, 3),
    "sequence/root.a/0/0/": Sight(1, 2, 3),
}


def many(seed: int) -> list[tuple[str, Sight]]:
    """Paths in directories by turns, some of them twice."""
    chance = random.Random(seed)
    return [
        (
            f"{chance.choice(['sequence/root.ä/0/1', 'sequence/root.a/0/2', 'flat', ''])}/"
            f"{chance.randrange(90)}-1-0.tsfile".lstrip("/"),
            Sight(chance.randrange(1 << 64), chance.randrange(5), chance.randrange(5)),
        )
        for _ in range(300)
    ]


@pytest.mark.parametrize(
    "items", [[], many(1), many(2), list(ODD.items()), [*many(3), *ODD.items()]]
)
def test_it_is_the_mapping_of_its_items(items):
    found, model = Sights(items), dict(items)
    assert dict(found.items()) == model
    assert len(found) == len(model)
    assert all(found[path] == sight for path, sight in model.items())
    assert all(
        path not in found for path in ("", "x", "flat/x", "sequence/root.a/0/3/1-1-0.tsfile")
    )
    assert msgspec.json.decode(b"".join(found.pieces()), type=dict[str, Sight]) == model


def test_two_are_equal_whatever_order_they_were_made_in():
    items = list(dict(many(4)).items())
    assert Sights(items) == Sights(reversed(items))
    assert Sights(items) != Sights(items[1:])
    assert Sights(items[1:]) != Sights([*items[1:], (items[0][0], Sight(9, 9, 9))])


@pytest.mark.parametrize("sights", [[], many(5)])
@pytest.mark.parametrize("rest", [{}, {"last": 7, "missing": {"a": 1}}])
def test_a_state_is_read_as_it_was_written(sights, rest):
    state = LooksState(**rest, sights=Sights(sights))
    assert LooksState.read(b"".join(state.pieces())) == state


def test_a_state_that_an_earlier_version_wrote_is_read():
    earlier = {"last": 7, "sights": {"sequence/root.a/0/0/1-1-0.tsfile": [5, 6, 7]}}
    state = LooksState.read(msgspec.json.encode(earlier))
    assert (state.last, dict(state.sights)) == (
        7,
        {"sequence/root.a/0/0/1-1-0.tsfile": Sight(5, 6, 7)},
    )


def test_a_name_that_is_no_text_is_held_too():
    assert Sights([("a/\udcff.tsfile", Sight(1, 2, 3))])["a/\udcff.tsfile"] == Sight(1, 2, 3)
