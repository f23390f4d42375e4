"""An application over a real node, and a client that holds every answer to the OpenAPI document."""

from __future__ import annotations

import functools
import json
import re
import sys
from typing import Any

import msgspec
import pytest
from flask.testing import FlaskClient

from receiver.web.app import close, create_app, site_of
from tests.support.node_world import A, Clock, World

with pytest.MonkeyPatch.context() as patch:
    # For one format, which no answer of ours has, it makes 38 parsers: two seconds in each worker.
    patch.setitem(sys.modules, "rfc3987_syntax", None)
    from jsonschema import Draft202012Validator

SENDER = {"Tsferry-Sender": A}
TUS = {"Tus-Resumable": "1.0.0", **SENDER}
BLOCK = {"Content-Type": "application/offset+octet-stream"}


class Described(FlaskClient):
    """Checks what comes back against what `/openapi.json` says of the call."""

    def open(self, *args: Any, **kwargs: Any) -> Any:
        answer = super().open(*args, **kwargs)
        site = site_of(self.application)
        check_described(document_of(site.openapi()), answer.request, answer)
        return answer


@functools.cache
def document_of(text: str) -> dict:
    """Read once: thousands of answers are held to it."""
    document: dict = json.loads(text)
    return document


def check_described(document: dict, request: Any, answer: Any) -> None:
    path, method = request.path, request.method
    if "X-HTTP-Method-Override" in request.headers:
        method = request.headers["X-HTTP-Method-Override"]
    operation = next(
        (
            operations[method.lower()]
            for template, operations in document["paths"].items()
            if re.fullmatch(re.sub(r"\{[a-z]+\}", "[^/]+", template), path)
            and method.lower() in operations
        ),
        None,
    )
    if operation is None:
        assert answer.status_code in (403, 404, 405), answer.status
        responses = {
            "default": next(iter(document["paths"].values()))["post"]["responses"]["default"]
        }
    else:
        responses = operation["responses"]
    described = responses.get(str(answer.status_code), responses["default"])
    if described is responses["default"]:
        assert answer.status_code >= 400, f"{answer.status} is not described"
    for name, header in described.get("headers", {}).items():
        if header.get("required"):
            assert name in answer.headers, f"{name} is missing"
        if name in answer.headers:
            value: Any = answer.headers[name]
            value = int(value) if header["schema"].get("type") == "integer" else value
            validate(document, header["schema"], value)
    content = described.get("content")
    if content is None:
        assert not answer.get_data(), "a body that is not described"
        return
    if method == "HEAD":
        return
    ((media, wanted),) = content.items()
    assert answer.mimetype == media
    if not wanted:
        return  # bytes of any kind
    validate(document, wanted["schema"], json.loads(answer.get_data()))


_validators: dict[tuple[int, int], tuple[dict, dict, Draft202012Validator]] = {}
"""By what they were made of, which stays with them: so no id comes again."""


def validate(document: dict, schema: dict, value: Any) -> None:
    key = id(document), id(schema)
    if key not in _validators:
        whole = Draft202012Validator({**schema, "components": document["components"]})
        _validators[key] = document, schema, whole
    _validators[key][2].validate(value)


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def world(tmp_path, clock):
    return World(tmp_path, clock=clock)


@pytest.fixture
def make_app(world, clock):
    made = []

    def make(**listen):
        config = world.config
        auth = {"require": listen.pop("require", "auto")}
        changes = {
            "listen": msgspec.structs.replace(config.listen, **listen),
            "auth": msgspec.structs.replace(config.auth, **auth),
        }
        app = create_app(msgspec.structs.replace(config, **changes), clock=clock)
        app.test_client_class = Described
        made.append(app)
        return app

    yield make
    for app in made:
        close(app)


@pytest.fixture
def app(make_app):
    return make_app()


@pytest.fixture
def client(app):
    return app.test_client()


@pytest.fixture
def node(app):
    return site_of(app).node


@pytest.fixture
def operator(app):
    site_of(app).access.accept_operator("operators-secret")
    return {"Authorization": "Bearer operators-secret"}
