"""Rows that are loaded at the centre pass the rules of the site, or nothing is loaded."""

from __future__ import annotations

import re
import secrets
import tomllib
from collections.abc import Callable, Iterator
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path

import pyarrow as pa
import pytest

from common.errors import UsageError
from receiver.node import Node
from receiver.operator.centre.load_judge import LoadJudge
from receiver.operator.stored.files import list_files
from receiver.operator.views.load_wire import AdoptionRequest, CentreLoadAnswer, CentreLoadRequest
from receiver.row_checks import check_process, constraints, installed
from receiver.row_checks.check_process import CheckedRows, RowChecks
from receiver.row_checks.row_checking import check_rows
from receiver.row_checks.rows_asked import RowsAnswer, RowsAsked
from tests.support.node_world import Edge, World, path_of, tsfile
from tests.support.old_tool import UUID, OldReceiverTree
from tests.support.tsfile_bytes import build

PAGE = Path(__file__).resolve().parents[4] / "docs" / "operation.md"


def below_1000(rows: pa.RecordBatch) -> None:
    if any((each or 0) >= 1000 for each in rows.column("s1").to_pylist()):
        raise ValueError("s1 of 1000 and more")


def even_sum(rows: pa.RecordBatch) -> None:
    if len(rows) > 1 and sum(rows.column("s1").to_pylist()) % 2:
        raise ValueError("an odd sum")


def known_device(rows: pa.RecordBatch) -> None:
    assert rows.schema.names[:2] == ["time", "device"]
    if rows.column("device")[0].as_py() == "root.sg.strange":
        raise LookupError


async def later(rows: pa.RecordBatch) -> None:
    raise ValueError("too late")


def by_and_by(rows: pa.RecordBatch) -> Iterator[None]:
    yield
    raise ValueError("too late")


def told(rows: pa.RecordBatch) -> bool:
    return False


def wordy(rows: pa.RecordBatch) -> None:
    raise ValueError("no " * 10**6)


SILENT = (later, by_and_by, told)
RULES = {each.__name__: each for each in (below_1000, even_sum, known_device, wordy, *SILENT)}


@pytest.fixture(autouse=True)
def _installed(monkeypatch: pytest.MonkeyPatch) -> None:
    found = EntryPoints(EntryPoint(each, f"{__name__}:{each}", installed.GROUP) for each in RULES)
    for each in (constraints, installed):
        monkeypatch.setattr(each, "entry_points", lambda **given: found.select(**given))


class _Here:
    """Rows are checked in this process: to start another one takes a second."""

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def ask(self, asked: RowsAsked, stopped: Callable[[], bool]) -> RowsAnswer:
        return check_rows(asked)

    def close(self) -> None:
        pass


@pytest.fixture
def checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Node]:
    monkeypatch.setattr(check_process, "SideProcess", _Here)
    world = World(
        tmp_path / "centre",
        load={"constraints": ("below_1000", "known_device"), "check_adopted": True},
    )
    with world.node() as node:
        yield node


def rows_of(path: Path, content: bytes, *names: str, group: str = "root.sg") -> RowsAnswer:
    path.write_bytes(content)
    return check_rows(RowsAsked(str(path), "a file", group, list(names)))


def load(node: Node, root: Path, files: dict[str, bytes], **more: object) -> CentreLoadAnswer:
    for path, content in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(content)
    task = secrets.token_hex(16)
    request = CentreLoadRequest(task=task, paths=[str(root)], **more)  # type: ignore[arg-type]
    return node.operator.centre.load(request)


def test_the_first_row_that_does_not_pass_is_named_with_its_device_and_time(tmp_path: Path) -> None:
    good = tsfile(points=99)
    assert rows_of(tmp_path / "f", good, "below_1000", "finite") == RowsAnswer(None)
    answer = rows_of(tmp_path / "f", tsfile(points=300), "finite", "below_1000")
    assert answer.broken is not None
    assert answer.broken.text == (
        "constraint below_1000: device root.sg.d1, time 100: s1 of 1000 and more"
    )
    content = build({"root.sg.ok": {"s1": [(1, 1)]}, "root.sg.strange": {"s1": [(7, 1)]}})
    answer = rows_of(tmp_path / "f", content, "known_device")
    assert answer.broken is not None
    assert answer.broken.text == (
        "constraint known_device: device root.sg.strange, time 7: LookupError"
    )


@pytest.mark.filterwarnings("ignore:coroutine")
@pytest.mark.parametrize("rule", SILENT)
def test_a_rule_that_has_not_looked_or_does_not_raise_lets_nothing_pass(
    tmp_path: Path, rule: Callable[..., object]
) -> None:
    answer = rows_of(tmp_path / "f", tsfile(), rule.__name__)
    assert answer.broken is not None
    assert "a constraint raises where rows do not pass" in answer.broken.reason
    with pytest.raises(constraints.BrokenConstraintError, match=rule.__name__):
        constraints.constraints_of([rule.__name__])(pa.record_batch({"time": [1]}))


def test_what_a_rule_says_is_told_in_part_where_it_is_long(tmp_path: Path) -> None:
    answer = rows_of(tmp_path / "f", tsfile(), "wordy")
    assert answer.broken is not None
    assert len(answer.broken.text) < 2000


def test_rows_that_do_not_pass_together_alone_are_named_with_their_times(tmp_path: Path) -> None:
    content = build({"root.sg.d": {"s1": [(1, 2), (2, 1), (3, 2)]}})
    answer = rows_of(tmp_path / "f", content, "even_sum")
    assert answer.broken is not None
    assert "times 2 to 3: an odd sum" in answer.broken.text


def test_rows_of_a_table_have_its_tags(tmp_path: Path) -> None:
    content = build({("plant", "p1"): {"v": [(1, 1.5)]}, ("plant", None): {"v": [(2, 2.5)]}})
    answer = rows_of(tmp_path / "f", content, "tagged", group="db")
    assert answer.broken is not None
    assert (answer.broken.first, "NULL in 1 rows" in answer.broken.reason) == (2, True)


def test_a_file_with_a_row_that_does_not_pass_refuses_the_load_by_file_device_and_time(
    checked: Node, tmp_path: Path
) -> None:
    files = {path_of(1): tsfile(points=5), path_of(2): tsfile("root.sg.d2", points=200)}
    for dry in (True, False):
        answer = load(checked, tmp_path / "old", files, dry_run=dry)
        assert [each.result for each in answer.files] == ["refused"] * 2
        (bad,) = [each for each in answer.files if each.device]
        assert bad.source.endswith(path_of(2))
        assert (bad.device, "time 100: s1 of 1000" in (bad.reason or "")) == ("root.sg.d2", True)
    assert list_files(checked.operator).files == []
    (tmp_path / "old" / path_of(2)).unlink()
    assert load(checked, tmp_path / "old", {}).files[0].result == "loaded"


def test_what_is_here_already_does_not_have_to_pass(checked: Node, tmp_path: Path) -> None:
    bad = tsfile(points=300)
    Edge(checked).round({path_of(1): bad})
    assert load(checked, tmp_path / "old", {path_of(1): bad}).files[0].result == "already"


def test_what_is_adopted_has_to_pass_where_that_is_configured(
    checked: Node, tmp_path: Path
) -> None:
    old = OldReceiverTree(tmp_path / "iotdb")
    old.loaded({path_of(1): tsfile(points=300)})
    for commit in (False, True):
        request = AdoptionRequest(
            task=secrets.token_hex(16), paths=[str(old.root)], owner=UUID, commit=commit
        )
        (file,) = checked.operator.adoptions.adopt(request).files
        assert file.result == "refused"
        assert "time 100: s1 of 1000 and more" in (file.reason or "")
    assert list_files(checked.operator).files == []


def test_a_name_that_is_not_installed_keeps_the_receiver_from_starting(tmp_path: Path) -> None:
    world = World(tmp_path / "centre", load={"constraints": ("unheard",)})
    with pytest.raises(UsageError, match=r"load\.constraints: 'unheard' is not installed here"):
        world.node()


def test_a_rule_that_takes_too_long_is_ended_and_its_file_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process beside the server is asked, and found to be there longer than it may."""
    times = iter((0.0, 1.0, 400.0, 400.0))

    class Hanging(_Here):
        def ask(self, asked: RowsAsked, stopped: Callable[[], bool]) -> RowsAnswer:
            assert [stopped(), stopped()] == [False, True]
            raise check_process.ProcessDied("exit status None")

    monkeypatch.setattr(check_process, "SideProcess", Hanging)
    checks = RowChecks(["below_1000"], memory=1, seconds=300, monotonic=lambda: next(times))
    file = CheckedRows(str(tmp_path / "f"), "f", "root.sg")
    found = checks.first_broken([file], lambda: False)
    assert found is not None
    assert "below_1000 took longer than load.constraint_time (300 s)" in found[1]


@pytest.mark.slow
def test_the_rule_of_the_manual_is_found_beside_the_receiver_and_refuses_what_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocks = re.findall(
        r"^```(toml|python)\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE
    )
    project = next(text for _, text in blocks if "entry-points" in text)
    rule = next(text for _, text in blocks if text.startswith("# plant_rules.py"))
    entries = tomllib.loads(project)["project"]["entry-points"][installed.GROUP]
    site = tmp_path / "site"
    about = site / "plant_rules-1.0.dist-info"
    about.mkdir(parents=True)
    (site / "plant_rules.py").write_text(rule)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: plant-rules\nVersion: 1.0\n")
    lines = [f"{name} = {value}" for name, value in entries.items()]
    (about / "entry_points.txt").write_text("\n".join([f"[{installed.GROUP}]", *lines, ""]))
    monkeypatch.undo()
    monkeypatch.syspath_prepend(str(site))
    content = build({"root.plant.d1": {"temperature": [(1, 20.0), (1700000000000, 451.0)]}})
    (tmp_path / "f").write_bytes(content)
    checks = RowChecks(["finite", "plausible"], memory=1 << 30, seconds=300)
    found = checks.first_broken(
        [CheckedRows(str(tmp_path / "f"), "f", "root.plant")], lambda: False
    )
    assert found is not None
    expected = "constraint plausible: device root.plant.d1, time 1700000000000: a temperature of"
    assert found[1] == f"{expected} 451"
    assert f"{expected} 451" in PAGE.read_text()


def test_what_stands_behind_a_bad_file_is_checked_though_that_one_came_otherwise_meanwhile(
    checked: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first bad file is not loaded, as an edge brings it; the second one is bad, too."""
    files = {path_of(1): tsfile(points=300), path_of(2): tsfile("root.sg.d2", points=200)}
    outcomes = LoadJudge.outcomes

    def overtaken(*given: object, **more: object) -> object:
        monkeypatch.setattr(LoadJudge, "outcomes", outcomes)
        Edge(checked).round({path_of(1): files[path_of(1)]})
        return outcomes(*given, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(LoadJudge, "outcomes", overtaken)
    answer = load(checked, tmp_path / "old", files)
    assert [each.result for each in answer.files] == ["already", "refused"]
    assert "time 100: s1 of 1000" in (answer.files[1].reason or "")
    assert len(list_files(checked.operator).files) == 1
