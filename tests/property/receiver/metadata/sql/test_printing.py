"""Every statement has a text, and the text means the same statement."""

import datetime

from hypothesis import given, settings
from hypothesis import strategies as st

from common.tsfile.layout import Compression, Encoding
from receiver.metadata.commit.operations import NewSeries
from receiver.metadata.model import alterations as alter
from receiver.metadata.model.paths import MANY, ONE, PartialPattern, Pattern
from receiver.metadata.model.types import TYPES
from receiver.metadata.query import questions as ask
from receiver.metadata.sql import statements as sql
from receiver.metadata.sql.parser import keywords, parse
from tests.support import tiers
from tests.support.sql_printing import format_statement

ANY = st.text(st.characters(codec="utf-8"), max_size=12)
NAMES = st.one_of(
    st.text(st.characters(codec="utf-8"), min_size=1, max_size=12),
    st.sampled_from(sorted(keywords())),
    st.sampled_from(
        ["a", "1", "3e5", "a.b", "a`b", "it's", 'say "x"', "a,b", "--", "/*", ";", "*"]
    ),
)
NODES = st.lists(NAMES, max_size=4).map(lambda names: ("root", *names))
STEPS = st.one_of(
    NAMES,
    st.just(ONE),
    st.just(MANY),
    st.sampled_from([PartialPattern("s*"), PartialPattern("*a*b")]),
)
PATTERNS = st.lists(STEPS, max_size=4).map(lambda steps: Pattern(("root", *steps)))
PAIRS = st.dictionaries(NAMES, ANY, max_size=3)
SOME_PAIRS = st.dictionaries(NAMES, ANY, min_size=1, max_size=3)
NUMBERS = st.integers(0, 2**63 - 1)
ZONES = st.integers(-14 * 60, 14 * 60).map(
    lambda minutes: datetime.timezone(datetime.timedelta(minutes=minutes))
)
EARLIEST = datetime.datetime.fromisoformat("1971-01-01")
LATEST = datetime.datetime.fromisoformat("2500-01-01")
AT = st.one_of(
    st.none(),
    NUMBERS,
    st.datetimes(EARLIEST, LATEST, timezones=ZONES),
)
WHERE = st.one_of(st.none(), st.builds(ask.TagFilter, NAMES, ANY, st.booleans()))
LISTED = {
    "pattern": PATTERNS,
    "at": AT,
    "limit": st.one_of(st.none(), NUMBERS),
    "offset": st.one_of(st.just(0), NUMBERS),
}
ASKED = {"pattern": PATTERNS, "at": AT}
SERIES = st.builds(
    NewSeries,
    name=NAMES,
    type=st.sampled_from(TYPES),
    encoding=st.one_of(st.none(), st.sampled_from(Encoding)),
    compression=st.one_of(st.none(), st.sampled_from(Compression)),
    alias=st.one_of(st.none(), NAMES),
    tags=PAIRS,
    attributes=PAIRS,
    props=PAIRS,
)
ALTERATIONS = st.one_of(
    st.builds(alter.Rename, NAMES, NAMES),
    st.builds(alter.SetValues, SOME_PAIRS),
    st.builds(alter.Drop, st.lists(NAMES, min_size=1, max_size=3).map(tuple)),
    st.builds(alter.AddTags, SOME_PAIRS),
    st.builds(alter.AddAttributes, SOME_PAIRS),
    st.builds(alter.Upsert, st.one_of(st.none(), NAMES), SOME_PAIRS, PAIRS),
    st.builds(alter.Upsert, NAMES),
)
DEVICES = st.lists(NAMES, min_size=1, max_size=3).map(lambda names: ("root", *names))
PATTERN_LISTS = st.lists(PATTERNS, min_size=1, max_size=3).map(tuple)
NO_PARTS = st.just(sql.TablePartitions())
TABLE_PARTS = st.one_of(
    st.builds(sql.TablePartitions, st.lists(NUMBERS, min_size=1, max_size=3).map(tuple)),
    st.builds(sql.TablePartitions, st.just(()), NUMBERS, NUMBERS, st.one_of(st.none(), NUMBERS)),
)
STATEMENTS = st.one_of(
    st.just(sql.CreateSnapshot()),
    st.just(sql.BeginTransaction()),
    st.just(sql.CommitTransaction()),
    st.just(sql.RollBackTransaction()),
    st.just(sql.ShowTransactions()),
    st.builds(sql.SetStorageGroups, st.lists(NODES, min_size=1, max_size=3).map(tuple)),
    st.builds(sql.DeleteStorageGroups, PATTERN_LISTS),
    st.builds(
        sql.DeleteStorageGroups,
        PATTERN_LISTS,
        st.just(value=True),
        st.one_of(st.none(), st.text("0123456789abcdef", min_size=1)),
    ),
    st.builds(sql.CreateTimeseries, DEVICES, SERIES),
    st.builds(sql.CreateAligned, DEVICES, st.lists(SERIES, min_size=1, max_size=3).map(tuple)),
    st.builds(sql.DeleteTimeseries, PATTERN_LISTS),
    st.builds(sql.SetTtl, NODES, st.one_of(st.none(), NUMBERS)),
    st.builds(sql.SetUpload, NODES, st.one_of(st.none(), st.just(-1), NUMBERS)),
    st.builds(sql.AlterTimeseries, NODES, ALTERATIONS),
    st.builds(
        sql.CreateTable, NODES, st.one_of(st.none(), NUMBERS), st.one_of(NO_PARTS, TABLE_PARTS)
    ),
    st.builds(sql.AlterTable, NODES, NUMBERS),
    st.builds(sql.AlterTable, NODES, st.none(), st.just(value=True)),
    st.builds(sql.AlterTable, NODES, st.none(), st.just(value=False), TABLE_PARTS),
    st.builds(
        sql.LoadFiles,
        st.lists(
            st.text(st.characters(codec="utf-8"), min_size=1, max_size=12), min_size=1, max_size=3
        ).map(tuple),
        st.lists(ANY, max_size=3).map(tuple),
        st.one_of(st.none(), ANY),
        st.sampled_from(("error", "keep", "replace", "skip")),
    ),
    st.builds(ask.ShowTimeseries, where=WHERE, by_heat=st.booleans(), **LISTED),
    st.builds(ask.ShowDevices, **LISTED),
    st.builds(ask.ShowStorageGroups, **LISTED),
    st.builds(ask.ShowChildPaths, **LISTED),
    st.builds(ask.ShowChildNodes, **LISTED),
    st.builds(ask.ShowFiles, **LISTED),
    st.builds(ask.ShowPartitions, **LISTED),
    st.builds(ask.ShowCacheSlots, limit=LISTED["limit"], offset=LISTED["offset"], at=AT),
    st.builds(ask.ShowStorageNodes, limit=LISTED["limit"], offset=LISTED["offset"], at=AT),
    st.builds(ask.ShowTasks, limit=LISTED["limit"], offset=LISTED["offset"], at=AT),
    st.builds(ask.ShowTagKeys, **LISTED),
    st.builds(ask.ShowTagValues, key=st.one_of(st.none(), NAMES), **LISTED),
    st.builds(ask.ShowTtl, groups=st.lists(PATTERNS, max_size=2).map(tuple), at=AT),
    st.builds(ask.ShowUpload, groups=st.lists(PATTERNS, max_size=2).map(tuple)),
    st.builds(ask.CountTimeseries, where=WHERE, level=st.one_of(st.none(), NUMBERS), **ASKED),
    st.builds(ask.CountDevices, **ASKED),
    st.builds(ask.CountStorageGroups, **ASKED),
    st.builds(ask.CountNodes, level=NUMBERS, **ASKED),
)


@settings(max_examples=tiers.examples(1000))
@given(STATEMENTS)
def test_the_text_of_a_statement_means_that_statement(statement):
    text = format_statement(statement)
    assert parse(text) == statement, text


@settings(max_examples=tiers.examples(200))
@given(STATEMENTS)
def test_there_is_one_text_of_a_statement(statement):
    text = format_statement(statement)
    assert format_statement(parse(text)) == text
