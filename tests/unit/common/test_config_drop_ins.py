"""Drop-ins over the main file, and what texts in files say of the machine."""

import os
from pathlib import Path

import pytest
from msgspec import Struct, field

from common.config import ConfigError, Secret, load, render
from common.console.cli import Program
from common.console.examples import toml
from sender.config import SenderConfig


class Place(Struct, frozen=True, kw_only=True):
    name: str
    at: Path | None = None


class Site(Struct, frozen=True, kw_only=True):
    label: str | None = None
    period: int = 60
    names: tuple[str, ...] = ()
    password: Secret | None = None
    password_file: Path | None = None
    log_level: str = "info"
    places: tuple[Place, ...] = field(name="place", default=())


@pytest.fixture
def file(tmp_path):
    (tmp_path / "c.d").mkdir()
    main = tmp_path / "c.toml"
    main.write_text("")
    main.chmod(0o600)
    return main


def written(path, text):
    path.write_text(text)
    path.chmod(0o600)


def read(file, host="pump-7.site.example.org", **given):
    of_host = {"H": lambda: host, "l": lambda: host.partition(".")[0]}
    given = {"env_prefix": "X_", "environ": {}, "flags": {}, "specifiers": of_host, **given}
    return load(Site, file=file, **given)


def refused(file, **given):
    with pytest.raises(ConfigError) as caught:
        read(file, **given)
    return str(caught.value)


# -- drop-ins ------------------------------------------------------------------------------


def test_drop_ins_lie_over_the_main_file_in_the_order_of_their_names(file):
    written(file, "label = 'main'\nperiod = 1\nlog_level = 'debug'\n")
    written(file.parent / "c.d/20-site.toml", "label = 'second'\n")
    written(file.parent / "c.d/10-site.toml", "label = 'first'\nperiod = 2\n")
    loaded = read(file)
    assert (loaded.value.label, loaded.value.period) == ("second", 2)
    shown = {key: str(loaded.origins[key]) for key in ("label", "period", "log_level", "names")}
    assert shown == {
        "label": f"file {file.parent}/c.d/20-site.toml:1",
        "period": f"file {file.parent}/c.d/10-site.toml:2",
        "log_level": f"file {file}:3",
        "names": "default",
    }
    assert "c.d/20-site.toml:1" in render(loaded, origin=True)


def test_a_variable_and_a_flag_come_before_drop_ins(file):
    written(file.parent / "c.d/a.toml", "label = 'd'\nperiod = 2\n")
    loaded = read(file, environ={"X_LABEL": "v"}, flags={"period": "3"})
    assert (loaded.value.label, loaded.value.period) == ("v", 3)


def test_a_drop_in_that_names_an_array_of_tables_replaces_it_whole(file):
    written(file, "[[place]]\nname = 'a'\n[[place]]\nname = 'b'\n")
    written(file.parent / "c.d/a.toml", "[[place]]\nname = 'c'\n")
    assert [each.name for each in read(file).value.places] == ["c"]


def test_only_what_ends_in_toml_and_is_not_hidden_is_a_drop_in(file):
    for name in (".a.toml", "a.toml~", "a.toml.dpkg-old", "b.conf", ".a.toml.swp"):
        written(file.parent / "c.d" / name, "this is no TOML at all")
    assert read(file).value == Site()


def test_a_relative_path_counts_from_the_main_file_wherever_it_stands(file):
    written(file.parent / "c.d/a.toml", "[[place]]\nname = 'c'\nat = 'x'\n")
    assert read(file).value.places[0].at == file.parent / "x"


def test_what_is_wrong_in_a_drop_in_is_named_with_its_line(file):
    at = file.parent / "c.d/a.toml"
    written(at, "\nperriod = 2\n")
    assert f'{at}:2: perriod: unknown key, did you mean "period"?' in refused(file)
    written(at, "label = \n")
    assert f"{at}:1: not valid TOML" in refused(file)


def test_a_file_in_the_place_of_the_directory_is_refused_and_none_is_no_matter(file):
    (file.parent / "c.d").rmdir()
    assert read(file).value == Site()
    (file.parent / "c.d").touch()
    assert f"{file.parent}/c.d: expected a directory" in refused(file)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may list everything")
def test_a_directory_that_may_not_be_listed_is_not_passed_over(file):
    (file.parent / "c.d").chmod(0)
    assert str(file.parent / "c.d") in refused(file)


def test_a_token_in_a_higher_file_comes_before_a_token_file_in_a_lower_one(file):
    written(file.parent / "t", "of-the-file")
    written(file, "password_file = 't'\n")
    written(file.parent / "c.d/a.toml", "password = 'of-the-drop-in'\n")
    assert read(file).value.password == Secret("of-the-drop-in")
    written(file, "password = 'of-the-main-file'\n")
    written(file.parent / "c.d/a.toml", "password_file = 't'\n")
    assert read(file).value.password == Secret("of-the-file")


def test_drop_ins_without_a_main_file_are_not_passed_over(tmp_path):
    program = Program("x", Site, "X_", tmp_path / "c.toml")
    assert program._file(None) is None
    (tmp_path / "c.d").mkdir()
    assert program._file(None) == tmp_path / "c.toml"


# -- specifiers ----------------------------------------------------------------------------


def test_a_text_says_the_name_of_the_host(file):
    written(
        file, "label = '%l of %H'\nnames = ['a', '%l']\n[[place]]\nname = '100 %%'\nat = '%l'\n"
    )
    value = read(file).value
    assert value.label == "pump-7 of pump-7.site.example.org"
    assert value.names == ("a", "pump-7")
    assert value.places[0] == Place(name="100 %", at=file.parent / "pump-7")


def test_without_a_word_it_is_the_name_of_this_host(file):
    written(file, "label = '%H'\n")
    assert load(Site, file=file, env_prefix="X_", environ={}, flags={}).value.label == (
        os.uname().nodename
    )


@pytest.mark.parametrize("wrong", ["%i", "50 %", "%", "%%%", "a%2Gb"])
def test_another_specifier_is_refused_with_file_line_and_key(file, wrong):
    at = file.parent / "c.d/a.toml"
    written(at, f"period = 5\nlabel = '{wrong}'\n")
    said = refused(file)
    assert f'{at}:2: label = "{wrong}": expected' in said
    assert "is no specifier: there are %H, %l; %% is a percent sign" in said


def test_a_secret_a_variable_and_a_flag_mean_a_percent_sign_as_it_is(file):
    written(file, "password = '%Hunter%2'\n")
    value = read(file, environ={"X_LABEL": "%H"}, flags={"log_level": "%l"}).value
    assert value == Site(password=Secret("%Hunter%2"), label="%H", log_level="%l")


@pytest.mark.parametrize("text", ["100 %", "%H", "%%", '"%l'])
def test_what_is_shown_or_made_loads_as_the_same_text(file, text):
    written(file, f"label = {toml(text)}\n")
    loaded = read(file)
    assert loaded.value.label == text
    written(file, render(loaded, origin=False))
    assert read(file).value.label == text


def test_a_name_of_the_host_that_is_none_for_the_key_is_refused_there(file):
    written(file, "label = '%H'\n")
    assert f'{file}:1: label = "%H": expected a text' in refused(file, host="")


def test_one_file_serves_many_senders(tmp_path):
    main = tmp_path / "sender.toml"
    data = tmp_path / "%l"
    written(
        main,
        f"schema_dir = '{data}/schema'\ndata_dirs = ['{data}/data']\nlabel = '%l'\n"
        f"[[receiver]]\nname = 'dc1'\nurl = 'https://dc1.example.org'\ntoken_file = '%l.token'\n",
    )
    found = []
    for host in ("plant-8", "plant-9"):
        written(tmp_path / f"{host}.token", f"of-{host}")
        loaded = load(
            SenderConfig,
            file=main,
            env_prefix="X_",
            environ={},
            flags={},
            specifiers={"l": lambda host=host: host},
        ).value
        receiver = loaded.receivers[0]
        found.append((loaded.label, loaded.schema_dir, receiver.token))
    assert found == [
        (each, tmp_path / each / "schema", Secret(f"of-{each}")) for each in ("plant-8", "plant-9")
    ]
