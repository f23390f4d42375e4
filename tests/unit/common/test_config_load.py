import json
import os
import re
import tomllib
from pathlib import Path
from typing import Annotated, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Meta, Struct, field

from common.config import (
    ConfigError,
    ConfigFinding,
    Duration,
    Flag,
    Secret,
    SecretUrl,
    Size,
    Timetable,
    as_json,
    load,
    render,
)
from common.console.terminal import printable
from common.hooks.hooks_config import HooksConfig


class Entry(Struct, frozen=True, kw_only=True):
    name: str
    port: int = 1
    token: Secret | None = None
    token_file: Path | None = None

    def check(self):
        if self.port == 13:
            yield ConfigFinding("port", "expected a lucky number")
        if self.port == 14:
            yield ConfigFinding("port", "better another", fatal=False)


class Inner(Struct, frozen=True, kw_only=True):
    size: Annotated[Size, Meta(ge=1024, le=4096)] = 2048
    wait: Duration | None = 30.0
    on: bool = True
    ratio: Annotated[float, Meta(ge=0, le=1)] = 0.5
    above: Annotated[float, Meta(gt=0, le=1)] = 0.5
    short: Annotated[str, Meta(max_length=3)] = "abc"
    limit: Timetable = Timetable()


class Outer(Struct, frozen=True, kw_only=True):
    mode: Literal["fast", "slow"] = "fast"
    count: int = 3
    names: tuple[str, ...] = ()
    dirs: tuple[Path, ...] = ()
    inner: Inner = Inner()
    entries: tuple[Entry, ...] = field(name="entry", default=())


class Strict(Struct, frozen=True, kw_only=True):
    must: str
    inner: Inner = Inner()


class Hidden(Struct, frozen=True, kw_only=True):
    url: SecretUrl | None = None
    plain: SecretUrl | None = None
    token: Secret | None = None


@pytest.fixture
def read(tmp_path):
    def read(toml="", environ=None, flags=None, schema=Outer):
        file = tmp_path / "c.toml"
        file.write_text(toml, encoding="utf-8", errors="surrogateescape")
        file.chmod(0o600)
        return load(schema, file=file, env_prefix="X_", environ=environ or {}, flags=flags or {})

    return read


@pytest.fixture
def refused(read):
    def refused(*args, **kwargs):
        with pytest.raises(ConfigError) as caught:
            read(*args, **kwargs)
        return str(caught.value)

    return refused


# --- precedence -----------------------------------------------------------------------------


def test_flags_come_before_environment_before_file_before_default(read, tmp_path):
    toml, environ = "count = 5\n[inner]\nsize = 1024\n", {"X_COUNT": "6", "X_INNER__ON": "no"}
    loaded = read(toml, environ, {"count": 7})
    assert (loaded.value.count, loaded.value.inner.size, loaded.value.inner.on) == (7, 1024, False)
    shown = {key: str(loaded.origins[key]) for key in ("count", "inner.size", "inner.on", "mode")}
    assert shown == {
        "count": "flag --count",
        "inner.size": f"file {tmp_path}/c.toml:3",
        "inner.on": "environment X_INNER__ON",
        "mode": "default",
    }


layer = st.none() | st.integers(0, 99)


@given(layer, layer, layer)
def test_the_highest_layer_that_speaks_wins(tmp_path_factory, in_file, in_environ, in_flags):
    file = tmp_path_factory.getbasetemp() / "p.toml"
    file.write_text("" if in_file is None else f"count = {in_file}\n")
    environ = {} if in_environ is None else {"X_COUNT": str(in_environ)}
    loaded = load(Outer, file=file, env_prefix="X_", environ=environ, flags={"count": in_flags})
    layers = [(in_flags, "flag"), (in_environ, "environment"), (in_file, "file"), (3, "default")]
    expected = next((value, kind) for value, kind in layers if value is not None)
    assert (loaded.value.count, loaded.origins["count"].kind) == expected


def test_every_key_has_an_origin(read):
    loaded = read('[[entry]]\nname = "a"\n')
    assert set(loaded.origins) == {
        *("mode", "count", "names", "dirs"),
        *("inner.size", "inner.wait", "inner.on", "inner.ratio", "inner.limit"),
        *("inner.above", "inner.short"),
        *("entry[0].name", "entry[0].port", "entry[0].token", "entry[0].token_file"),
    }


def test_an_empty_variable_counts_as_not_set(read):
    assert read(environ={"X_COUNT": ""}).value.count == 3


def test_variables_of_others_are_left_alone(read):
    kubernetes = {
        "X_SERVICE_HOST": "10.0.0.1",
        "X_SERVICE_PORT_HTTP": "1",
        "X_PORT": "tcp://10.0.0.1:8765",
        "X_PORT_8765_TCP_ADDR": "10.0.0.1",
    }
    read(
        environ={"X_CONFIG": "/c.toml", "COUNT": "x", "XX_COUNT": "x", "x_count": "x"} | kubernetes
    )


def test_flags_keep_the_name_that_the_user_knows(read, refused):
    assert str(read(flags={"count": Flag(1, "--how-many")}).origins["count"]) == "flag --how-many"
    assert refused(flags={"count": Flag("x", "--how-many")}).startswith("--how-many: count")


def test_arrays_of_tables_are_merged_by_index(read):
    toml = '[[entry]]\nname = "a"\n[[entry]]\nname = "b"\n'
    environ = {"X_ENTRY__1__PORT": "7", "X_ENTRY__2__NAME": "c"}
    loaded = read(toml, environ, {"entry[0].name": "z"})
    assert [(e.name, e.port) for e in loaded.value.entries] == [("z", 1), ("b", 7), ("c", 1)]


def test_an_array_given_as_a_whole_replaces_the_lower_one(read):
    toml = '[[entry]]\nname = "a"\nport = 9\n[[entry]]\nname = "b"\n'
    environ = {"X_ENTRY": '[{"name": "z"}]', "X_ENTRY__0__PORT": "5"}
    loaded = read(toml, environ)
    assert [(e.name, e.port) for e in loaded.value.entries] == [("z", 5)]
    assert read(toml, {"X_ENTRY": "[]"}).value.entries == ()


def test_a_gap_in_an_array_is_an_error(refused):
    assert "entry[0]: missing, but entry[9000] is given" in refused(
        environ={"X_ENTRY__9000__NAME": "x"}
    )


# --- values ---------------------------------------------------------------------------------


def test_lists_come_as_json_or_between_commas(read):
    assert read(environ={"X_NAMES": "a, b,c"}).value.names == ("a", "b", "c")
    assert read(environ={"X_NAMES": '["a,b", "c"]'}).value.names == ("a,b", "c")
    assert read(environ={"X_INNER__LIMIT": '[{"limit": "1KiB/s"}]'}).value.inner.limit == (
        Timetable.parse("1KiB/s")
    )


def test_none_unsets_what_may_be_unset_and_nothing_else(read, refused):
    assert read('[inner]\nwait = "none"').value.inner.wait is None
    assert read(environ={"X_INNER__WAIT": "None"}).value.inner.wait is None
    assert "count" in refused(environ={"X_COUNT": "none"})


def test_paths_are_relative_to_what_names_them(read, tmp_path, monkeypatch):
    assert read('dirs = ["d", "/abs"]').value.dirs == (tmp_path / "d", Path("/abs"))
    monkeypatch.chdir("/usr")
    assert read(environ={"X_DIRS": "d"}).value.dirs == (Path("/usr/d"),)
    monkeypatch.setenv("HOME", "/home/me")
    assert read('dirs = ["~/d"]').value.dirs == (Path("/home/me/d"),)


def test_a_relative_configuration_file_gives_absolute_paths(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("c.toml").write_text('dirs = ["d"]')
    loaded = load(Outer, file=Path("c.toml"), env_prefix="X_", environ={}, flags={})
    assert loaded.value.dirs == (tmp_path / "d",)


# --- errors ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("toml", "line", "message"),
    [
        ('count = "x"', 1, 'count = "x": expected a whole number'),
        ("count = 1.0", 1, "count = 1.0: expected a whole number"),
        ("count = true", 1, "count = true: expected a whole number"),
        ("\n[inner]\non = 1", 3, "inner.on = 1: expected true or false"),
        ('mode = "fats"', 1, 'mode = "fats": expected one of "fast", "slow"'),
        ("[inner]\nsize = 1", 2, "inner.size = 1: expected a size such as 4096 or "),
        ('[inner]\nsize = "1GiB"', 2, "from 1KiB to 4KiB"),
        ('[inner]\nwait = "5 parsecs"', 2, "'parsecs' is no unit of time"),
        ("[inner]\nabove = 0", 2, "inner.above = 0: expected a number, more than 0, to 1"),
        (
            "[inner]\nshort = 'abcd'",
            2,
            'short = "abcd": expected a text without control characters',
        ),
        ("[inner]\nratio = nan", 2, "inner.ratio = NaN: expected a number, from 0 to 1"),
        ("names = 5", 1, "names = 5: expected a list, each a text"),
        ('names = ["a", ""]', 1, "expected a list, each a text"),
        ("[inner]\nlimit = [{limit = 1, form = 2}]", 2, "window 1: unknown key 'form'"),
        ("inner = 5", 1, "inner: expected a table: [inner]"),
        ("[entry]\nname = 'x'", 1, "entry: expected an array of tables: [[entry]]"),
        ("\ncuont = 5", 2, 'cuont: unknown key, did you mean "count"?'),
        ("[inner]\nSize = 5", 2, 'inner.Size: unknown key, did you mean "inner.size"?'),
        ("[inner]\nSIZE = 5", 2, 'inner.SIZE: unknown key, did you mean "inner.size"?'),
        ("size = 5", 1, 'size: unknown key, did you mean "inner.size"?'),
        (
            "[inner]\non = true\ncount = 5",
            3,
            'inner.count: unknown key, did you mean "count"? It belongs above the first [table]',
        ),
        ("[inner]\nzzz = 5", 2, "known here: above, limit, on, ratio, short, size, wait"),
        ("[[entry]]\nnmae = 'x'", 2, 'entry[0].nmae: unknown key, did you mean "entry[0].name"?'),
        ("[[entry]]\nname = 'x'\nport = 13", 3, "entry[0].port = 13: expected a lucky number"),
    ],
)
def test_an_error_names_file_line_key_value_and_expectation(refused, tmp_path, toml, line, message):
    error = refused(toml)
    assert f"{tmp_path}/c.toml:{line}: " in error
    assert message in error


def test_all_that_is_wrong_is_said_at_once(read):
    with pytest.raises(ConfigError) as caught:
        read('count = "x"\n[inner]\nsize = 1\n', {"X_MODE": "m"})
    assert [p["key"] for p in caught.value.extra["problems"]] == ["mode", "count", "inner.size"]


def test_a_missing_key_says_how_to_give_it(refused):
    assert re.search(
        r"must: missing: expected a text.*, in .*c.toml or in X_MUST", refused(schema=Strict)
    )
    assert "X_MUST" in refused(schema=Strict)
    assert "entry[0].name: missing" in refused("[[entry]]\nport = 1")
    assert "X_ENTRY__0__NAME" in refused("[[entry]]\nport = 1")


def test_an_unknown_variable_or_flag_is_an_error(refused):
    assert "X_CUONT: cuont: unknown key" in refused(environ={"X_CUONT": "1"})
    for key in ("entry.name", "count.x", "entry[0]", "entry[x].name", "", ".", "count[0]"):
        assert "unknown key" in refused(flags={key: "x"}) or key == "entry[0]"
    for name in ("X_ENTRY__NAME", "X_COUNT__X", "X_ENTRY__99999999999__NAME", "X___", "X_"):
        assert f"{name}: " in refused(environ={name: "x"})


def test_what_is_unwise_is_a_warning(read):
    loaded = read("[[entry]]\nname = 'x'\nport = 14")
    assert [w.partition(": ")[2] for w in loaded.warnings] == ["entry[0].port: better another"]


def test_no_control_character_of_a_value_reaches_the_message(refused):
    error = refused('mode = "\\u001b[2J\\u202e"\n"k\\u001b" = 1\n')
    assert error.replace("\n", "").isprintable()


# --- secrets --------------------------------------------------------------------------------

TOKEN = "5f3a-very-secret"


def entry(text):
    return f"[[entry]]\nname = 'x'\n{text}\n"


def test_a_token_can_stand_in_a_file_of_its_own(read, tmp_path):
    (tmp_path / "t").write_text(f"\n {TOKEN} \n")
    (tmp_path / "t").chmod(0o600)
    loaded = read(entry("token_file = 't'"))
    assert loaded.value.entries[0].token.reveal() == TOKEN
    assert str(loaded.origins["entry[0].token"]) == f"file {tmp_path}/t"
    assert loaded.warnings == ()


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644])
def test_a_token_that_others_can_read_is_warned_of(read, tmp_path, mode):
    (tmp_path / "t").write_text(TOKEN)
    (tmp_path / "t").chmod(mode)
    (warning,) = read(entry("token_file = 't'")).warnings
    assert str(tmp_path / "t") in warning
    assert "chmod 600" in warning


def test_a_configuration_file_with_a_token_that_others_can_read_is_warned_of(tmp_path):
    file = tmp_path / "c.toml"
    file.write_text(entry(f"token = '{TOKEN}'"))
    file.chmod(0o644)
    (warning,) = load(Outer, file=file, env_prefix="X_", environ={}, flags={}).warnings
    assert "chmod 600" in warning


def test_a_file_that_says_there_is_no_token_holds_none(tmp_path):
    file = tmp_path / "c.toml"
    file.write_text(entry("token = 'none'"))
    file.chmod(0o644)
    assert load(Outer, file=file, env_prefix="X_", environ={}, flags={}).warnings == ()


def test_a_token_of_a_higher_layer_wins_over_a_token_file(read, tmp_path):
    (tmp_path / "t").write_text("of-the-file")
    environ = {"X_ENTRY__0__TOKEN": "of-the-environment"}
    value = read(entry("token_file = 't'"), environ).value
    assert value.entries[0].token.reveal() == "of-the-environment"
    environ = {"X_ENTRY__0__TOKEN_FILE": str(tmp_path / "t")}
    assert read(entry(f"token = '{TOKEN}'"), environ).value.entries[0].token.reveal() == (
        "of-the-file"
    )


def test_a_token_that_is_said_to_be_none_leaves_the_word_to_the_file(read, tmp_path):
    (tmp_path / "t").write_text(TOKEN)
    loaded = read(entry("token = 'none'\ntoken_file = 't'"))
    assert loaded.value.entries[0].token.reveal() == TOKEN


def test_token_and_token_file_side_by_side_are_an_error(refused, tmp_path):
    (tmp_path / "t").write_text(TOKEN)
    assert "not both" in refused(entry(f"token = '{TOKEN}'\ntoken_file = 't'"))


@pytest.mark.parametrize(
    "content", [b"", b" \n", b"two words", b"a\r\nX-Evil: 1", b"\xff\xfe", b"x" * 70_000]
)
def test_a_token_file_without_one_token_is_an_error_that_does_not_show_it(
    refused, tmp_path, content
):
    (tmp_path / "t").write_bytes(content)
    error = refused(entry("token_file = 't'"))
    assert f"{tmp_path}/c.toml:3: entry[0].token_file = {tmp_path}/t: expected a file" in error
    assert "Evil" not in error


def test_a_token_file_that_is_not_there_is_an_error_that_says_so(refused):
    assert "No such file" in refused(entry("token_file = 'gone'"))
    assert "directory" in refused(entry("token_file = '.'"))


def test_a_token_is_shown_nowhere(read, refused):
    loaded = read(entry(f"token = '{TOKEN}'"))
    shown = [render(loaded, origin=True), json.dumps(as_json(loaded, origin=False))]
    shown += [json.dumps(as_json(loaded, origin=True)), repr(loaded), f"{loaded.value}"]
    shown += [str(loaded.value.entries[0].token)]
    shown += [refused(entry(f"token = '{TOKEN} {TOKEN}'"))]
    shown += [refused(entry(f"tokn = '{TOKEN}'"))]
    shown += [refused(entry(f"token = ['{TOKEN}']")), refused(environ={"X_ENTRY__0__TOKEN": TOKEN})]
    assert not [text for text in shown if TOKEN in text]


# --- showing --------------------------------------------------------------------------------

texts = st.text(st.characters(exclude_categories=["Cc", "Cf", "Cs", "Zl", "Zp"]), min_size=1)
names = texts.filter(lambda text: text.lower() not in ("none", "unlimited"))
files = st.builds(
    lambda **keys: keys,
    count=st.integers(-(2**63) + 1, 2**63 - 1),
    names=st.lists(texts, max_size=3),
    dirs=st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\0~"), min_size=1)),
    size=st.integers(1024, 4096),
    wait=st.integers(0, 10**9).map(lambda ms: ms / 1000) | st.just("none"),
    on=st.booleans(),
    ratio=st.floats(0, 1),
    entries=st.lists(st.tuples(names, st.integers(20, 99)), max_size=3),
)


@given(files)
def test_what_is_shown_loads_again_as_the_same(tmp_path_factory, keys):
    environ = {
        "X_ENTRY": json.dumps([{"name": name, "port": port} for name, port in keys["entries"]]),
        "X_NAMES": json.dumps(keys["names"]),
        "X_DIRS": json.dumps(keys["dirs"]),
        "X_INNER__WAIT": str(keys["wait"]),
    }
    flags = {"count": keys["count"], "inner.size": keys["size"], "inner.on": keys["on"]}
    flags["inner.ratio"] = keys["ratio"]
    loaded = load(Outer, file=None, env_prefix="X_", environ=environ, flags=flags)
    for origin in (False, True):
        shown = render(loaded, origin=origin)
        assert [printable(line) for line in shown.split("\n")] == shown.split("\n")
        file = tmp_path_factory.getbasetemp() / "shown.toml"
        file.write_bytes(shown.encode())
        again = load(Outer, file=file, env_prefix="X_", environ={}, flags={})
        assert again.value == loaded.value


@pytest.mark.parametrize("origin", [False, True])
def test_a_configuration_with_a_token_file_is_shown_as_one_that_loads_and_has_its_token(
    read, tmp_path, origin
):
    (tmp_path / "token").write_text(TOKEN)
    loaded = read(entry("token_file = 'token'"))
    shown = render(loaded, origin=origin)
    assert f"{tmp_path}/token" in next(line for line in shown.splitlines() if "#token = " in line)
    assert read(shown).value == loaded.value


def test_what_may_stand_only_beside_a_value_that_is_not_shown_is_a_comment_as_well(read, tmp_path):
    toml = f"webhook = 'https://hooks.example.org/{TOKEN}'\nsecret_file = '{tmp_path}/s'\n"
    loaded = read(f"{toml}queue_limit = 20", schema=HooksConfig)
    shown = render(loaded, origin=False)
    assert f'#secret_file = "{tmp_path}/s"' in shown
    assert "# expected only with webhook: file " in shown
    again = read(shown, schema=HooksConfig).value
    assert (again.webhook, again.secret_file, again.queue_limit) == (None, None, 20)


def test_a_value_that_is_not_shown_whole_is_named_and_not_loaded_as_another(read):
    toml = f"url = 'https://hooks.example.org/{TOKEN}'\nplain = 'https://hooks.example.org'"
    loaded = read(toml, {"X_TOKEN": TOKEN}, schema=Hidden)
    shown = render(loaded, origin=False)
    assert '#url = "https://hooks.example.org/..."' in shown
    assert 'plain = "https://hooks.example.org"' in shown.splitlines()
    assert "# not shown: environment X_TOKEN" in shown
    assert TOKEN not in shown
    again = read(shown, schema=Hidden)
    assert (again.value.url, again.value.token) == (None, None), "it asks for them, not for '***'"


def test_the_origin_of_each_value_stands_behind_it(read):
    shown = render(read("count = 5\n[[entry]]\nname = 'x'", {"X_INNER__ON": "0"}), origin=True)
    lines = {line.split(" = ")[0]: line for line in shown.splitlines() if " = " in line}
    assert lines["count"].endswith("c.toml:1")
    assert lines["on"].endswith("# environment X_INNER__ON")
    assert lines["mode"].endswith("# default")
    assert tomllib.loads(shown)["entry"] == [
        {"name": "x", "port": 1, "token": "none", "token_file": "none"}
    ]


def test_json_has_the_same_values_with_or_without_origins(read):
    loaded = read("count = 5\n[[entry]]\nname = 'x'")
    plain = as_json(loaded, origin=False)
    assert (plain["count"], plain["inner"]["size"], plain["entry"][0]["name"]) == (5, "2KiB", "x")
    flat = as_json(loaded, origin=True)
    assert flat["inner.size"] == {
        "value": "2KiB",
        "origin": {"kind": "default", "where": "default"},
    }
    assert set(flat) == set(loaded.origins)
    json.dumps([plain, flat], allow_nan=False)


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_file_without_permission_is_an_error(tmp_path):
    file = tmp_path / "c.toml"
    file.touch(0o000)
    with pytest.raises(ConfigError, match="Permission denied"):
        load(Outer, file=file, env_prefix="X_", environ={}, flags={})
