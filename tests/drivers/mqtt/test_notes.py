"""Notes in retained messages, mirrored."""

import asyncio
from typing import Any

from penstock.drivers.mqtt.notes import Notes, SessionNote, SubscriptionNote, TopicNote, path
from penstock.vocabulary.policy import Retry, SubscriptionPolicy, TopicPolicy


class Board:
    """Where notes are written, and read by others."""

    def __init__(self) -> None:
        self.written: dict[str, bytes] = {}
        self.notes = Notes(self.write)

    async def write(self, topic: str, body: bytes) -> None:
        self.written[topic] = body

    def put(self, *values: Any) -> None:
        asyncio.run(self.notes.put(*values))

    def other(self) -> Notes:
        found = Notes(self.write)
        for topic, body in self.written.items():
            found.arrived(topic, body)
        return found


def test_what_one_writes_another_reads() -> None:
    board = Board()
    policy = SubscriptionPolicy(lease_s=5, retry=Retry(max_attempts=None))
    board.put(TopicNote(TopicPolicy(keep_last=1), 5.0), "topic", "a/b.c")
    board.put(SubscriptionNote(policy), "subscription", "a/b.c", "billing")
    board.put(SubscriptionNote(SubscriptionPolicy()), "subscription", "a/+", "all")
    board.put(SessionNote("a/b.c", "billing", "me"), "session", "id-1")
    board.put(SessionNote("a/+", "all", "you"), "consumer", "id-2")
    assert all(topic.startswith("$penstock/") for topic in board.written)
    notes = board.other()
    topic = notes.topic("a/b.c")
    assert topic is not None
    assert (topic.policy.keep_last, topic.created_at) == (1, 5.0)
    assert notes.topics() == {"a/b.c"}
    assert notes.subscriptions("a/b.c") == {"billing": policy, "all": SubscriptionPolicy()}
    assert notes.subscriptions("a/b.c.dead.all") == {}
    assert notes.consumers("a/b.c", "all") == ["you"]
    assert notes.consumers("a/b.c", "billing") == []
    assert notes.sessions("a/b.c", "billing") == ["id-1"]
    assert notes.has_session("id-1")
    assert not notes.has_session("id-2")


def test_notes_are_removed() -> None:
    board = Board()
    note = SubscriptionNote(SubscriptionPolicy())
    board.put(note, "subscription", "a", "billing")
    board.put(None, "subscription", "a", "billing")
    assert board.written == {path("subscription", "a", "billing"): b""}
    assert board.notes.subscription("a", "billing") is None


def test_what_the_broker_names_no_more_is_gone() -> None:
    board = Board()
    note = SubscriptionNote(SubscriptionPolicy())
    for topic in ("a", "b", "c"):
        board.put(note, "subscription", topic, "billing")
    board.notes.end()  # without a beginning
    board.notes.begin()
    assert board.notes.topics() == {"a", "b", "c"}
    board.notes.arrived(path("subscription", "a", "billing"), b'{"policy": {}}')
    board.put(note, "subscription", "c", "billing")
    board.notes.end()
    assert board.notes.topics() == {"a", "c"}


def test_what_makes_no_sense_is_left_alone() -> None:
    notes = Board().notes
    for topic, body in (
        ("$penstock/topic/a", b"{"),
        ("$penstock/topic/a%ZZ", b"{}"),
        ("$penstock/else/a", b"{}"),
        ("other/topic/a", b"{}"),
        ("$penstock/subscription/a/b", b'{"policy": {"qos": "many"}}'),
    ):
        notes.arrived(topic, body)
    assert notes.topics() == set()
