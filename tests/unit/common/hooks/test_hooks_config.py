from pathlib import Path

import pytest

from common.config import ConfigError, load, render
from common.hooks.hooks_config import HooksConfig, shown_address


def loaded(text, tmp_path):
    file = tmp_path / "hooks.toml"
    file.write_text(text)
    return load(HooksConfig, file=file, env_prefix="T_", environ={}, flags={}).value


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ('command = ["notify"]', "absolute path"),
        ('command = "/bin/notify"', "command"),
        ('webhook = "https://h.example"', "secret_file"),
        ('webhook = "http://h.example"\nsecret_file = "s"', "plain HTTP"),
        ('webhook = "http://127.0.0.1"\nsecret_file = "s"\nca_cert = "c"', "https://"),
        ('secret_file = "s"', "only with webhook"),
        ('events = ["lots"]', "events"),
        ('timeout = "0s"', "timeout"),
        ("queue_limit = 1", "queue_limit"),
    ],
)
def test_what_cannot_be_meant_is_refused(tmp_path, text, word):
    with pytest.raises(ConfigError, match=word):
        loaded(text, tmp_path)


def test_what_stands_behind_the_host_is_not_shown(tmp_path):
    file = tmp_path / "hooks.toml"
    file.write_text('webhook = "https://h.example:8443/hidden"\nsecret_file = "s"')
    found = load(HooksConfig, file=file, env_prefix="T_", environ={}, flags={})
    assert found.value.webhook == "https://h.example:8443/hidden"
    assert "https://h.example:8443/..." in render(found, origin=False)
    assert "hidden" not in render(found, origin=False)
    with pytest.raises(ConfigError) as caught:
        loaded('webhook = "https://h.example/secret?sig=1#x"\nsecret_file = "s"', tmp_path)
    assert "sig=1" not in str(caught.value)


@pytest.mark.parametrize(
    ("given", "posted"),
    [
        ("https://h.example/hook?sig=a%2Fb&v=1", "https://h.example/hook?sig=a%2Fb&v=1"),
        ("https://H.example/hook/?sig=a/?b", "https://h.example/hook/?sig=a/?b"),
        ("https://h.example?sig=a", "https://h.example/?sig=a"),
        ("https://h.example:8443//?sig=a", "https://h.example:8443//?sig=a"),
        ("https://[::1]/x/", "https://[::1]/x"),
        ("https://h.example/x?", "https://h.example/x"),
    ],
)
def test_a_webhook_may_have_a_query_which_is_not_shown(tmp_path, given, posted):
    file = tmp_path / "hooks.toml"
    file.write_text(f'webhook = "{given}"\nsecret_file = "s"')
    found = load(HooksConfig, file=file, env_prefix="T_", environ={}, flags={})
    assert found.value.webhook == posted
    for shown in (render(found, origin=False), shown_address(posted)):
        assert "/..." in shown
        assert "sig" not in shown
        assert "?" not in shown.partition("webhook")[2].partition("\n")[0]


def test_plain_http_is_for_this_machine_and_for_who_says_so(tmp_path):
    loaded('webhook = "http://127.0.0.1:80/x"\nsecret_file = "s"', tmp_path)
    text = 'webhook = "http://h.example/x"\nsecret_file = "s"\ninsecure = true'
    assert loaded(text, tmp_path).are_any


def test_by_default_nobody_is_told_and_all_events_are_wanted():
    config = HooksConfig()
    assert not config.are_any
    assert config.wants("lost")
    assert not HooksConfig(events=("late",)).wants("lost")


def test_a_command_that_cannot_be_run_has_a_word_of_its_own(tmp_path):
    path = tmp_path / "hook"
    config = HooksConfig(command=(str(path),))
    assert "no such file" in config.problems()[0]
    path.mkdir()
    assert "is no file" in config.problems()[0]
    path.rmdir()
    path.write_text("x")
    assert "not executable: chmod +x" in config.problems()[0]
    path.chmod(0o755)
    assert config.problems() == []


def test_a_secret_that_others_can_read_is_a_problem(tmp_path):
    path = tmp_path / "secret"
    path.write_text("whsec_" + "A" * 44)
    path.chmod(0o644)
    found = HooksConfig(webhook="https://h.example", secret_file=path).problems()
    assert found == [f"hooks.secret_file {path}: others can read it: chmod 600"]
    missing = HooksConfig(webhook="https://h.example", secret_file=Path("/none/there"))
    assert "No such file" in missing.problems()[0]


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://h.example", "https://h.example"),
        ("https://h.example/", "https://h.example"),
        ("https://h.example:8/a/b", "https://h.example:8/..."),
        ("https://[::1]:8/a", "https://[::1]:8/..."),
    ],
)
def test_what_is_behind_the_host_is_not_shown(url, shown):
    assert shown_address(url) == shown
