"""Which records of deletion files count: of a TsFile with both forms, and as of a commit."""

from __future__ import annotations

from receiver.metadata.query.applied_deletions import applied_deletions
from receiver.metadata.state.deletion_rows import DeletionsRow, DeletionsSegment
from receiver.spark.noted_deletions import NotedDeletions

PATH = "sequence/root.a/0/0/1-1-0-0.tsfile"
PHYSICAL = "sequence/root.a/0/0/1-1-0-0.x.tsfile"


def row(form: str, *segments: tuple[bytes, int, bool]) -> DeletionsRow:
    """A deletion file: (records, commit, whether they are applied) of each look."""
    content, made = b"", []
    for records, commit, applied in segments:
        content += records
        made.append(DeletionsSegment(len(content), 3, commit, applied))
    return DeletionsRow(
        sender="a",
        path=PATH,
        physical=PHYSICAL,
        form=form,
        content=content,
        segments=tuple(made),
        created=1,
        changed=1,
    )


def counting(rows: list[DeletionsRow], at: int) -> list[bytes]:
    return [each.content for each in applied_deletions(rows, at)]


def test_records_reach_the_files_of_their_own_storage_group() -> None:
    """A record of a table does not say of which database; two may have a table of one name."""
    noted = NotedDeletions([row("mods", (b"old", 5, True))], 9, lambda row: frozenset())
    near, far = "unsequence/root.a/7/1/2-2-0-0.x.tsfile", "sequence/root.b/0/0/1-1-0-0.x.tsfile"
    assert noted.of("a", near, closed=3).others
    assert not noted.of("a", far, closed=3)


def test_the_newer_form_takes_the_place_of_the_older_one_when_it_is_applied() -> None:
    rows = [row("mods", (b"old", 5, True)), row("mods2", (b"new", 7, True))]
    assert counting(rows, 6) == [b"old"]
    assert counting(rows, 7) == [b"new"]


def test_what_the_older_form_hides_stays_hidden_while_the_newer_one_is_held() -> None:
    rows = [
        row("mods", (b"old", 5, True)),
        row("mods2", (b"new", 7, False), (b"more", 9, True)),
    ]
    assert counting(rows, 8) == [b"old"]
    assert counting(rows, 9) == [b"old", b"more"]
    own = NotedDeletions(rows, 9, lambda row: frozenset()).of("a", PHYSICAL, closed=3).own
    assert [(each.form, each.content) for each in own] == [("mods", b"old"), ("mods2", b"more")]
