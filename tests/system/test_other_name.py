"""A real centre under another name or port: nothing travels again, nobody is taken for a clone."""

from __future__ import annotations

import json

from tests.support.centre import centre as serving
from tests.support.edge import Edge
from tests.support.looking import in_sync, once
from tests.system.sender.test_rounds import call
from tests.system.test_forwarding_chain import ALL, Chain


def has_another_name(edge: Edge, url: str, new: int) -> None:
    """Its next round tells what is new and gone and nothing else; no operator has to do a thing."""
    edge.write(new)
    edge.remove(min(edge.files))
    edge.with_url(url)
    report = edge.round()
    assert report.exit_code == 0, report.as_json()
    assert (report.sent, report.deleted, report.already) == (1, 1, 0), report.as_json()
    assert edge.round().quiet


def test_a_centre_with_another_name_or_port_is_the_same_centre(centre, make_edge, caplog):
    url = centre.start()
    edge = make_edge(url, **ALL)
    for number in range(5):
        edge.write(number)
    assert edge.round().exit_code == 0
    has_another_name(edge, url.replace("127.0.0.1", "localhost"), 50)
    in_sync(edge, centre.root)
    centre.stop()
    centre.config.write_text(centre.config.read_text().replace(f"port = {centre.port}", "port = 0"))
    other = centre.start()
    assert other != url
    has_another_name(edge, other, 51)
    in_sync(edge, centre.root)
    once(centre.root, edge.uuid)
    assert "compared with the inventory" not in caplog.text.split("first contact")[-1]


def test_commands_know_the_centre_under_another_name_before_the_next_round(centre, make_edge):
    url = centre.start()
    edge = make_edge(url)
    edge.write(1)
    edge.round()
    edge.with_url(url.replace("127.0.0.1", "localhost"))
    config = edge.write_config()
    checked = json.loads(call(config, "check", "--json").stdout)
    assert (checked["ok"], checked["history"]) == (True, "continues")
    known = json.loads(call(config, "status", "--json").stdout)["receivers"]["dc1"]
    assert (known["listed"], known["pending_files"], known["doubts"]) == (1, 0, [])
    safe = json.loads(call(config, "status", "--safe-to-delete", "--json").stdout)
    assert safe == [str(edge.data / edge.path(1))]
    assert not list(edge.schema.glob("sync/localhost*/receiver.json"))


def test_a_higher_centre_with_another_name_is_the_same_centre(tmp_path):
    with serving(tmp_path / "b") as b, serving(tmp_path / "c") as c:
        chain = Chain(tmp_path, b, c)
        chain.write(1)
        chain.edges_sync()
        assert chain.forwarder.round().sent == 2
        (entry,) = chain.forwarder.config.receivers
        chain.forwarder.with_url(entry.url.replace("127.0.0.1", "localhost"))
        report = chain.forwarder.round()
        assert (report.error, report.quiet) == (None, True), report.as_json()
        chain.write(2)
        chain.edges_sync()
        assert chain.forwarder.round().sent == 2
        chain.all_is_there()


def test_two_names_of_one_centre_at_the_same_time_are_an_error_that_says_so(centre, make_edge):
    url = centre.start()
    edge = make_edge(url)
    edge.write(1)
    config = edge.write_config()
    other = url.replace("127.0.0.1", "localhost")
    config.write_text(f'{config.read_text()}[[receiver]]\nname = "dc2"\nurl = "{other}"\n')
    for _ in range(2):
        done = call(config, "sync")
        assert done.returncode == 2, done.stdout + done.stderr
        assert "one centre" in done.stdout + done.stderr
        assert "two machines" not in done.stdout + done.stderr
    in_sync(edge, centre.root)
