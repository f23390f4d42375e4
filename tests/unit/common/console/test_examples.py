"""The files in ``conf/`` say what the schemas say."""

import configparser
import os
import pwd
import re
import sys
import tempfile
import tomllib
import zipfile
from pathlib import Path

import pytest
from hatchling.build import build_wheel

import receiver.config
import sender.config
from common.config import keys, load
from common.config.keys import ArrayNode, LeafNode
from common.console.examples import WrittenUnit, configuration, toml, write_unit
from common.errors import UsageError

CONF = Path(__file__).parents[4] / "conf"
PROGRAMS = {"sender": sender.config, "receiver": receiver.config}
SCHEMAS = {
    "sender": sender.config.SenderConfig,
    "receiver": receiver.config.ReceiverConfig,
}
NO_DEFAULT = "# default: none"
COMMENTED = re.compile(r"#([a-z_]+ = .*)")


@pytest.fixture(params=sorted(SCHEMAS))
def program(request):
    return request.param


def lines(program):
    return (CONF / f"{program}.toml").read_text().splitlines()


def everything(program):
    """The example with every commented key taken into force."""
    return tomllib.loads("\n".join(COMMENTED.sub(r"\1", line) for line in lines(program)))


def leaves(node, tree, key=""):
    """(key, field, kind, value in the tree) of every key of the schema that the tree has."""
    for field, below in keys.fields(node):
        value = tree.get(field.encode_name)
        full = f"{key}.{field.encode_name}".lstrip(".")
        if isinstance(below, LeafNode):
            yield full, field, below.kind, value
        elif isinstance(below, ArrayNode):
            yield from leaves(below.schema, value[0], full)
        else:
            yield from leaves(below.schema, value, full)


def tree_keys(tree, key=""):
    for name, value in tree.items():
        full = f"{key}.{name}".lstrip(".")
        if isinstance(value, dict):
            yield from tree_keys(value, full)
        elif isinstance(value, list) and value and isinstance(value[0], dict):
            yield from tree_keys(value[0], full)
        else:
            yield full


def test_the_example_loads_as_it_is_and_means_the_defaults(program):
    module = PROGRAMS[program]
    loaded = load(
        SCHEMAS[program],
        file=CONF / f"{program}.toml",
        env_prefix=module.ENV_PREFIX,
        environ={},
        flags={},
    )
    set_here = {key for key, origin in loaded.origins.items() if origin.kind == "file"}
    required = {"schema_dir", "data_dirs"}
    assert set_here - required <= {"receiver[0].name", "receiver[0].url"}
    assert loaded.warnings == ()


def test_the_example_has_each_key_of_the_schema_and_no_other(program):
    known = {key.replace("[]", "") for key in keys.keys(SCHEMAS[program])}
    shown = list(tree_keys(everything(program)))
    assert sorted(shown) == sorted(known)


def test_a_commented_key_shows_the_real_default(program):
    without_default = set()
    for key, field, kind, value in leaves(SCHEMAS[program], everything(program)):
        if field.required:
            continue
        if field.default is None:
            without_default.add(key.rpartition(".")[2])
            kind.parse(value)
        else:
            assert kind.parse(value) == field.default, key
    marked = {
        COMMENTED.fullmatch(line)[1].split(" = ")[0]
        for line in lines(program)
        if NO_DEFAULT in line
    }
    assert marked == without_default


def test_what_has_a_default_is_commented_and_what_has_none_is_not(program):
    in_force = set(tree_keys(tomllib.loads("\n".join(lines(program)))))
    required = {
        k for k, field, *_ in leaves(SCHEMAS[program], everything(program)) if field.required
    }
    assert in_force == required


def test_each_attribute_of_each_schema_is_documented(program):
    def documented(node):
        for field, below in keys.fields(node):
            assert re.search(rf"^ +{field.name}: ", node.__doc__, re.MULTILINE), field.name
            if not isinstance(below, LeafNode):
                documented(below.schema)

    documented(SCHEMAS[program])


def unit(program):
    parser = configparser.ConfigParser(interpolation=None, strict=True)
    parser.optionxform = str
    parser.read(CONF / f"tsferry-{program}.service")
    return parser


def test_the_unit_reads_the_default_file_and_does_not_restart_on_a_wrong_one(program):
    service = unit(program)["Service"]
    assert str(PROGRAMS[program].FILE) in service["ExecStart"]
    assert service["RestartPreventExitStatus"] == "2"


def test_the_unit_may_write_where_the_example_writes(program):
    paths = [Path(p) for p in unit(program)["Service"]["ReadWritePaths"].split()]
    tree = tomllib.loads("\n".join(lines(program)))
    for directory in [tree["schema_dir"], *tree["data_dirs"]]:
        assert any(Path(directory).is_relative_to(path) for path in paths)


# -- what `init` makes of them -------------------------------------------------------------------


def test_a_value_is_filled_in_and_all_else_is_as_it_was(program):
    odd = ["/srv/a b", '/srv/q"\\1\\g<0>', "/srv/\N{SNOWMAN}\N{GRINNING FACE}"]
    filled = configuration(program, {"data_dirs": toml(odd)})
    assert tomllib.loads(filled)["data_dirs"] == odd
    changed = set(filled.splitlines()) ^ set(lines(program))
    assert {line.partition(" = ")[0] for line in changed} == {"data_dirs"}


def test_a_commented_key_comes_into_force_with_its_value():
    filled = configuration(
        "sender", {"[receiver].token_file": toml("/t"), "[receiver].ca_file": toml("/c")}
    )
    tree = tomllib.loads(filled)
    assert tree["receiver"][0]["token_file"] == "/t"
    # Another table has a key of this name.
    assert tree["receiver"][0]["ca_file"] == "/c"
    assert tree["schema"] == {}


def test_a_key_that_is_not_there_is_not_passed_over():
    with pytest.raises(AssertionError, match="nonsense"):
        configuration("sender", {"nonsense": "1"})
    with pytest.raises(AssertionError, match="nonsense"):
        configuration("receiver", {"nonsense.host": "1"})


@pytest.fixture
def written(tmp_path, program):
    """A unit with an odd path, and the directories that it was given."""
    data = tmp_path / "50% of $it"
    data.mkdir()
    paths = [data, Path("/srv/schema"), Path("/var/log/tsferry"), data]
    config = Path("/etc/ts ferry.toml")
    (tmp_path / "units").mkdir()
    return write_unit(tmp_path / "units", f"tsferry-{program}", "act", config, paths).file


def test_a_unit_starts_what_is_installed_and_may_write_where_it_has_to(written, program, tmp_path):
    parser = configparser.ConfigParser(interpolation=None, strict=True)
    parser.optionxform = str
    parser.read(written)
    service, before = parser["Service"], unit(program)["Service"]
    command = Path(sys.executable).with_name(f"tsferry-{program}")
    assert service["ExecStart"] == f'{command} --config "/etc/ts ferry.toml" act'
    paths = f'"{tmp_path}/50%% of $it" /srv/schema'
    assert service["ReadWritePaths"] == parser["Unit"]["RequiresMountsFor"] == paths
    assert service["User"] == pwd.getpwuid(os.getuid()).pw_name
    assert parser["Unit"]["Documentation"] == "file:///etc/ts%%20ferry.toml"
    changed = {key for key in service if service[key] != before[key]}
    assert changed <= {"ExecStart", "ReadWritePaths", "User", "Group", "ProtectHome", "PrivateTmp"}


@pytest.mark.parametrize(
    ("place", "setting", "value"),
    [("/home/x", "ProtectHome", "read-only"), ("/var/tmp/x", "PrivateTmp", "no")],
)
def test_a_unit_does_not_hide_what_it_needs(tmp_path, place, setting, value):
    unit = write_unit(tmp_path, "tsferry-sender", "run", Path("/etc/x"), [tmp_path, Path(place)])
    assert f"\n{setting}={value}\n" in unit.file.read_text()


def test_whom_a_unit_runs_as_is_said_and_why_it_is_root(tmp_path):
    file, directory = tmp_path / "a.service", tmp_path / "data"
    plain, root = (WrittenUnit(file, user, directory).line() for user in ("iotdb", "root"))
    assert plain == f"wrote {file}, which runs as iotdb"
    assert root.startswith(
        f"wrote {file}, which runs as root, as {directory} is root's: chown that"
    )


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user")
def test_a_unit_whose_user_may_not_read_its_files_says_so():
    """Others would hear of it when the unit does not come up."""
    with tempfile.TemporaryDirectory() as made:  # that of pytest lets nobody else pass
        root = Path(made)
        root.chmod(0o755)
        config, key, gone, data = (root / name for name in ("x.toml", "key", "gone", "data"))
        for each in (config, key):
            each.write_text("x = 1")
            each.chmod(0o640)
        data.mkdir()
        os.chown(data, 65534, 65534)
        given = root, "tsferry-sender", "run", config, [data], [None, key, gone, config]
        unit = write_unit(*given)
        assert unit.unread == (config, key)
        assert unit.line().endswith(f"sudo chown {unit.user} {config} {key}")
        for each in (config, key):
            os.chown(each, 65534, -1)
        assert write_unit(*given).unread == ()
        os.chown(data, 0, 0)
        (root / "tsferry-sender.service").unlink()
        os.chown(key, 1, 1)
        assert write_unit(*given).unread == (), "root reads everything"


@pytest.mark.parametrize("name", ["a\nUser=root", "a\tb", "a\x7f"])
def test_a_path_that_would_end_its_line_is_in_no_unit(tmp_path, name):
    bad = tmp_path / name
    for config, paths in ((bad, [tmp_path]), (Path("/etc/x"), [tmp_path, bad])):
        with pytest.raises(UsageError, match="control characters"):
            write_unit(tmp_path / "units", "tsferry-sender", "run", config, paths)
    assert not (tmp_path / "units").exists()


def test_a_unit_that_somebody_has_changed_is_not_overwritten(written, program, tmp_path):
    again = ("act", Path("/etc/ts ferry.toml"), [tmp_path / "50% of $it", Path("/srv/schema")])
    assert write_unit(written.parent, f"tsferry-{program}", *again).file == written
    written.write_text("# mine\n")
    with pytest.raises(UsageError, match="already"):
        write_unit(written.parent, f"tsferry-{program}", *again)
    assert written.read_text() == "# mine\n"


@pytest.mark.slow
def test_the_wheel_has_them(tmp_path, monkeypatch):
    monkeypatch.chdir(CONF.parent)
    with zipfile.ZipFile(tmp_path / build_wheel(str(tmp_path))) as wheel:
        for each in CONF.iterdir():
            assert wheel.read(f"tsferry_conf/{each.name}") == each.read_bytes()
        (licence,) = (each for each in wheel.namelist() if each.endswith("licenses/LICENSE"))
        assert wheel.read(licence) == (CONF.parent / "LICENSE").read_bytes()
