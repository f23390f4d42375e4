"""Tasks over HTTP: what operators see and say of them, and what executors do."""

import msgspec
import pytest

from common import __version__
from common.digests import xxh3_64
from receiver.metadata.commit.group_deletion import delete_groups
from receiver.metadata.model.paths import parse_pattern
from receiver.metadata.model.records import WorkPlace
from receiver.operator.asked_work.background_tasks import ADDED_BY_HAND, background_concerns
from receiver.operator.edges.tokens import make_token
from receiver.operator.views import background_views as views
from receiver.operator.views.status_views import StatusView
from receiver.web.handlers.health import Health
from tests.support.node_world import Edge, tsfile

JSON = {"Content-Type": "application/json"}


@pytest.fixture
def say(client, node, operator):
    worker = {"Authorization": f"Bearer {make_token(node.engine, role='worker').token}"}

    def say(method, path, kind=None, body=None, expected=200, who="operator"):
        data = None if body is None else msgspec.json.encode(body)
        headers = {"operator": operator, "worker": worker, "nobody": {}}[who]
        answer = client.open(path, method=method, data=data, headers=headers | JSON)
        assert answer.status_code == expected, answer.get_data()
        return None if kind is None else msgspec.json.decode(answer.get_data(), type=kind)

    return say


@pytest.fixture
def tasks(say):
    def tasks(query=""):
        return say("GET", f"/v1/tasks{query}", views.BackgroundTasksPage).tasks

    return tasks


def test_a_task_is_added_listed_cancelled_and_tried_again(say, tasks, node):
    Edge(node).round({"sequence/root.sg/0/7/1-1-0-0.tsfile": tsfile("root.sg.d")})
    request = views.TaskAddRequest(kind="prove", group="root.sg", partition="7", priority=4)
    added = say("POST", "/v1/tasks", views.TaskNamed, request)
    (found,) = tasks()
    assert (found.task, found.kind, found.state) == (added.task, "prove", "pending")
    assert (found.scope, found.priority) == (["root.sg 7"], 4)
    say("POST", "/v1/tasks", None, request, expected=409)
    say("POST", f"/v1/tasks/{added.task}/retry", expected=409)
    say("POST", f"/v1/tasks/{added.task}/cancel", None, views.CancelRequest(reason="why"), 204)
    assert [(each.state, each.reason) for each in tasks()] == [("cancelled", "why")]
    assert tasks("?state=pending") == []
    assert tasks("?kind=merge") == []
    say("POST", f"/v1/tasks/{added.task}/retry", expected=204)
    assert [each.state for each in tasks("?state=pending&kind=prove")] == ["pending"]


def test_what_is_no_task_is_refused_by_name(say):
    for task in ("1", "x", "9" * 30):
        say("POST", f"/v1/tasks/{task}/retry", expected=404)
        say("POST", f"/v1/tasks/{task}/cancel", None, views.CancelRequest(), expected=404)
    say("POST", "/v1/tasks", None, views.TaskAddRequest(kind="odd", group="root.sg"), 400)
    say("GET", "/v1/tasks?state=odd", expected=400)


@pytest.mark.parametrize("kind", ADDED_BY_HAND)
def test_a_task_of_what_is_not_there_is_refused_by_name_when_it_is_added(say, tasks, node, kind):
    node.engine.set_storage_group("root.empty")
    Edge(node).round({"sequence/root.sg/0/7/1-1-0-0.tsfile": tsfile("root.sg.d")})
    for group, partition, status, named in (
        ("root.nothing", "", 404, "no storage group 'root.nothing'"),
        ("root", "", 404, "no storage group 'root'"),
        ("root.sg.d", "", 404, "no storage group 'root.sg.d'"),
        ("root.sg", "8", 404, "no files of partition 8"),
        ("root.empty", "7", 404, "no files of partition 7"),
        ("root.sg", "07", 400, "its number"),
        ("root.sg", "x", 400, "its number"),
        ("root.*", "", 404, "no storage group 'root.*'"),
        ("root..d", "", 404, "no storage group 'root..d'"),
        ("", "", 404, "no storage group ''"),
    ):
        request = views.TaskAddRequest(kind=kind, group=group, partition=partition)
        problem = say("POST", "/v1/tasks", dict, request, status)
        assert named in problem["detail"]
    assert tasks() == []
    say("POST", "/v1/tasks", None, views.TaskAddRequest(kind=kind, group="root.empty"))
    say("POST", "/v1/tasks", None, views.TaskAddRequest(kind=kind, group="root.sg", partition="7"))


def test_a_task_of_what_is_not_there_any_more_does_not_wait_again(say, tasks, node):
    """It would be done at once, and its failure would count no more."""
    Edge(node).round({"sequence/root.sg/0/7/1-1-0-0.tsfile": tsfile("root.sg.d")})
    request = views.TaskAddRequest(kind="prove", group="root.sg", partition="7")
    added = say("POST", "/v1/tasks", views.TaskNamed, request)
    say("POST", f"/v1/tasks/{added.task}/cancel", None, views.CancelRequest(reason="why"), 204)
    where = [parse_pattern("root.sg")]
    delete_groups(node.engine, where, with_data=True, held_from=None, allowed=None)
    problem = say("POST", f"/v1/tasks/{added.task}/retry", dict, expected=404)
    assert "no storage group 'root.sg'" in problem["detail"]
    assert [(each.state, each.reason) for each in tasks()] == [("cancelled", "why")]


def test_tasks_come_in_pages(say, node):
    for at in range(3):
        node.work.add("prove", b"", [WorkPlace("root.sg", str(at))])
    first = say("GET", "/v1/tasks?limit=2", views.BackgroundTasksPage)
    second = say("GET", f"/v1/tasks?limit=2&after={first.next}", views.BackgroundTasksPage)
    scopes = [each.scope for each in first.tasks + second.tasks]
    assert scopes == [["root.sg 0"], ["root.sg 1"], ["root.sg 2"]]
    assert second.next is None


def test_only_operators_see_tasks_and_only_workers_do_them(say):
    take = views.TaskTakeRequest(executor="x", kinds=["prove"], version=__version__)
    say("GET", "/v1/tasks", expected=403, who="worker")
    say("POST", "/v1/tasks/take", None, take, expected=401, who="nobody")
    say("POST", "/v1/tasks/take", None, take, expected=204, who="worker")
    say("GET", "/v1/status", expected=403, who="worker")
    say("POST", "/v1/sql", None, {"statement": "show tasks"}, expected=403, who="worker")
    for wrong in (
        views.TaskTakeRequest(executor="x", kinds=["odd"], version=__version__),
        views.TaskTakeRequest(executor="x", kinds=[], version=__version__),
        views.TaskTakeRequest(executor="x y", kinds=["prove"], version=__version__),
    ):
        say("POST", "/v1/tasks/take", None, wrong, expected=400, who="worker")


def test_an_executor_takes_renews_and_ends(say, node, tasks):
    node.work.add("prove", b"", [WorkPlace("root.sg", "7")])
    take = views.TaskTakeRequest(executor="x", kinds=["prove"], version=__version__)
    taken = say("POST", "/v1/tasks/take", views.TaskTaken, take, who="worker")
    assert (taken.kind, taken.attempt, taken.lease) == ("prove", 1, node.work.lease)
    mine = f"/v1/tasks/{taken.task}/%s?executor=x&attempt=1"
    say("POST", mine % "renew", expected=204, who="worker")
    say("POST", mine % "renew", expected=409)  # an operator's token is another executor
    say("POST", f"/v1/tasks/{taken.task}/renew?executor=x", expected=400, who="worker")
    say("POST", f"/v1/tasks/{taken.task}/renew?executor=x&attempt=2", expected=409, who="worker")
    ended = views.TaskEndRequest(end="failed", reason="no room")
    say("POST", mine % "end", None, ended, expected=204, who="worker")
    say("POST", mine % "end", None, ended, expected=409, who="worker")
    (found,) = tasks()
    assert (found.state, found.reason) == ("failed", "no room")
    assert found.executor.startswith("x@")


def test_an_executor_of_another_version_is_refused_by_name(say, client):
    for version in ("0.0.9", ""):
        take = views.TaskTakeRequest(executor="x", kinds=["merge"], version=version)
        say("POST", "/v1/tasks/take", None, take, expected=409, who="worker")


def test_only_an_operator_says_which_task_it_takes(say, node):
    task = str(node.work.add("prove", b"", [WorkPlace("root.sg", "7")]))
    take = views.TaskTakeRequest(executor="x", kinds=["prove"], version=__version__, task=task)
    say("POST", "/v1/tasks/take", None, take, expected=403, who="worker")
    assert say("POST", "/v1/tasks/take", views.TaskTaken, take).task == task
    say("POST", "/v1/tasks/take", None, take, expected=409)
    odd = msgspec.structs.replace(take, task="x")
    say("POST", "/v1/tasks/take", None, odd, expected=404)


def test_a_block_that_goes_with_an_answer_is_taken_of_who_has_the_task(client, node, operator, say):
    worker = {"Authorization": f"Bearer {make_token(node.engine, role='worker').token}"}
    node.work.add("merge", b"", [WorkPlace("root.sg", "7")])
    take = views.TaskTakeRequest(executor="x", kinds=["merge"], version=__version__)
    taken = say("POST", "/v1/tasks/take", views.TaskTaken, take)
    asked = client.get(f"/v1/tasks/{taken.task}/question?executor=x&attempt=1", headers=operator)
    assert asked.status_code == 204, "nothing is there to be merged"

    def put(number="1", who=operator, media="application/octet-stream", **query):
        query = {"executor": "x", "attempt": "1", "tag": "t", "offset": "0",
                 "xxh3": xxh3_64(b"abc"), **query}  # fmt: skip
        kept = {name: value for name, value in query.items() if value is not None}
        return client.put(
            f"/v1/tasks/{taken.task}/outputs/{number}", query_string=kept, data=b"abc",
            headers={**who, "Content-Type": media},
        ).status_code  # fmt: skip

    assert put() == 409, "the task has ended"
    assert put(who=worker) == 409
    assert put(who={}) == 401
    assert put(number="x") == 400
    assert put(number="1" * 12) == 400
    assert put(tag=None) == 400
    assert put(offset=None) == 400
    assert put(attempt=None) == 400
    assert put(media="text/plain") == 415


def test_status_and_probes_tell_what_waits_runs_is_overdue_and_has_failed(say, node):
    now = [0.0]
    node.work._clock = lambda: now[0]
    for at in range(4):
        node.work.add("prove", b"", [WorkPlace("root.sg", str(at))])
    row = node.work.take("x", ["prove"])
    node.work.end(row, "failed", reason="types contradict")
    node.work.take("y", ["prove"])
    told = say("GET", "/v1/status", StatusView).background
    assert (told.waiting, told.running, told.overdue, told.failed) == (2, 1, 0, 1)
    assert told.oldest_running_at is not None
    assert told.oldest_waiting_at is not None
    assert told.oldest_running_at >= told.oldest_waiting_at
    assert told.failures[0].reason == "types contradict"
    assert told.failures[0].scope == ["root.sg 0"]
    now[0] += node.work.lease
    view = say("GET", "/v1/status", StatusView)
    assert view.background.overdue == 1
    failed = "Background tasks have failed: 1."
    assert failed in view.concerns
    assert failed in say("GET", "/readyz", Health, who="nobody").concerns
    assert [each.overdue for each in say("GET", "/v1/tasks", views.BackgroundTasksPage).tasks] == [
        False, True, False, False,
    ]  # fmt: skip
    task = told.failures[0].task
    say("POST", f"/v1/tasks/{task}/cancel", None, views.CancelRequest(), expected=204)
    assert failed not in say("GET", "/v1/status", StatusView).concerns


def test_a_failure_counts_until_a_task_of_the_same_scope_comes(say, node):
    for end in ("failed", "failed", "done"):
        node.work.add("prove", b"", [WorkPlace("root.sg", "1")])
        row = node.work.take("x", ["prove"])
        if end == "done":
            assert say("GET", "/v1/status", StatusView).background.failed == 0
        node.work.end(row, end, reason=end)
        told = say("GET", "/v1/status", StatusView).background
        assert told.failed == (end == "failed")


def test_what_waits_for_a_day_is_a_concern():
    totals = views.BackgroundTotals(running=1, oldest_running_at=1000.0)
    assert background_concerns(totals, 1000.0 + 86400) == []
    assert background_concerns(totals, 1000.0 + 90000) == [
        "A background task has been running for 25 hours."
    ]
    totals = views.BackgroundTotals(waiting=1, oldest_waiting_at=1000.0)
    assert background_concerns(totals, 1000.0 + 86400) == []
    assert background_concerns(totals, 1000.0 + 90000) == [
        "Nobody has taken a background task for 25 hours."
    ]
