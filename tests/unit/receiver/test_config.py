import pytest

from common.config import ConfigError, load
from receiver.config import ENV_PREFIX, ReceiverConfig


@pytest.fixture
def read():
    def read(*settings, environ=None):
        flags = {"schema_dir": "/s", "data_dirs": "/d"}
        flags |= dict(setting.split("=", 1) for setting in settings)
        return load(
            ReceiverConfig, file=None, env_prefix=ENV_PREFIX, environ=environ or {}, flags=flags
        )

    return read


@pytest.fixture
def refused(read):
    def refused(*settings):
        with pytest.raises(ConfigError) as caught:
            read(*settings)
        return str(caught.value)

    return refused


TLS = ("listen.tls_cert=/c", "listen.tls_key=/k")


def test_out_of_the_box_only_this_machine_can_connect(read):
    loaded = read()
    listen = loaded.value.listen
    assert listen.on_loopback
    assert "127.0.0.1" in listen.allow
    assert "::1" in listen.allow
    assert "10.0.0.1" not in listen.allow
    assert loaded.warnings == ()


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "centre.example"])
def test_an_address_that_others_reach_needs_tls_or_insecure(read, refused, host):
    assert "listen.host" in refused(f"listen.host={host}")
    everyone = "listen.allow=0.0.0.0/0,::/0"
    assert read(f"listen.host={host}", everyone, *TLS).warnings == ()
    (warning,) = read(f"listen.host={host}", everyone, "listen.insecure=true").warnings
    assert "read on the way" in warning


def test_an_address_that_nobody_may_reach_is_warned_of(read):
    (warning,) = read("listen.host=0.0.0.0", *TLS).warnings
    assert "listen.allow" in warning


def test_a_storage_node_is_not_to_want_certificates_of_its_master(read, refused):
    wanting = (*TLS, "listen.client_ca=/a", "listen.client_auth=required")
    assert read(*wanting).value.listen.wants_certificates
    said = refused(*wanting, 'node.master=["https://centre:6667"]')
    assert "listen.client_auth" in said
    assert "show it no certificate" in said


def test_certificate_and_key_come_together(read, refused):
    assert "listen.tls_key: missing" in refused("listen.tls_cert=/c")
    assert "listen.tls_cert: missing" in refused("listen.tls_key=/k")
    assert read(*TLS).value.listen.tls


def test_a_white_list_takes_networks_and_hosts_of_both_families(read, refused):
    allow = read("listen.allow=10.0.0.0/8, 192.168.1.7, fd00::/8").value.listen.allow
    asked = ["10.255.255.255", "192.168.1.7", "192.168.1.8", "fd00::1", "::ffff:10.0.0.1"]
    assert [address in allow for address in asked] == [True, True, False, True, True]
    assert "'10.0.0.1/8'" in refused("listen.allow=10.0.0.1/8")
    assert "listen.allow" in refused("listen.allow=[]")


def test_variables_set_nested_keys(read):
    environ = {
        "TSFERRY_RECEIVER_LIMITS__MIN_FREE_BYTES": "2GiB",
        "TSFERRY_RECEIVER_LISTEN__PORT": "0",
    }
    config = read(environ=environ).value
    assert (config.limits.min_free_bytes, config.listen.port) == (2**31, 0)


def test_what_kubernetes_injects_beside_a_service_of_our_name_does_no_harm(read):
    port = read(environ={"TSFERRY_RECEIVER_PORT": "tcp://10.0.0.1:80"}).value.listen.port
    assert port == 8765


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        (["limits.max_chunk_bytes=65MiB"], "limits.max_chunk_bytes"),
        (["limits.max_batch_bytes=65MiB"], "limits.max_batch_bytes"),
        (["limits.max_unloaded_bytes=1MiB"], "limits.max_unloaded_bytes"),
        (["limits.max_page_items=0"], "limits.max_page_items"),
        (["limits.upload_expiry=1s"], "limits.upload_expiry"),
        (["nodes.uploads_from=8MiB"], "nodes.uploads_from"),
        (["nodes.uploads_from=1KiB", "nodes.replicas=1"], "nodes.uploads_from"),
        (["listen.port=65536"], "listen.port"),
        (["listen.threads=0"], "listen.threads"),
        (["auth.require=never"], "auth.require"),
        (["data_dirs=/d,/d/e"], "data_dirs"),
        (["data_dirs=[]"], "data_dirs"),
        (["partition_interval=0s"], "partition_interval"),
        (["time_unit=s"], "time_unit"),
    ],
)
def test_values_that_make_no_sense_are_refused_by_name(refused, settings, key):
    assert f"{key} = " in refused(*settings) or f"{key}: " in refused(*settings)


def test_the_partition_interval_is_whole_milliseconds(read, refused):
    assert read("partition_interval=1h").value.partition_interval_ms == 3_600_000
    assert "whole milliseconds" in refused("partition_interval=0.0015")


@pytest.mark.parametrize("url", ["file:///d", "file:///d/copies", "file:///s/a/../copies"])
def test_copies_do_not_lie_in_what_they_are_of(read, refused, url):
    assert "both would be lost" in refused(f"storage.url={url}")
    read("storage.url=file:///copies")
    read("storage.url=file:///d2/copies")
