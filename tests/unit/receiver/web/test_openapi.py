import json

from openapi_spec_validator import validate as validate_spec

from receiver.web.app import ROUTES
from receiver.web.ui.screens.every_page import PAGES
from tests.unit.receiver.web.conftest import check_described


def test_the_document_is_valid_openapi(client):
    validate_spec(json.loads(client.get("/openapi.json").get_data()))


def test_every_call_that_is_routed_is_described_and_the_other_way_round(app, client):
    document = json.loads(client.get("/openapi.json").get_data())
    described = {
        (method.upper(), path)
        for path, operations in document["paths"].items()
        for method in operations
    }
    templates = {route.path: route.template for route in ROUTES}
    routed = set()
    people = {(route.method, route.path) for route in PAGES}
    for rule in app.url_map.iter_rules():
        methods = set(rule.methods)
        if "GET" in methods:
            methods.discard("HEAD")  # Flask adds it
        calls = {method for method in methods if (method, rule.rule) not in people}
        routed |= {(method, templates[rule.rule]) for method in calls}
    assert routed == described


def test_operation_ids_are_unique(client):
    document = json.loads(client.get("/openapi.json").get_data())
    ids = [o["operationId"] for path in document["paths"].values() for o in path.values()]
    assert len(ids) == len(set(ids)) == len(ROUTES)


def test_an_answer_that_is_not_described_is_noticed(client):
    import pytest

    document = json.loads(client.get("/openapi.json").get_data())
    answer = client.get("/healthz")
    answer.set_data(b'{"status": 7}')
    with pytest.raises(Exception, match="7 is not of type"):
        check_described(document, answer.request, answer)
