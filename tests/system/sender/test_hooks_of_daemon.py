"""The hooks of a daemon, as a process, with a real receiver that has hooks too."""

from __future__ import annotations

import json

import pytest

from tests.support.hook_server import hook_server, status
from tests.support.procs import children, wait_until
from tests.system.sender.test_daemon import daemon, last
from tests.system.sender.test_rounds import in_sync

SECRET = "whsec_" + "A" * 44


@pytest.fixture
def processes(tmp_path):
    with children(tmp_path) as made:
        yield made


def kinds(server) -> list[tuple[str, str]]:
    found = [json.loads(body) for _, _, body in server.asked]
    return [(each["kind"], each["state"]) for each in found]


@pytest.mark.slow
def test_what_a_daemon_and_its_receiver_do_is_told_to_a_hook_that_came_back(
    centre, make_edge, processes, tmp_path
):
    secret = tmp_path / "secret"
    secret.write_text(SECRET)
    secret.chmod(0o600)
    hanging = tmp_path / "hook"
    hanging.write_text("#!/bin/sh\nexec sleep 1000\n")
    hanging.chmod(0o755)
    with hook_server() as at_edge, hook_server() as at_centre:
        at_centre.answers.append(status(500))
        table = f'[hooks]\ncommand = ["{hanging}"]\nsecret_file = "{secret}"\nwebhook = '
        centre.more = f'{table}"{at_centre.url}"\n'
        centre._write()
        edge = make_edge(centre.start())
        settings = {
            "hooks.command": [str(hanging)],
            "hooks.webhook": at_edge.url,
            "hooks.secret_file": str(secret),
        }
        child, _ = daemon(
            processes, edge, "daemon.period=1h", "daemon.watch_settle=100ms", **settings
        )
        wait_until(lambda: last(edge)["last"] is not None, "the first round")
        edge.write(1)
        wait_until(lambda: last(edge)["last"]["sent"], "the round with the file")
        in_sync(edge, centre)
        assert at_edge.until(2)
        assert kinds(at_edge) == [("loaded", "happened"), ("round", "happened")]
        assert at_centre.until(3)  # the first try was answered with an error
        assert kinds(at_centre)[1:] == [("loaded", "happened"), ("round", "happened")]
        first, again = (json.loads(each[2]) for each in at_centre.asked[:2])
        assert first == again
        assert child.terminate() == 0, "a hook that hangs does not hold up the end"
        assert centre.stop() == 0
