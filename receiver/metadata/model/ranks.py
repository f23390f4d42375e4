"""Which of two files that overlap stands above the other: its points are the ones that are given.

A *look* is one scan of an edge, numbered by the engine so that a later one has a greater number;
what it saw together is what the edge's database answered from. Files that one look had together
rank as the database ranks them, for ever; of two that no look had together, the one that was first
looked at later stands above.

Files that a forwarding centre handed up are ranked as it ranks them: by the looks that its own
engine numbered. Numbers of two engines are never compared; files that no engine has both looks of
stand as the looks at this centre say, in which the forwarder first had them.

Where a transfer of devices cut through a file, it stands in those as if it had ended by that commit
(`TransferCut`), and in its others as it did.

The order is not transitive: a file may stand above a second and the second above a third by the
database's order, and the third above the first because it came when that was gone. So it is asked
for pairs, and of several files that give one time the one that stands above all others counts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from common.names import Kind

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from common.names import FilePath

__all__ = [
    "LOWEST_LOOK",
    "NOW",
    "Ladder",
    "NameRank",
    "Rank",
    "RankBelow",
    "TransferCut",
    "common_engine",
    "cut_in",
    "highest",
    "in_common",
    "name_rank",
    "rank_at",
    "rank_beneath",
    "rank_in",
    "stands_above",
    "way_of",
]

NOW: Final = (1 << 63) - 1
"""The last look that had a file that its sender still has."""

LOWEST_LOOK: Final = 1 << 20
"""Below any scan's, which are commits: milliseconds since 1970, with a counter behind them. What is
loaded below all that is there has a first look below this one, the last of them the lowest."""

NameRank: TypeAlias = tuple[int, int, int, int, int]
"""(0 for sequence, 1 for unsequence; version, creation, inner and cross compactions)."""


class RankBelow(NamedTuple):
    """Where a file stands at a centre below; see `Rank`.

    Attributes:
        engine: uuid of that centre's engine, which numbers the looks.
    """

    engine: str
    first: int
    closed: int
    last: int
    loaded: int
    physical: str


class Rank(NamedTuple):
    """What decides where a file stands.

    Attributes:
        name: the database's own order; None for a name that no database gave.
        first: the first look that had it, closed or not.
        closed: the first look that had it closed; deletions seen for the first time behind the
            next look hide their times in it.
        last: the last look that had it, `NOW` while its sender has it.
        loaded: the commit that loaded it.
        physical: its name at the receiver.
        below: where it stands at the centres that handed it up, from the edge on.
    """

    name: NameRank | None
    first: int
    closed: int
    last: int
    loaded: int
    physical: str
    below: tuple[RankBelow, ...] = ()


class TransferCut(NamedTuple):
    """Where a file stands in devices that were transferred, otherwise than in its others.

    Attributes:
        first: in place of the first look that had it.
        last: in place of the last one.
        devices: as a catalogue names them.
    """

    first: int
    last: int
    devices: frozenset[str]


def name_rank(path: FilePath) -> NameRank | None:
    """The database's order of a file, by its name; None for a name that no database gave."""
    stem = path.stem
    if stem is None:
        return None
    late = int(path.kind is Kind.UNSEQUENCE)
    return late, stem.version, stem.created, stem.inner, stem.cross


def cut_in(cuts: Iterable[TransferCut], device: str) -> TransferCut | None:
    """The cut of a file that a device is in; None for most."""
    return next((each for each in cuts if device in each.devices), None)


def rank_in(rank: Rank, cut: TransferCut | None) -> Rank:
    """A file's rank in the devices of a cut, or in those that are in none."""
    if cut is None:
        return rank
    # Its end in them was told at this centre alone, so no other one's looks compare it.
    below = rank.below if cut.last == rank.last else ()
    return rank._replace(first=cut.first, last=cut.last, below=below)


def rank_beneath(physical: str) -> Rank:
    """The rank of what stands for several files: all others that overlap it stand above.

    It is of no look, and what the others are among themselves it does not change (`highest`).
    """
    return Rank(None, -1, -1, -1, 0, physical)


def stands_above(a: Rank, b: Rank) -> bool:
    """Whether the points of `a` are given where `b` has the same times.

    Of two different files exactly one stands above the other.
    """
    if a.below and b.below:
        a, b = in_common(a, b)
    if a.first > b.last:
        return True
    if b.first > a.last:
        return False
    if a.name is not None and b.name is not None and a.name != b.name:
        return a.name > b.name
    return (a.first, a.loaded, a.physical) > (b.first, b.loaded, b.physical)


def in_common(a: Rank, b: Rank) -> tuple[Rank, Rank]:
    """Two ranks in the looks of the lowest centre that both came by; as they are if by none."""
    engine = common_engine(way_of(a), way_of(b))
    return (a, b) if engine is None else (rank_at(a, engine), rank_at(b, engine))


def way_of(rank: Rank) -> tuple[str, ...]:
    """The engines by whose looks a file can be compared, from the edge on.

    None for one that ended here, since its sender was replaced, and whose end below was not told.
    """
    if rank.below and rank.last != NOW and rank.below[-1].last == NOW:
        return ()
    return tuple(each.engine for each in rank.below)


def common_engine(one: Sequence[str], other: Sequence[str]) -> str | None:
    """The engine by whose looks files of two ways are compared; None for this centre's own."""
    places = {engine: at for at, engine in enumerate(one)}
    both = [(places[engine] + at, engine) for at, engine in enumerate(other) if engine in places]
    return min(both)[1] if both else None


def rank_at(rank: Rank, engine: str) -> Rank:
    """A rank in the looks of a centre that its file came by."""
    here = next(each for each in rank.below if each.engine == engine)
    # Two senders may have handed up the same file.
    return Rank(rank.name, *here[1:-1], f"{here.physical} {rank.physical}")


def highest(ranks: Iterable[Rank]) -> Rank:
    """The one whose point is given, of files that give the same time.

    Where each is below another one, the one that was listed longest counts, and among those the
    one that the database ranks highest; but none that is below all those of the circle.
    """
    several = list(ranks)
    for each in several:
        if all(other is each or stands_above(each, other) for other in several):
            return each
    several = _topmost(several)
    ways = [way_of(each) for each in several]
    engine = ways[0][0] if ways[0] and all(ways[0][:1] == way[:1] for way in ways) else None
    return max(
        several, key=lambda each: _longest(each if engine is None else rank_at(each, engine))
    )


def _topmost(ranks: Sequence[Rank]) -> list[Rank]:
    """The fewest of them that stand above all others."""
    above = {
        one: [other for other, each in enumerate(ranks) if other != one and stands_above(each, a)]
        for one, a in enumerate(ranks)
    }
    # Whoever stands above most is among them, and so is what stands above one of them.
    waiting = [min(above, key=lambda each: len(above[each]))]
    found = set(waiting)
    while waiting:
        more = set(above[waiting.pop()]) - found
        found |= more
        waiting += more
    return [each for number, each in enumerate(ranks) if number in found]


def _longest(rank: Rank) -> tuple[int, NameRank | tuple[()], int, str]:
    return rank.last, rank.name or (), rank.loaded, rank.physical


class Ladder:
    """How several files stand to each other, by their numbers.

    Attributes:
        steps: of each file how many it stands above; None where the order has a circle.
    """

    def __init__(self, ranks: Sequence[Rank]) -> None:
        """Compare each with each."""
        self._ranks = ranks
        self._known: dict[tuple[int, ...], int] = {}
        below = [
            sum(other is not one and stands_above(one, other) for other in ranks) for one in ranks
        ]
        # Of two one stands above the other: without a circle no two stand above as many.
        self.steps = below if len(set(below)) == len(below) else None

    def top(self, numbers: Sequence[int]) -> int:
        """The highest of some files."""
        several = tuple(numbers)
        found = self._known.get(several)
        if found is None:
            rank = highest(self._ranks[each] for each in several)
            found = next(each for each in several if self._ranks[each] is rank)
            self._known[several] = found
        return found
