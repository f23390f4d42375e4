from datetime import datetime
from pathlib import Path

import pytest

from common.config import ConfigError, load
from sender.config import ENV_PREFIX, SenderConfig


@pytest.fixture
def read(tmp_path):
    def read(*settings, top="", **receivers):
        receivers = receivers or {"centre": "url = 'https://centre:8765'"}
        tables = "".join(f"[[receiver]]\nname = '{n}'\n{body}\n" for n, body in receivers.items())
        file = tmp_path / "sender.toml"
        file.write_text(f"schema_dir = 's'\ndata_dirs = ['d']\n{top}\n{tables}")
        flags = dict(setting.split("=", 1) for setting in settings)
        return load(SenderConfig, file=file, env_prefix=ENV_PREFIX, environ={}, flags=flags)

    return read


@pytest.fixture
def refused(read):
    def refused(*args, **kwargs):
        with pytest.raises(ConfigError) as caught:
            read(*args, **kwargs)
        return str(caught.value)

    return refused


def only(loaded):
    (entry,) = loaded.value.receivers
    return entry


def test_a_short_file_is_enough(read, tmp_path):
    config = read().value
    assert config.data_dirs == (tmp_path / "d",)
    assert config.transfer.max_retries == 5
    assert config.partition_interval_ms == 604_800_000
    assert config.propagate_deletes == "replaced"
    assert config.transfer.bandwidth_limit.limit_at(datetime.now().astimezone()) is None


def test_a_receiver_can_come_from_flags_alone():
    flags = {"receiver[0].name": "c", "receiver[0].url": "http://localhost:8765"}
    flags |= {"schema_dir": Path("/s"), "data_dirs": [Path("/d")]}
    config = load(SenderConfig, file=None, env_prefix=ENV_PREFIX, environ={}, flags=flags).value
    assert config.receivers[0].directory == "localhost_8765"
    assert config.data_dirs == (Path("/d"),)


def test_at_least_one_receiver_is_needed():
    flags = {"schema_dir": "/s", "data_dirs": "/d"}
    with pytest.raises(ConfigError, match=r"receiver: missing: expected at least one \[\[receiver"):
        load(SenderConfig, file=None, env_prefix=ENV_PREFIX, environ={}, flags=flags)


def test_a_receiver_table_written_with_single_brackets_is_one_error_that_says_so(tmp_path):
    file = tmp_path / "c.toml"
    file.write_text("schema_dir='s'\ndata_dirs=['d']\n[receiver]\nname='c'\nurl='https://c'")
    with pytest.raises(ConfigError) as caught:
        load(SenderConfig, file=file, env_prefix=ENV_PREFIX, environ={}, flags={})
    assert str(caught.value) == f"{file}:3: receiver: expected an array of tables: [[receiver]]"


@pytest.mark.parametrize(
    ("url", "host", "port", "normal"),
    [
        ("https://Centre.Example:8765/", "centre.example", 8765, "https://centre.example:8765"),
        ("https://centre/edge/", "centre", 443, "https://centre/edge"),
        ("https://[2001:DB8::1]:8765", "2001:db8::1", 8765, "https://[2001:db8::1]:8765"),
        ("http://127.0.0.1", "127.0.0.1", 80, "http://127.0.0.1"),
        ("HTTPS://centre", "centre", 443, "https://centre"),
    ],
)
def test_host_and_port_come_from_the_url(read, url, host, port, normal):
    entry = only(read(c=f"url = '{url}'"))
    assert (entry.host, entry.port, entry.url) == (host, port, normal)


@pytest.mark.parametrize(
    "url",
    [
        *(
            "",
            "centre:8765",
            "ftp://centre",
            "https://",
            "https://centre:0",
            "https://centre:99999",
        ),
        *("https://centre:x", "https://centre/?a=1", "https://centre/#a", "https://ce ntre"),
        *("https://centre\\u0000", "https://[::1", "https:/centre", "//centre:8765"),
    ],
)
def test_what_is_no_address_is_refused(refused, url):
    error = refused(c=f'url = "{url}"')
    assert "receiver[0].url" in error
    assert "expected an address" in error


def test_credentials_in_an_address_are_refused_and_not_shown(refused):
    error = refused(c="url = 'https://me:hush@centre:8765'")
    assert "use token or token_file" in error
    assert "hush" not in error


def test_authorities_for_nodes_are_expected_where_nodes_are_spoken_to(read, refused):
    assert "nodes = true" in refused(c="url = 'https://c'\nnodes_ca_file = '/ca.pem'")
    entry = read(c="url = 'https://c'\nnodes = true\nnodes_ca_file = '/ca.pem'").value.receivers[0]
    assert entry.nodes
    assert not read(c="url = 'https://c'").value.receivers[0].nodes


def test_plain_http_needs_a_loopback_host_or_insecure(read, refused):
    assert "insecure = true" in refused(c="url = 'http://centre:8765'")
    assert read(c="url = 'http://127.0.0.1:8765'").warnings == ()
    assert read(c="url = 'http://[::1]:8765'").warnings == ()
    (warning,) = read(c="url = 'http://centre:8765'\ninsecure = true").warnings
    assert "read on the way" in warning
    (warning,) = read(c="url = 'https://centre:8765'\ninsecure = true").warnings
    assert "not needed" in warning


def test_two_receivers_of_one_name_are_refused(refused, tmp_path):
    body = "url = 'https://a:1'\n[[receiver]]\nname = 'x'\nurl = 'https://b:1'"
    assert 'receiver[1].name = "x": expected another than that of receiver[0]' in refused(x=body)


def test_two_receivers_that_would_share_a_directory_are_refused(read, refused):
    error = refused(
        a="url = 'https://c:1/x'",
        b="url = 'https://d:1'",
        c="url = 'http://C:1/y'\ninsecure = true",
    )
    assert "receiver[2].url" in error
    assert "receiver[0]" in error
    read(a="url = 'https://c:1'", b="url = 'https://c:2'")


def test_a_receiver_has_further_addresses_that_are_its_own(read, refused):
    url = "url = 'https://a:1'\n"
    (entry,) = read(c=f"{url}standby_urls = ['https://b:1', 'https://c']").value.receivers
    assert entry.addresses == ("https://a:1", "https://b:1", "https://c")
    assert entry.directory == "a_1"
    assert "scheme of url" in refused(c=f"{url}standby_urls = ['http://localhost:1']")
    assert "expected https:// (or insecure" in refused(
        c="url = 'http://[::1]:1'\nstandby_urls = ['http://b:1']"
    )
    for twice in ("'https://A:1'", "'https://b', 'https://b:443'"):
        assert "and each once" in refused(c=f"{url}standby_urls = [{twice}]")
    error = refused(
        x="url = 'https://a:1'\nstandby_urls = ['https://b:1']", y="url = 'https://b:1'"
    )
    assert "https://b:1 is an address of y as well" in error


def test_a_forwarding_centre_names_the_receiver_that_it_reads(read, refused):
    url = "url = 'https://c:1'\n"
    assert "source_url: missing" in refused(c=url + "source = 'receiver'")
    assert "source_url" in refused(c=url + "source_url = 'http://localhost:1'")
    assert "source_url" in refused(c=url + "source = 'receiver'\nsource_url = 'http://other:1'")
    entry = only(
        read(c=url + "source = 'receiver'\nsource_url = 'http://[::1]:1'\nsource_token = 't'")
    )
    assert entry.source_token.reveal() == "t"


def test_a_custom_ca_needs_tls(refused):
    assert "ca_file" in refused(c="url = 'http://localhost'\nca_file = 'x'")


@pytest.mark.parametrize(
    "dirs", ["['d', 'd']", "['d', './d/']", "['d', 'd/x']", "['d/x', 'e', 'd']"]
)
def test_a_data_directory_inside_another_is_refused(tmp_path, dirs):
    file = tmp_path / "c.toml"
    file.write_text(f"schema_dir='s'\ndata_dirs={dirs}\n[[receiver]]\nname='c'\nurl='https://c'")
    with pytest.raises(ConfigError, match=r"data_dirs = .*expected apart from each other"):
        load(SenderConfig, file=file, env_prefix=ENV_PREFIX, environ={}, flags={})


def test_a_data_directory_that_is_a_link_to_another_is_refused(tmp_path, refused):
    (tmp_path / "d").mkdir()
    (tmp_path / "e").symlink_to("d")
    assert "expected apart" in refused(f"data_dirs={tmp_path}/d,{tmp_path}/e")


def test_directories_whose_names_begin_alike_are_apart(read, tmp_path):
    assert len(read(f"data_dirs={tmp_path}/d,{tmp_path}/dd").value.data_dirs) == 2


def test_a_flat_layout_needs_its_storage_group(read, refused):
    assert "storage_group: missing" in refused("layout=flat")
    assert "storage_group" in refused("storage_group=root.x")
    for wrong in ("root", "root..x", "root.*", "root.a/b", "root."):
        assert "expected a path" in refused("layout=flat", f"storage_group={wrong}")
    config = read("layout=flat", "storage_group=root.turbine", "closed_by=tail")
    assert config.warnings == ()
    (warning,) = read("layout=flat", "storage_group=root.turbine").warnings
    assert '"tail" may be meant' in warning


def test_patterns_that_can_match_nothing_are_refused(read, refused):
    for wrong in ("root", "root..x", "/root/x"):
        assert "expected patterns" in refused(f"storage_groups.exclude={wrong}")
    assert "include" in refused("storage_groups.include=[]")
    assert read("storage_groups.include=root.a.**,root.*.b").value.storage_groups.include == (
        "root.a.**",
        "root.*.b",
    )


@pytest.mark.parametrize(
    "settings",
    [
        ["transfer.retry_first=1m", "transfer.retry_max=30s"],
        ["transfer.load_poll=60s", "transfer.read_timeout=60s"],
        ["transfer.parallel=0"],
        ["transfer.chunk_bytes=0"],
        ["max_delete_fraction=1.5"],
        ["task_max_files=0"],
        ["partition_interval=0"],
        ["partition_interval=0.0015"],
        ["daemon.period=0"],
    ],
)
def test_numbers_that_make_no_sense_are_refused(refused, settings):
    assert settings[-1].split("=")[0].partition(".")[2] in refused(*settings)


@pytest.mark.parametrize(
    ("key", "there"),
    [("max_delete_fraction", "max_fraction"), ("guard_from_files", "from_files")],
)
def test_a_key_of_the_guard_is_read_and_says_where_it_is_now(read, key, there):
    (warning,) = read(f"{key}=1").warnings
    assert key in str(warning)
    assert f"deletes.{there}" in str(warning)


def test_a_configuration_cannot_be_changed(read):
    with pytest.raises(AttributeError):
        read().value.layout = "flat"


def test_databases_of_the_table_model_have_no_root(read):
    """Apache IoTDB keeps them in directories of their plain names."""
    assert read("storage_groups.include=plant1").value.storage_groups.include == ("plant1",)
    assert read().value.storage_groups.include == ("**",)
