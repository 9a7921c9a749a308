"""Acks are collected, merged and sent in time; refusals are kept; leases are renewed."""

import asyncio
import random
from threading import Thread
from typing import Any

import pytest

from penstock.batch import encode_many
from penstock.batch.frame import Frame, Slice
from penstock.client.received import ReceivedMessage
from penstock.client.settling import ROUNDS_MAX, Settling, by_hold, check_delay
from penstock.vocabulary.claims import Refusal, Renewal
from penstock.vocabulary.errors import (
    AckRefused,
    AlreadySettled,
    Closed,
    InvalidArgument,
    StoreFailed,
)
from penstock.vocabulary.records import Cause
from tests.client.recorder import Recorder


class Scene:
    """A consumer that was handed slices of so many messages."""

    def __init__(self, *sizes: int, credit: int = 1000, renews_handed: bool = False) -> None:
        loop = asyncio.get_running_loop()
        self.settling = Settling("orders", loop, credit, renews_handed=renews_handed)
        self.recorder = Recorder()
        attachment: Any = self.recorder
        self.settling.attachment = attachment
        self.iterators = [self._slice(number, size) for number, size in enumerate(sizes, start=1)]

    def _slice(self, lease_id: int, size: int) -> Any:
        start = (lease_id - 1) * 1000
        offsets = range(start, start + size)
        frame = Frame(encode_many([b"x"] * size), offsets, range(size), 0, bytes(16), 0, 0)
        return self.settling.hold(Slice(lease_id, 0, start, start + size, 1, [frame])).messages()

    def messages(self) -> list[ReceivedMessage]:
        return [message for iterator in self.iterators for message in iterator]


def test_acks_in_any_order_become_few_ranges() -> None:
    async def scenario() -> None:
        scene = Scene(100, 100)
        messages = scene.messages()
        left_out = messages.pop(150)
        random.Random(1).shuffle(messages)
        for message in messages:
            message.ack()
        scene.settling.send()
        assert sorted(scene.recorder.acked) == [
            (1, ((0, 100),)), (2, ((1000, 1050), (1051, 1100))),
        ]  # fmt: skip
        assert list(scene.settling.holds) == [2]
        left_out.ack()
        scene.settling.send()
        assert scene.settling.holds == {}

    asyncio.run(scenario())


def test_a_message_acked_twice_does_not_stand_for_another() -> None:
    async def scenario() -> None:
        scene = Scene(4)
        messages = scene.messages()
        (hold,) = scene.settling.holds.values()
        messages[1].ack()
        messages[3].ack()
        scene.settling.ack_many(hold, [0, 1])  # as a batch does that has it too
        scene.settling.send()
        assert scene.recorder.acked == [(1, ((0, 2), (3, 4)))]
        messages[2].ack()
        scene.settling.send()
        assert scene.settling.holds == {}

        scene = Scene(4)
        messages = scene.messages()
        (hold,) = scene.settling.holds.values()
        scene.settling.ack_many(hold, [0, 1])
        messages[1].ack()
        messages[3].ack()
        scene.settling.send()
        assert scene.recorder.acked == [(1, ((0, 2), (3, 4)))], "in the other order too"

    asyncio.run(scenario())


def test_acks_are_sent_after_a_few_milliseconds() -> None:
    async def scenario() -> None:
        scene = Scene(3)
        for message in scene.messages():
            message.ack()
        assert scene.recorder.acked == []
        await asyncio.sleep(0.02)
        assert scene.recorder.acked == [(1, ((0, 3),))]

    asyncio.run(scenario())


def test_acks_are_sent_at_once_when_half_the_credit_is_used() -> None:
    async def scenario() -> None:
        scene = Scene(10, credit=10)
        for message in scene.messages()[:7]:
            message.ack()
        assert scene.recorder.acked == [(1, ((0, 5),))]
        await asyncio.sleep(0.02)
        assert scene.recorder.acked == [(1, ((0, 5),)), (1, ((5, 7),))]

    asyncio.run(scenario())


def test_threads_may_settle_and_nothing_is_lost() -> None:
    async def scenario() -> None:
        scene = Scene(400, 400, credit=100)
        messages = scene.messages()

        def work(mine: list[ReceivedMessage]) -> None:
            for message in mine:
                if message.at % 10 == 7:
                    message.nack()
                else:
                    message.ack()

        threads = [Thread(target=work, args=(messages[n::4],)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            await asyncio.to_thread(thread.join)
        await asyncio.sleep(0.02)
        acked = {o for _, ranges in scene.recorder.acked for a, b in ranges for o in range(a, b)}
        back = {o for row in scene.recorder.given_back for a, b in row[1] for o in range(a, b)}
        assert acked == {m.at for m in messages if m.at % 10 != 7}
        assert back == {m.at for m in messages if m.at % 10 == 7}
        assert scene.settling.holds == {}

    asyncio.run(scenario())


def test_an_ack_from_a_thread_after_the_loop_is_gone_is_refused() -> None:
    scenes: list[list[ReceivedMessage]] = []

    async def scenario() -> None:
        scenes.append(Scene(1).messages())

    asyncio.run(scenario())
    caught: list[Exception] = []

    def work() -> None:
        try:
            scenes[0][0].ack()
        except Closed as error:
            caught.append(error)

    thread = Thread(target=work)
    thread.start()
    thread.join()
    assert len(caught) == 1


def test_nack_and_reject_go_at_once() -> None:
    async def scenario() -> None:
        scene = Scene(2)
        one, other = scene.messages()
        one.nack(delay_s=2.5, reason="busy")
        other.reject("bad")
        assert scene.recorder.given_back == [
            (1, ((0, 1),), Cause.NACKED, 2.5, "busy"), (1, ((1, 2),), Cause.REJECTED, 0.0, "bad"),
        ]  # fmt: skip
        assert scene.settling.holds == {}

    asyncio.run(scenario())


@pytest.mark.parametrize("delay_s", [-1, float("nan"), float("inf"), "1", 1e9, True])
def test_a_nack_cannot_wait_for_a_wrong_time(delay_s: Any) -> None:
    with pytest.raises(InvalidArgument, match="delay_s must be seconds from 0 to 31536000"):
        check_delay(delay_s)


@pytest.mark.parametrize("wrong", [{"delay_s": 1e9}, {"delay_s": -1}, {"reason": 5}])
def test_a_refused_nack_changes_nothing(wrong: dict[str, Any]) -> None:
    async def scenario() -> None:
        scene = Scene(1)
        [message] = scene.messages()
        with pytest.raises(InvalidArgument):
            message.nack(**wrong)
        assert not message.is_settled
        message.ack()
        scene.settling.send()
        assert scene.recorder.acked == [(1, ((0, 1),))]

    asyncio.run(scenario())


def test_a_reason_that_is_not_quite_text_is_made_so() -> None:
    async def scenario() -> None:
        scene = Scene(1)
        [message] = scene.messages()
        message.nack(reason="no file \udce9")
        assert scene.recorder.given_back[0][-1] == "no file \\udce9"

    asyncio.run(scenario())


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), 1e9, "5"])
def test_an_extension_has_a_sensible_length(seconds: Any) -> None:
    async def scenario() -> None:
        [message] = Scene(1).messages()
        with pytest.raises(InvalidArgument, match="extend"):
            message.extend(seconds)

    asyncio.run(scenario())


def test_an_extension_is_for_one_message() -> None:
    async def scenario() -> None:
        scene = Scene(3)
        scene.messages()[1].extend(12)
        assert scene.recorder.renewals == [([Renewal(1, 1, 2)], 12)]

    asyncio.run(scenario())


def test_what_was_not_handed_out_is_renewed_beyond_the_next_renewal() -> None:
    async def scenario() -> None:
        scene = Scene(3, 3)
        next(scene.iterators[0])
        scene.settling.renew()
        [(renewals, seconds)] = scene.recorder.renewals
        assert renewals == [Renewal(1, 1, None), Renewal(2, 1000, None)]
        assert seconds == pytest.approx(33)

    asyncio.run(scenario())


def test_a_push_consumer_renews_what_its_handlers_work_on() -> None:
    async def scenario() -> None:
        scene = Scene(3, renews_handed=True)
        messages = scene.messages()
        messages[0].ack()
        scene.settling.send()
        scene.settling.renew()
        assert scene.recorder.renewals[0][0] == [Renewal(1, 1, None)]

    asyncio.run(scenario())


def test_messages_that_are_never_settled_are_forgotten_in_the_end() -> None:
    async def scenario() -> None:
        scene = Scene(3)
        message = scene.messages()[0]
        for _ in range(ROUNDS_MAX + 1):
            scene.settling.renew()
        assert scene.settling.holds == {}
        message.ack()
        scene.settling.send()
        assert scene.recorder.acked == [(1, ((0, 1),))]

    asyncio.run(scenario())


def test_a_cumulative_ack_stops_at_what_was_handed_out() -> None:
    async def scenario() -> None:
        scene = Scene(3, 3)
        for _ in scene.iterators[0]:
            pass
        next(scene.iterators[1])
        last = next(scene.iterators[1])
        last.ack(cumulative=True)
        scene.settling.send()
        assert scene.recorder.acked == [(1, ((0, 3),)), (2, ((1000, 1002),))]
        with pytest.raises(AlreadySettled):
            last.ack()

    asyncio.run(scenario())


def test_refusals_are_listed_once() -> None:
    async def scenario() -> None:
        settling = Scene(1).settling
        settling.on_refused([Refusal(0, n, "it was handed out again") for n in range(5)])
        with pytest.raises(AckRefused, match=r"5 decision\(s\).*0:0.*and 2 more") as caught:
            settling.check_refused()
        assert caught.value.refused[4] == ("orders", 0, 4, "it was handed out again")
        assert caught.value.text.endswith("those that nobody has finished are delivered again")
        settling.check_refused()

    asyncio.run(scenario())


def test_a_failure_to_send_is_kept_for_flush() -> None:
    async def scenario() -> None:
        scene = Scene(1)
        scene.recorder.failure = StoreFailed("the sync failed")
        scene.messages()[0].ack()
        scene.settling.send()
        with pytest.raises(StoreFailed):
            scene.settling.check_failure()

    asyncio.run(scenario())


def test_closing_sends_the_last_acks_and_tells_what_was_begun() -> None:
    async def scenario() -> None:
        scene = Scene(3, 3)
        first = next(scene.iterators[0])
        second = next(scene.iterators[0])
        first.ack()
        scene.settling.close()
        assert scene.recorder.acked == [(1, ((0, 1),))]
        assert scene.settling.begun() == {1: ((0, 2),)}
        with pytest.raises(Closed):
            second.ack()

    asyncio.run(scenario())


def test_a_unit_claims_messages_and_they_are_settled_when_it_is_committed() -> None:
    async def scenario() -> None:
        scene = Scene(3, 2)
        messages = scene.messages()
        chosen = by_hold([messages[4], messages[2], messages[0]])
        attachment, claims = scene.settling.claims_of(chosen)
        assert attachment is scene.settling.attachment
        found = [(claim.lease_id, claim.ranges) for claim in claims]
        assert found == [(2, ((1001, 1002),)), (1, ((0, 1), (2, 3)))]
        assert scene.settling.holds[1].left == 3
        scene.settling.finish(chosen)
        assert (scene.settling.holds[1].left, scene.settling.holds[2].left) == (1, 1)
        scene.settling.finish(by_hold([messages[1], messages[3]]))
        assert scene.settling.holds == {}
        scene.settling.close()
        with pytest.raises(Closed):
            scene.settling.claims_of(chosen)

    asyncio.run(scenario())
