import pytest

from common.config import AllowList, is_loopback


def test_an_entry_without_a_slash_is_one_host():
    allow = AllowList.parse(["10.1.2.3", "::1"])
    assert "10.1.2.3" in allow
    assert "10.1.2.4" not in allow
    assert "::1" in allow
    assert "::2" not in allow


def test_the_edges_of_a_network_are_in_and_what_is_beyond_is_out():
    allow = AllowList.parse(["192.168.4.0/22"])
    inside = ["192.168.4.0", "192.168.7.255"]
    outside = ["192.168.3.255", "192.168.8.0"]
    assert [address in allow for address in inside + outside] == [True, True, False, False]


def test_an_ipv4_peer_on_an_ipv6_socket_is_judged_as_the_ipv4_peer():
    assert "::ffff:10.0.0.1" in AllowList.parse(["10.0.0.0/8"])
    assert "::ffff:11.0.0.1" not in AllowList.parse(["10.0.0.0/8"])
    assert "10.0.0.1" not in AllowList.parse(["::/0"])


@pytest.mark.parametrize(
    "peer", ["", "localhost", "10.0.0.1, 127.0.0.1", "10.0.0.256", None, "unix:"]
)
def test_what_is_no_address_may_not_connect(peer):
    assert peer not in AllowList.parse(["0.0.0.0/0", "::/0"])


def test_a_link_local_peer_is_judged_without_its_interface():
    assert "fe80::1%eth0" in AllowList.parse(["fe80::/10"])


def test_host_bits_behind_the_prefix_are_an_error_that_names_the_network():
    with pytest.raises(ValueError, match=r"'10\.0\.0\.5/8'.*write 10\.0\.0\.0/8"):
        AllowList.parse(["10.0.0.5/8"])


@pytest.mark.parametrize("entry", ["10.0.0.0/33", "centre", "", 5, None, "10.0.0.0/8/8"])
def test_what_is_no_network_is_refused(entry):
    with pytest.raises(ValueError):  # noqa: PT011
        AllowList.parse([entry])


@pytest.mark.parametrize(
    ("host", "local"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("[::1]", True),
        ("::ffff:127.0.0.1", True),
        ("localhost", True),
        ("LocalHost.", True),
        ("edge.localhost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("10.0.0.1", False),
        ("localhost.example.org", False),
        ("notlocalhost", False),
        ("", False),
    ],
)
def test_only_what_can_never_leave_the_machine_is_loopback(host, local):
    assert is_loopback(host) is local
