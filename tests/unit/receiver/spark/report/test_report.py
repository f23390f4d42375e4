"""The report says what was found, whole and readable, and nothing in it can act."""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from receiver.spark.report import Delivery, figures, summarise, text, write
from receiver.spark.report.page import LIMIT, render
from receiver.spark.report.results import DayCount, Judgement, Severity, Verification
from tests.support.verifications import BEGUN, file, finding, rich, run, span

NASTY = "root.sg.<img src=x onerror=alert(1)>\u202e\"'&d"


class _Page(HTMLParser):
    """Tags, attributes and text of a page; complains of tags that do not pair."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.text = ""
        self.feed(page)
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "br", "line"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in ("meta", "br", "line"):
            assert self.open.pop() == tag

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


def page_of(result: Verification, delivery: Delivery | None = None) -> _Page:
    return _Page(render(summarise(result, delivery), result))


def test_the_page_says_in_its_first_line_whether_all_is_well() -> None:
    bad = file(verdict=Judgement.BAD, findings=[finding(Severity.BAD)])
    unproved = file(verdict=Judgement.UNPROVED, findings=[finding(Severity.UNPROVED)])
    problem = file(findings=[finding(Severity.PROBLEM)])
    for files, headline in (
        ([file(), file()], "All 2 files are proved"),
        ([file()], "The file is proved"),
        ([file(), bad, unproved], "1 of 3 files is bad"),
        ([file(), unproved, problem], "1 of 3 files could not be judged"),
        ([file(), problem], "All 2 files proved, 1 problem between them"),
        ([], "No files to verify"),
    ):
        assert headline in page_of(run(files)).text


def test_every_finding_stands_with_its_file_series_and_offset() -> None:
    page = page_of(rich())
    for expected in (
        "root.wind.north.turbine_07.rotor_speed", "offset 48213",
        "max 17.25 in page 3, its statistics have 11.5", "its pages are encrypted",
    ):  # fmt: skip
        assert expected in page.text


def test_a_name_cannot_act_on_the_page() -> None:
    result = run(
        [file(NASTY, findings=[finding(Severity.PROBLEM, device=NASTY, detail=NASTY)])],
        days=(DayCount(NASTY, BEGUN.date(), 5),),
        gaps=(span(NASTY, 5_000),),
    )
    page = page_of(result)
    assert {"img", "script", "link", "iframe"}.isdisjoint(tag for tag, _ in page.tags)
    assert not [name for _, found in page.tags for name in found if name.startswith("on")]
    assert "\u202e" not in page.text
    assert page.text.count("<img src=x onerror=alert(1)>") >= 5


def test_the_page_needs_nothing_from_elsewhere() -> None:
    page = page_of(rich())
    for _, attributes in page.tags:
        assert {"src", "href"}.isdisjoint(attributes)
    policy = [each["content"] for tag, each in page.tags if "http-equiv" in each]
    assert policy == ["default-src 'none'; style-src 'unsafe-inline'"]


def test_a_large_run_has_a_page_of_bounded_size_that_shows_the_worst_first() -> None:
    files = [file(f"sequence/a/0/0/{n}.tsfile") for n in range(3 * LIMIT)]
    files[-1] = replace(
        files[-1], verdict=Judgement.BAD, findings=(finding(Severity.BAD, detail="rotten"),)
    )
    page = page_of(run(files))
    assert "rotten" in page.text
    assert page.text.count(files[-1].physical) == 2  # as found, at its sender, among the files
    assert len(page.text) < 400_000


def test_what_became_of_the_verdicts_is_said() -> None:
    result = run([file()])
    assert "Nothing was committed" in page_of(result).text
    page = page_of(result, Delivery(verified=1, quarantined=0, stale=3))
    assert "1 verified, 0 in quarantine, 3 changed meanwhile" in page.text
    assert "committed" not in page_of(replace(result, engine="", commit=0)).text


@pytest.mark.parametrize("times", [(-(1 << 63), (1 << 63) - 1), (None, None), (0, 0)])
def test_times_that_are_no_dates_do_not_break_the_page(times: tuple[int | None, int]) -> None:
    first, last = times
    odd = file(first_time=first, last_time=last)
    page_of(run([odd], days=(DayCount("", None, 5),), time_unit="ns"))


@pytest.mark.parametrize("years", [0, 1, 9, 90, 900, 9000])
def test_points_per_day_fit_on_the_page_however_long_the_time(years: int) -> None:
    first = datetime.date(min(2000, 9999 - years), 1, 31)
    last = first.replace(year=first.year + years, month=12)
    found = figures.points([DayCount("a", first, 5), DayCount("b", last, 7)])
    assert found is not None
    assert 1 <= found.chart.count('class="tick"') <= 20
    assert found.chart.count("<rect") >= 1


def test_more_storage_groups_than_colours_are_added_up() -> None:
    days = [DayCount(f"g{n:02}", BEGUN.date(), 100 - n) for n in range(20)]
    found = figures.points(days)
    assert found is not None
    assert [group for _, group, _ in found.legend][-1] == "13 others"
    assert sum(count for _, _, count in found.legend) == sum(each.points for each in days)


def test_days_without_points_are_counted() -> None:
    day = BEGUN.date()
    days = [DayCount("a", day - datetime.timedelta(days=back), 1) for back in (0, 1, 5)]
    found = figures.points(days)
    assert found is not None
    assert found.empty == 3


def test_the_lag_is_of_the_last_point_to_the_load() -> None:
    found = figures.lag([file(), file(loaded_at=None), file(last_time=None)], "ms")
    assert found is not None
    assert (found.files, found.median, found.most) == (1, "1.0 h", "1.0 h")


def test_the_directory_holds_all_of_the_run_and_can_be_written_again(tmp_path: Path) -> None:
    result = rich()
    for _ in range(2):
        write(tmp_path / "report", summarise(result), result)
        (tmp_path / "report" / "chunks.parquet.new").write_bytes(b"of a run that was cut off")
    (tmp_path / "report" / "chunks.parquet.new").unlink()
    found = {each.name for each in (tmp_path / "report").iterdir()}
    tables = ("files", "findings", "chunks", "spans", "days", "codecs", "duplicates")
    assert found == {"report.json", "report.html", *(f"{each}.parquet" for each in tables)}
    files = pq.read_table(tmp_path / "report" / "files.parquet")
    assert files.column("points").to_pylist() == [each.points for each in result.files]
    assert sum(files.column("bad").to_pylist()) == 2
    summary = json.loads((tmp_path / "report" / "report.json").read_text())
    assert summary["version"] == 2
    assert (
        len(summary["findings"]) == pq.read_table(tmp_path / "report" / "findings.parquet").num_rows
    )


def test_a_table_that_fails_leaves_the_old_one_and_no_half_of_a_new_one(tmp_path: Path) -> None:
    whole = rich()
    write(tmp_path, summarise(whole), whole)
    before = (tmp_path / "chunks.parquet").read_bytes()

    def lost() -> Iterator[pa.RecordBatch]:
        yield from whole.chunks()
        raise OSError("the session is gone")

    with pytest.raises(OSError, match="the session is gone"):
        write(tmp_path, summarise(whole), replace(whole, chunks=lost))
    assert (tmp_path / "chunks.parquet").read_bytes() == before
    assert not list(tmp_path.glob("*.new"))


def test_a_slow_run_has_a_rate_too() -> None:
    result = replace(run([replace(file(), points=23_000)]), seconds=10.0)
    assert "2.3 k" in page_of(result).text


def test_the_terminal_has_the_worst_first_and_cannot_be_steered() -> None:
    note = file(findings=[finding(Severity.NOTE, detail="hidden")])
    problem = file(findings=[finding(Severity.PROBLEM, "owner", detail="\x1b[2Jcleared")])
    bad = file(verdict=Judgement.BAD, findings=[finding(Severity.BAD, device="d", measurement="s")])
    shown = text(summarise(run([note, problem, bad])))
    assert shown.index("bad md5") < shown.index("problem owner")
    assert "[d.s]" in shown
    assert "\x1b" not in shown
    assert "hidden" not in shown
