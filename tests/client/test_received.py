"""A received message reads its columns when asked; a hold knows what was handed out."""

from collections.abc import Sequence
from typing import Any

import pytest

from penstock.batch import encode_many
from penstock.batch.frame import Frame, Slice
from penstock.client.received import Hold, ReceivedMessage, Sheet
from penstock.vocabulary.errors import AlreadySettled, BodyDoesNotFit, NotLeased
from penstock.vocabulary.message import Message, render_id
from penstock.vocabulary.records import Cause

PUBLISHER = b"\4" * 16


class Notes:
    """Remembers what messages ask for."""

    topic = "orders"

    def __init__(self, unsent_max: int = 1000) -> None:
        self.unsent = 0
        self.unsent_max = unsent_max
        self.calls: list[tuple[Any, ...]] = []

    def collect(self, hold: Hold) -> None:
        hold.is_dirty = True
        self.calls.append(("collect", hold.lease_id))

    def ack_up_to(self, message: ReceivedMessage) -> None:
        self.calls.append(("up to", message.offset))

    def give_back(
        self, message: ReceivedMessage, cause: Cause, delay_s: float | None, reason: str
    ) -> None:
        self.calls.append((cause, message.offset, delay_s, reason))

    def extend(self, message: ReceivedMessage, seconds: float) -> None:
        self.calls.append(("extend", message.offset, seconds))


def frame(
    messages: list[Any], offsets: Sequence[int], indexes: Sequence[int] | None = None
) -> Frame:
    chosen = range(len(messages)) if indexes is None else indexes
    return Frame(encode_many(messages), offsets, chosen, 1_500, PUBLISHER, 2, 40)


def hold(*frames: Frame, lease_id: int = 9, notes: Notes | None = None) -> Hold:
    start, end = frames[0].offsets[0], frames[-1].offsets[-1] + 1
    return Hold(notes or Notes(), Slice(lease_id, 3, start, end, 2, list(frames)))


def test_a_message_tells_what_was_published() -> None:
    full = Message(body=b"b", key="k", id="given", headers={"a": "b"}, priority=7)
    one, other = hold(frame([full, b"plain"], range(20, 22))).messages()
    assert (one.topic, one.partition, one.offset, one.position) == ("orders", 3, 20, "3:20")
    assert (one.body, one.key, one.id, one.headers) == (b"b", "k", "given", {"a": "b"})
    assert (one.priority, one.published_at, one.attempt) == (7, 1.5, 2)
    assert (other.body, other.key, other.headers, other.priority) == (b"plain", None, {}, 0)
    assert other.id == render_id(PUBLISHER, 2, 41)
    assert repr(one) == "<ReceivedMessage orders 3:20 attempt 2>"


def test_messages_of_a_partly_kept_batch_find_their_columns() -> None:
    listed = [Message(body=str(n), id=f"id-{n}") for n in range(6)]
    got = list(hold(frame(listed, [10, 11, 15], [1, 2, 5])).messages())
    assert [(m.offset, m.body, m.id) for m in got] == [
        (10, b"1", "id-1"), (11, b"2", "id-2"), (15, b"5", "id-5"),
    ]  # fmt: skip


def test_a_body_is_read_as_json_or_as_a_type() -> None:
    [message] = hold(frame([b'{"n": 1}'], range(1))).messages()
    assert message.json() == {"n": 1}
    assert message.decode(dict[str, int]) == {"n": 1}
    with pytest.raises(BodyDoesNotFit, match=r"\$\.\.\.|\$"):
        message.decode(dict[str, str])


def test_acks_are_noted_and_collected_once() -> None:
    notes = Notes()
    held = hold(frame([b"0", b"1", b"2"], range(3)), notes=notes)
    for message in held.messages():
        message.ack()
    assert held.acked == [0, 1, 2]
    assert notes.unsent == 3
    assert notes.calls == [("collect", 9)]


def test_acks_ask_to_be_sent_when_there_are_enough() -> None:
    notes = Notes(unsent_max=2)
    for message in hold(frame([b"0", b"1"], range(2)), notes=notes).messages():
        message.ack()
    assert notes.calls == [("collect", 9), ("collect", 9)]


def test_nack_reject_extend_and_cumulative_go_to_the_settler() -> None:
    notes = Notes()
    messages = list(hold(frame([b""] * 4, range(4)), notes=notes).messages())
    messages[0].nack(delay_s=3, reason="busy")
    messages[1].reject("bad")
    messages[2].extend(7)
    messages[3].ack(cumulative=True)
    assert notes.calls == [
        (Cause.NACKED, 0, 3, "busy"), (Cause.REJECTED, 1, 0.0, "bad"), ("extend", 2, 7),
        ("up to", 3),
    ]  # fmt: skip


def test_a_second_ack_is_refused() -> None:
    [message] = hold(frame([b"x"], range(1))).messages()
    assert not message.is_settled
    message.ack()
    with pytest.raises(AlreadySettled):
        message.ack()
    with pytest.raises(AlreadySettled):
        message.ack(cumulative=True)


def test_a_message_that_was_only_looked_at_cannot_be_settled() -> None:
    [message] = hold(frame([b"x"], range(1)), lease_id=0).messages()
    message.settle()
    with pytest.raises(NotLeased):
        message.ack()


def test_a_hold_knows_what_was_handed_out() -> None:
    held = hold(frame([b"0", b"1"], range(5, 7)), frame([b"2", b"3"], [9, 12]))
    assert (held.count, held.handed, held.first_unhanded) == (4, 0, 5)
    messages = held.messages()
    assert next(messages).offset == 5
    assert (held.handed, held.first_unhanded) == (1, 6)
    assert held.messages() is messages
    assert [next(messages).offset, next(messages).offset] == [6, 9]
    assert (held.handed, held.first_unhanded) == (3, 12)
    assert [m.offset for m in messages] == [12]
    assert (held.handed, held.first_unhanded) == (4, 13)
    assert list(held.offsets(1, 3)) == [6, 9]


def test_taking_pieces_leaves_nothing_to_whoever_still_iterates() -> None:
    held = hold(frame([b"0", b"1"], range(2)), frame([b"2", b"3"], range(2, 4)))
    messages = held.messages()
    next(messages)
    pieces = held.take(2)
    assert [(low, high) for _, low, high in pieces] == [(1, 2), (0, 1)]
    assert list(messages) == []
    assert held.handed == 3
    assert [m.body for m in held.messages()] == [b"3"]
    assert held.take(5) == []


def test_the_first_unsettled_message_is_found() -> None:
    held = hold(frame([b""] * 4, range(10, 14)))
    assert held.first_unsettled == 10
    held.done = 0b1011
    assert held.first_unsettled == 12
    held.done = 0b1111
    assert held.first_unsettled == 14


def test_bodies_of_a_part_are_read_without_messages() -> None:
    held = hold(frame([b"0", b"1", b"2"], range(3)))
    sheet = Sheet(held, held.frames[0])
    assert sheet.bodies() == [b"0", b"1", b"2"]
    assert sheet.bodies(1, 3) == [b"1", b"2"]
    picked = Sheet(held, frame([b"0", b"1", b"2"], [7, 8], [0, 2]))
    assert picked.bodies() == [b"0", b"2"]


def test_settling_can_be_taken_back() -> None:
    (message,) = hold(frame([b"x"], [0])).messages()
    message.settle()
    assert message.is_settled
    message.unsettle()
    message.settle()
    with pytest.raises(AlreadySettled):
        message.settle()
