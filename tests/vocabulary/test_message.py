"""Messages, receipts and outcomes are values with documented defaults."""

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.vocabulary.message import (
    Ack,
    Durability,
    Kind,
    Message,
    Nack,
    Receipt,
    Reject,
    render_id,
)


def test_a_message_without_a_body_is_not_one_with_an_empty_body() -> None:
    assert Message().body is None
    assert Message(body=b"") != Message()


def test_an_unadorned_message_has_no_key_id_headers_or_times_and_priority_zero() -> None:
    message = Message(body=b"x")
    assert (message.key, message.id, message.headers) == (None, None, None)
    assert (message.priority, message.deliver_at, message.expires_at) == (0, None, None)


def test_a_message_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        Message(body=b"x").body = b"y"  # type: ignore[misc]


def test_a_receipt_is_no_duplicate_unless_it_says_so() -> None:
    receipt = Receipt("orders", 0, 7, "0:7", "id", Durability.SYNCED)
    assert not receipt.duplicate


def test_levels_and_kinds_are_spelled_as_in_the_contract() -> None:
    assert [level.value for level in Durability] == ["memory", "written", "synced", "replicated"]
    assert [kind.value for kind in Kind] == ["shared", "multicast", "key_shared", "reader"]


def test_outcomes_carry_what_the_handler_said() -> None:
    assert Ack() == Ack()
    assert (Nack().delay_s, Nack().reason) == (None, "")
    assert Reject("bad body") == Reject(reason="bad body")


def test_a_message_travels_between_processes() -> None:
    message = Message(body=b"x", key="k", headers={"a": "b"}, priority=3, deliver_at=1.5)
    assert pickle.loads(pickle.dumps(message)) == message


publishers = st.binary(min_size=16, max_size=16)
numbers = st.integers(0, 2**64 - 1)


@given(publishers, numbers, numbers, publishers, numbers, numbers)
def test_two_virtual_ids_are_equal_only_for_the_same_message(
    publisher: bytes, epoch: int, sequence: int, other: bytes, other_epoch: int, other_sequence: int
) -> None:
    is_same = (publisher, epoch, sequence) == (other, other_epoch, other_sequence)
    same_id = render_id(publisher, epoch, sequence) == render_id(other, other_epoch, other_sequence)
    assert is_same == same_id


def test_a_virtual_id_reads_publisher_epoch_sequence_in_hexadecimal() -> None:
    assert render_id(b"\xab" * 16, 10, 255) == "ab" * 16 + "-a-ff"
