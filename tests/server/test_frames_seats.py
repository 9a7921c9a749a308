"""Consumers of a connection: joining, leaving, being lost, and patterns."""

import asyncio

from penstock.broker.broker import Broker
from penstock.server.frames_limits import FramesLimits
from penstock.vocabulary.wishes import Wish
from penstock.wire import frames, frames_claims
from penstock.wire.frames import Type
from tests.broker.rig import ManualClock
from tests.drivers.remote.rig import Served, until
from tests.server.test_frames_connection import welcomed
from tests.server.test_frames_session import answer, attach, publish


class Timed(Served):
    """Time passes for it when the test says so."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        super().__init__(reattach_s=0.3)

    def _open(self) -> Broker:
        return Broker.open(self.disk, clock=self.clock, reattach_s=self._reattach_s)


def test_a_lost_connection_keeps_its_consumers_for_a_while() -> None:
    async def scenario(served: Timed) -> None:
        raw = welcomed(served)
        publish(raw, 1)
        assert answer(raw)[0] == Type.STORED
        attach(raw, 5)
        assert [answer(raw)[0] for _ in range(2)] == [Type.ATTACHED, Type.SLICE]
        raw.close()
        await until(lambda: bool(served.broker.engine.away))
        served.clock.advance(0.5)
        await until(lambda: not served.broker.engine.consumers)

    with Timed() as served:
        asyncio.run(scenario(served))


def test_a_consumer_that_is_left_while_it_joins_is_not_there_afterwards() -> None:
    async def scenario(served: Served) -> None:
        raw = welcomed(served)
        for channel in range(1, 20):
            attach(raw, channel)
            raw.send(frames.frame(Type.DETACH, channel, frames_claims.encode_begun({})))
        found = {(Type.DONE, channel) for channel in range(1, 20)}
        while found:
            found.discard(answer(raw)[:2])
        await until(lambda: not served.broker.engine.consumers)
        raw.close()

    with Served() as served:
        asyncio.run(scenario(served))


def follow(number: int, pattern: str) -> bytes:
    wish = Wish(pattern, "all", None, None, 100, 1 << 20, "raw")
    payload = frames_claims.encode_follow(frames_claims.FollowWish(wish, {}))
    return frames.frame(Type.FOLLOW, number, payload)


def test_a_pattern_has_a_channel_for_each_topic() -> None:
    with Served() as served:
        raw = welcomed(served)
        publish(raw, 1, topic=b"orders.a")
        assert answer(raw)[0] == Type.STORED
        raw.send(follow(7, "orders.*"))
        kinds = [answer(raw)[:2] for _ in range(3)]
        assert (Type.JOINED, 7) in kinds
        assert (Type.FOLLOWED, 7) in kinds
        publish(raw, 2, topic=b"orders.b")
        later = [answer(raw)[0] for _ in range(3)]
        assert sorted(later) == sorted([Type.JOINED, Type.SLICE, Type.STORED])
        raw.send(frames.frame(Type.LEAVE, 7))
        publish(raw, 3, topic=b"orders.c")
        assert answer(raw)[:2] == (Type.STORED, 3)
        raw.close()


def test_a_pattern_of_too_many_topics_is_refused() -> None:
    with Served(limits=FramesLimits(legs_max=2)) as served:
        raw = welcomed(served)
        for number in range(3):
            publish(raw, number, topic=b"orders.%d" % number)
            assert answer(raw)[0] == Type.STORED
        raw.send(follow(7, "orders.*"))
        kinds = []
        while (Type.ERROR, 7) not in kinds:
            kinds.append(answer(raw)[:2])
        publish(raw, 9, topic=b"orders.9")  # whoever publishes does not suffer from it
        while answer(raw)[:2] != (Type.STORED, 9):
            continue
        raw.close()
