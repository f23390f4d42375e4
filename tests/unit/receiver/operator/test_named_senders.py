import pytest

from common.errors import NotFoundError, UsageError
from receiver.operator.named_senders import sender_named

ONE, OTHER = "aaaa1" + "0" * 27, "aaaa2" + "0" * 27
SENDERS = [(ONE, "plant-7"), (OTHER, "")]


@pytest.mark.parametrize("name", [ONE, "aaaa1", "plant-7"])
def test_a_sender_is_named_by_uuid_its_beginning_or_label(name):
    assert sender_named(SENDERS, name) == ONE


@pytest.mark.parametrize("name", ["", "aaa", "plant", "b" * 32, "aaaa1x"])
def test_what_names_nobody_is_not_found(name):
    with pytest.raises(NotFoundError):
        sender_named(SENDERS, name)


def test_what_begins_several_is_nobodys_name():
    with pytest.raises(UsageError, match="'aaaa' names 2 senders"):
        sender_named(SENDERS, "aaaa")


def test_a_label_takes_no_name_from_another_sender():
    senders = [(ONE, OTHER), (OTHER, "aaaa1")]
    assert sender_named(senders, OTHER) == OTHER
    with pytest.raises(UsageError):
        sender_named(senders, "aaaa1")
