"""A leg is introduced to its follower once, before anything else reaches it."""

from threading import RLock, Thread
from typing import Any

from penstock.batch.frame import Slice
from penstock.drivers.legs import Followed, Leg
from penstock.drivers.port import Following
from penstock.vocabulary.claims import Refusal, Revoked
from tests.client.recorder import Recorder

PART = Slice(1, 0, 0, 1, 1, [])


class Notes:
    """A follower, and the sink it gives."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    def on_joined(self, topic: str, attachment: Any) -> "Notes":
        self.seen.append((topic, attachment))
        return self

    def on_slice(self, part: Slice) -> None:
        self.seen.append(part)

    def on_refused(self, refusals: list[Refusal]) -> None:
        self.seen.append(refusals)

    def on_closed(self, error: Exception) -> None:
        self.seen.append(error)

    def on_revoked(self, news: Revoked) -> None:
        self.seen.append(news)


def test_whatever_comes_first_the_follower_is_told_of_the_topic_before() -> None:
    notes, attachment, error = Notes(), Recorder(), ValueError("gone")
    leg = Leg("a", notes, RLock())
    leg.attachment = attachment
    leg.on_slice(PART)
    leg.introduce()
    leg.on_refused([])
    leg.on_revoked(Revoked(None, ()))
    leg.on_closed(error)
    assert notes.seen == [("a", attachment), PART, [], Revoked(None, ()), error]


def test_a_leg_waits_until_it_is_attached() -> None:
    lock, notes, attachment = RLock(), Notes(), Recorder()
    leg = Leg("a", notes, lock)
    with lock:
        thread = Thread(target=leg.on_slice, args=(PART,))
        thread.start()
        thread.join(0.05)
        assert notes.seen == []
        leg.attachment = attachment
    thread.join()
    assert notes.seen == [("a", attachment), PART]


class Counted:
    def __init__(self) -> None:
        self.count = 0

    def leave(self) -> None:
        self.count += 1


def test_a_connection_knows_a_following_until_it_is_left() -> None:
    known: dict[Following, None] = {}
    inner = Counted()
    followed = Followed(inner, known)
    assert list(known) == [followed]
    followed.leave()
    assert (known, inner.count) == ({}, 1)
