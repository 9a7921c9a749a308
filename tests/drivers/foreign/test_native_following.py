"""Patterns on a broker that has them: one feed is shared out by topic."""

import asyncio
from collections.abc import Sequence
from typing import Any, NamedTuple

import pytest

from penstock.drivers.foreign import native_following
from penstock.drivers.foreign.carrier import Refused, Release, Seat
from penstock.drivers.foreign.driver import ForeignDriver
from penstock.drivers.foreign.envelope import Letter
from penstock.drivers.foreign.native_following import NativeFollowing
from penstock.drivers.port import Attachment
from penstock.vocabulary.claims import Claim
from penstock.vocabulary.errors import PenstockError, StorageError, Unavailable
from penstock.vocabulary.policy import SubscriptionPolicy
from penstock.vocabulary.wishes import Wish
from tests.drivers.foreign.memory_carrier import MemoryCarrier, Shop
from tests.drivers.foreign.test_attachment import until


class Token(NamedTuple):
    topic: str


class Script:
    """A feed that gives what the test puts in, and remembers what became of it."""

    def __init__(self) -> None:
        self.letters: list[Letter] = []
        self.errors: list[PenstockError] = []
        self.settled: list[str] = []
        self.asked: list[int] = []
        self.is_closed = False

    def put(self, *rows: tuple[str, bytes]) -> None:
        for topic, body in rows:
            self.letters.append(Letter(body=body, id=str(body), token=Token(topic)))

    async def fetch(self, count: int, bytes_max: int) -> list[Letter]:
        del bytes_max
        await asyncio.sleep(0.01)
        self.asked.append(count)
        if self.errors:
            raise self.errors.pop(0)
        found, self.letters = self.letters[:count], self.letters[count:]
        return found

    async def settle(self, letters: Sequence[Letter]) -> list[Refused]:
        self.settled += [letter.token.topic for letter in letters]
        return []

    async def release(self, releases: Sequence[Release]) -> list[Refused]:
        return []

    async def renew(self, letters: Sequence[Letter]) -> None:
        """Nothing to do."""

    async def bury(self, dead_topic: str, letters: Sequence[Letter]) -> list[Refused]:
        self.settled += [dead_topic for _ in letters]
        return []

    async def close(self) -> None:
        self.is_closed = True


class Joined:
    """A follower, and the sink of every topic that joined."""

    def __init__(self) -> None:
        self.attachments: dict[str, Attachment] = {}
        self.slices: list[Any] = []
        self.error: Exception | None = None

    def on_joined(self, topic: str, attachment: Attachment) -> Any:
        self.attachments[topic] = attachment
        return self

    def on_slice(self, part: Any) -> None:
        self.slices.append(part)

    def on_refused(self, refusals: Any) -> None:
        raise AssertionError(refusals)

    def on_closed(self, error: Exception) -> None:
        self.error = error

    def on_revoked(self, news: Any) -> None:
        raise AssertionError(news)


class Rig:
    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.script, self.joined = Script(), Joined()
        driver = ForeignDriver(MemoryCarrier(Shop()), loop, 5.0)
        wish = Wish("a/+", "s", SubscriptionPolicy(), None, 10, 1 << 20, "me")
        seat = Seat("a/+", "s", SubscriptionPolicy(), "latest", "me")
        self.following = NativeFollowing(wish, seat, self.script, self.joined, driver.seated, loop)
        self.following.start()

    async def detach(self, topic: str) -> None:
        left = asyncio.get_running_loop().create_future()
        self.joined.attachments[topic].detach({}, left.set_result)
        await left


def test_a_topic_joins_with_its_first_message_and_settles_at_the_one_feed() -> None:
    async def scenario() -> None:
        rig = Rig()
        rig.script.put(("a/1", b"x"), ("a/2", b"y"), ("a/1", b"z"))
        await until(lambda: len(rig.joined.slices) >= 2)
        assert set(rig.joined.attachments) == {"a/1", "a/2"}
        for part in rig.joined.slices:
            topics = {"a/1", "a/2"}
            for topic in topics:
                attachment = rig.joined.attachments[topic]
                claim = Claim(part.lease_id, 0, 1, ((part.start, part.end),))
                if attachment.desk.meant([claim])[0]:  # type: ignore[attr-defined]
                    attachment.ack([claim])
        await until(lambda: sorted(rig.script.settled) == ["a/1", "a/1", "a/2"])
        rig.following.leave()
        rig.following.leave()
        await rig.detach("a/1")
        assert not rig.script.is_closed, "another topic still uses the feed"
        await rig.detach("a/2")
        assert rig.script.is_closed

    asyncio.run(scenario())


def test_a_broker_that_is_away_is_asked_again_and_a_final_error_is_told() -> None:
    async def scenario() -> None:
        rig = Rig()
        rig.script.errors = [Unavailable("away"), Unavailable("away")]
        rig.script.put(("a/1", b"x"))
        await until(lambda: bool(rig.joined.slices))
        rig.script.errors = [StorageError("no more")]
        await until(lambda: rig.joined.error is not None)
        rig.following.leave()
        await rig.detach("a/1")
        assert rig.script.is_closed

    asyncio.run(scenario())


def test_leaving_before_any_topic_joined_closes_the_feed() -> None:
    async def scenario() -> None:
        rig = Rig()
        rig.following.leave()
        await until(lambda: rig.script.is_closed)

    asyncio.run(scenario())


def test_what_the_desks_do_not_take_stays_with_the_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native_following, "WAITING_MAX", 20)

    async def scenario() -> None:
        rig = Rig()
        rig.script.put(*[("a/1", str(number).encode()) for number in range(100)])
        await until(lambda: len(rig.joined.slices) > 0)
        await asyncio.sleep(0.1)
        # Ten are in the application's hands, some wait here, and the rest has not been fetched.
        assert len(rig.script.letters) >= 50
        rig.following.leave()
        await rig.detach("a/1")

    asyncio.run(scenario())
