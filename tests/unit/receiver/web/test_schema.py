"""The schema over HTTP: blocks of a task, changes for a reader, an operator's import."""

import json

import msgspec
import pytest

from common import wire
from common.formats.schemaitems import Group, SchemaChanges, SeriesItem
from common.formats.schemawire import encode_schema_block
from receiver.operator.views.wire import ImportAnswer, ImportRequest
from tests.unit.receiver.web.handlers import test_sync

TASK, send, read = test_sync.TASK, test_sync.send, test_sync.read
started = test_sync.started

LOG = b"2,root.sg\n0,root.sg.d1.s1,1,0,1,,,\n"


def block(data=LOG, at=0, slots=None):
    return encode_schema_block(wire.SchemaKind.TEXT, "log", 0, at, data, slots)


def patch(client, headers, body, media=wire.SCHEMA_TYPE):
    return client.patch(
        f"/sync/v1/tasks/{TASK}/schema", data=body, headers={**headers, "Content-Type": media}
    )


def test_blocks_are_taken_and_applied_with_the_task(client, started):
    assert read(patch(client, started, block()), wire.SchemaAnswer).size == len(LOG)
    schema = wire.SchemaEnd(
        kind=wire.SchemaKind.TEXT,
        identity="log",
        base=0,
        size=len(LOG),
        offset=len(LOG),
        news=len(LOG),
        mark="m",
    )
    end = wire.EndRequest(manifest=[], schema=schema)
    assert send(client, "POST", f"/tasks/{TASK}/end", end, headers=started).status_code in (
        200,
        202,
    )
    answer = read(send(client, "GET", f"/tasks/{TASK}?wait=20", headers=started), wire.TaskAnswer)
    assert answer.schema_position is not None
    assert (answer.schema_position.offset, answer.schema_position.applied) == (len(LOG), 2)
    epoch = started["Tsferry-Epoch"]
    engine = {"engine": read(test_sync.check(client, epoch=epoch), wire.CheckAnswer).engine}
    found = read(test_sync.check(client, epoch=epoch, **engine), wire.CheckAnswer)
    assert found.schema
    assert found.schema_position == answer.schema_position


def test_a_block_in_a_wrong_place_is_told_the_right_one(client, started):
    patch(client, started, block())
    answer = patch(client, started, block(b"x", 5))
    assert answer.status_code == 409
    problem = json.loads(answer.get_data())
    assert (problem["type"], problem["offset"]) == ("urn:tsferry:offset", len(LOG))


@pytest.mark.parametrize(
    ("body", "media", "status"),
    [
        (b"rubbish", wire.SCHEMA_TYPE, 400),
        (b"", wire.SCHEMA_TYPE, 400),
        (block()[:-1] + b"x", wire.SCHEMA_TYPE, 422),
        (block(), "application/json", 415),
    ],
)
def test_what_is_no_block_is_refused(client, started, body, media, status):
    assert patch(client, started, body, media).status_code == status


def test_a_block_of_a_copy_of_the_machine_is_refused(client, started):
    answer = patch(client, {**started, "Tsferry-Epoch": f"1.{0:016x}"}, block())
    assert answer.status_code in (409, 410)


def test_changes_are_for_readers_page_by_page(client, operator):
    items = [Group(path="root.sg", ttl=5)]
    items += [
        SeriesItem(path=f"root.sg.d1.s{number}", type=1, encoding=0, compression=1, tags={"k": "v"})
        for number in range(3)
    ]
    body = msgspec.json.encode(ImportRequest(items=items))
    headers = {**operator, "Content-Type": "application/json"}
    dry = msgspec.json.encode(ImportRequest(items=items, dry_run=True))
    answer = read(client.post("/v1/schema/import", data=dry, headers=headers), ImportAnswer)
    assert (answer.applied, answer.failed) == (4, [])
    assert read(client.get("/sync/v1/schema/changes", headers=operator), SchemaChanges).items == []
    answer = read(client.post("/v1/schema/import", data=body, headers=headers), ImportAnswer)
    assert (answer.applied, answer.failed) == (4, [])
    found = []
    cursor = None
    while True:
        query = {"limit": "2"} | ({} if cursor is None else {"cursor": cursor})
        answer = client.get("/sync/v1/schema/changes", query_string=query, headers=operator)
        page = read(answer, SchemaChanges)
        found += page.items
        cursor = page.next
        if cursor is None:
            break
    assert [each.path for each in found] == ["root.sg", *(f"root.sg.d1.s{n}" for n in range(3))]
    after = f"/sync/v1/schema/changes?after={page.commit}"
    assert read(client.get(after, headers=operator), SchemaChanges).items == []


@pytest.mark.parametrize("query", ["after=-1", "after=x", "after=9" * 30, "cursor=x", "limit=0"])
def test_a_question_that_makes_no_sense_is_refused(client, operator, query):
    answer = client.get(f"/sync/v1/schema/changes?{query}", headers=operator)
    assert answer.status_code == 400


def test_an_item_that_is_none_is_refused(client, operator):
    headers = {**operator, "Content-Type": "application/json"}
    for items in ('[{"is":"nothing","path":"root.a"}]', '[{"is":"series","path":"root.a.b"}]', "1"):
        answer = client.post("/v1/schema/import", data=f'{{"items":{items}}}', headers=headers)
        assert answer.status_code == 400
