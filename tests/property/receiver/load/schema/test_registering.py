"""What a decision finds is what the rules of the engine find, for any files in any order."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from common.errors import TsferryError
from common.names import FilePath
from receiver.load.deciding.known_files.candidates import physical_name
from receiver.load.schema.registering import Registering, SeriesRefusal
from receiver.metadata.commit.draft import Draft, examine
from receiver.metadata.model import records
from receiver.metadata.model.paths import parse_stored
from receiver.metadata.state.state import State
from tests.support.node_world import A, path_of

names = st.sampled_from(["a", "b", "c"])
devices = st.lists(names, min_size=1, max_size=3).map(lambda nodes: ".".join(["root.sg", *nodes]))
series = st.dictionaries(names, st.sampled_from([2, 4]), min_size=1, max_size=3)
files = st.lists(st.dictionaries(devices, series, min_size=1, max_size=3), min_size=1, max_size=5)


def registers(file: dict[str, dict[str, int]]) -> list[records.LoadedDevice]:
    return [
        records.LoadedDevice(
            device,
            False,
            tuple(types),
            bytes(types.values()),
            bytes(len(types)),
            bytes(len(types)),
            (1,) * len(types),
        )
        for device, types in file.items()
    ]


def loaded(number: int) -> records.FileLoaded:
    path = FilePath.parse(path_of(number))
    return records.FileLoaded(
        sender=A,
        path=path.text,
        physical=physical_name(A, "1" * 32, path).text,
        size=1,
        md5="0" * 32,
        tail="",
        version=4,
        devices=[],
        first=None,
        last=None,
        series=0,
        points=0,
        task="1" * 32,
    )


def fits(state: State, ops: list[records.Op]) -> bool:
    try:
        examine(state, ops)
    except TsferryError:
        return False
    return True


@given(files, st.integers(0, 5))
def test_a_decision_agrees_with_the_rules(task: list[dict[str, dict[str, int]]], cut: int) -> None:
    """The first `cut` files are committed one by one, the others are one task."""
    state = State()
    state.apply(records.Commit(1, [records.SenderSeen(A, "", f"x_{A}")]))
    ops: list[records.Op] = []
    registering = Registering(Draft(state), level=0)
    types: dict[str, int] = {}
    for number, file in enumerate(task):
        head = loaded(number)
        found = registering.take(head.physical, "root.sg", registers(file), before=[head])
        whole = [
            *ops,
            head,
            records.StorageGroupSet("root.sg", if_missing=True),
            records.SeriesLoaded(head.physical, registers(file)),
        ]
        assert fits(state, whole) == (not isinstance(found, SeriesRefusal)), (file, found)
        if isinstance(found, SeriesRefusal):
            continue
        for device, made in file.items():
            for name, code in made.items():
                assert types.setdefault(f"{device}.{name}", code) == code
        ops += [head, *found]
        if number < cut:
            state.apply(records.Commit(10 + number, ops))
            ops, registering = [], Registering(Draft(state), level=0)
    if ops:
        state.apply(records.Commit(100, ops))
    there = {
        path: state.schema.series.type_of(state.schema.series.find(parse_stored(path)))
        for path in types
    }
    assert there == types
    assert state.schema.columns.series_count == len(types)
