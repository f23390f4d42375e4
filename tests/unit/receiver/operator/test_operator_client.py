"""A command finds the token that counts, however many servers have made way for the next."""

from __future__ import annotations

from pathlib import Path

import pytest

from common.durable import Tree
from common.errors import UnauthorizedError
from receiver.config import ReceiverConfig
from receiver.operator.client import (
    ADDRESS_FILE,
    TOKEN_FILE,
    OperatorClient,
    RunningServer,
    ServerAnswer,
    running_server,
)


@pytest.fixture
def config(tmp_path: Path) -> ReceiverConfig:
    (tmp_path / ADDRESS_FILE).write_text("http://127.0.0.1:1\n")
    (tmp_path / TOKEN_FILE).write_text("first\n")
    return ReceiverConfig(schema_dir=tmp_path, data_dirs=(tmp_path / "data",))


def test_a_command_that_two_servers_in_turn_have_refused_is_carried_out_by_the_third(
    config: ReceiverConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def answer(client: OperatorClient, *call: object) -> ServerAnswer:
        asked.append(client._token)
        if client._token == "third":
            return ServerAnswer(200, {}, b"{}")
        # The next server writes its token while the request waits for it.
        following = {"first": "second", "second": "third"}[client._token]
        (config.schema_dir / TOKEN_FILE).write_text(following)
        raise UnauthorizedError("the token is not known here, or was revoked")

    monkeypatch.setattr(OperatorClient, "_exchange", answer)
    assert OperatorClient(config).exchange("GET", "/v1/status", {}, {}, b"").status == 200
    assert asked == ["first", "second", "third"]


def test_a_token_that_stays_and_is_refused_is_refused(
    config: ReceiverConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    def answer(client: OperatorClient, *call: object) -> ServerAnswer:
        raise UnauthorizedError("the token is not known here, or was revoked")

    monkeypatch.setattr(OperatorClient, "_exchange", answer)
    with pytest.raises(UnauthorizedError):
        OperatorClient(config).exchange("GET", "/v1/status", {}, {}, b"")


@pytest.mark.parametrize(
    ("listens", "reached"),
    [
        ("http://0.0.0.0:8765", "http://127.0.0.1:8765"),
        ("http://[::]:8765", "http://[::1]:8765"),
        ("https://10.1.2.3:443", "https://10.1.2.3:443"),
    ],
)
def test_readers_of_this_machine_reach_a_server_where_it_listens(
    config: ReceiverConfig, listens: str, reached: str
) -> None:
    (config.schema_dir / ADDRESS_FILE).write_text(f"{listens}\n")
    assert running_server(config) == RunningServer(reached, "first", None)


def test_where_none_runs_or_another_user_keeps_the_token_there_is_no_server(
    config: ReceiverConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object, **__: object) -> bytes:
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patch:
        patch.setattr(Tree, "read", refused)
        assert running_server(config) is None
    (config.schema_dir / TOKEN_FILE).unlink()
    assert running_server(config) is None
