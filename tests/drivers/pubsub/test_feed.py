"""A consumer against a Pub/Sub that says what emulators never do."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import grpc  # type: ignore[import-untyped]
import pytest

from penstock.drivers.foreign.carrier import Release, Seat
from penstock.drivers.pubsub import feed as feeds
from penstock.drivers.pubsub.carrier import PubSubCarrier
from penstock.drivers.pubsub.feed import PubSubFeed
from penstock.drivers.pubsub.service import _METHODS
from penstock.vocabulary.errors import Unavailable
from penstock.vocabulary.message import Kind
from penstock.vocabulary.policy import SubscriptionPolicy
from tests.drivers.pubsub.stand_in import StandIn, refusing

Response = _METHODS["Pull"][2]


def bringing(*messages: tuple[str, str]) -> Callable[[Any, Any], Any]:
    """A handler of Pull: (id, key) each, once."""
    rows = [
        {
            "ack_id": f"ack-{id}",
            "delivery_attempt": 1,
            "message": {"message_id": id, "ordering_key": key, "publish_time": {"seconds": at}},
        }
        for at, (id, key) in enumerate(messages, 1)
    ]

    def pull(_request: Any, _context: Any) -> Any:
        given = Response(received_messages=rows)
        rows.clear()
        return given

    return pull


def against(
    work: Callable[[StandIn, PubSubFeed], Awaitable[None]], *messages: tuple[str, str],
    kind: Kind = Kind.SHARED, is_exact: bool = False, lease_s: float = 30.0,
) -> None:  # fmt: skip
    async def scenario() -> None:
        async with StandIn() as server:
            server.on["Pull"] = bringing(*messages)
            carrier = PubSubCarrier(server.address)
            policy = SubscriptionPolicy(kind=kind, lease_s=lease_s)
            seat = Seat("orders", "billing", policy, "earliest", "me")
            feed = PubSubFeed(carrier, seat, "path", is_exact=is_exact, counts=True)
            try:
                await work(server, feed)
            finally:
                await feed.close()
                await carrier.close()

    asyncio.run(asyncio.wait_for(scenario(), 60))


def told(server: StandIn, method: str) -> list[tuple[list[str], int]]:
    """Which deliveries were spoken of, and the seconds they were given."""
    return [
        (list(request.ack_ids), getattr(request, "ack_deadline_seconds", -1))
        for name, request in server.asked
        if name == method
    ]


def test_an_ack_that_pubsub_refused_is_told_and_a_passing_failure_is_repeated() -> None:
    async def work(server: StandIn, feed: PubSubFeed) -> None:
        letters = await feed.fetch(10, 1_000)
        server.on["Acknowledge"] = refusing(
            grpc.StatusCode.FAILED_PRECONDITION,
            **{"ack-1": "PERMANENT_FAILURE_INVALID_ACK_ID", "ack-2": "TRANSIENT_FAILURE_OTHER"},
        )
        with pytest.raises(Unavailable, match="1 acks must be repeated"):
            await feed.settle(letters)
        del server.on["Acknowledge"]
        assert await feed.settle(letters) == []
        assert [ids for ids, _ in told(server, "Acknowledge")] == [
            ["ack-1", "ack-2", "ack-3"], ["ack-2"],
        ]  # fmt: skip

    against(work, ("1", ""), ("2", ""), ("3", ""), is_exact=True)


def test_a_refused_ack_is_named_with_its_reason() -> None:
    async def work(server: StandIn, feed: PubSubFeed) -> None:
        [letter] = await feed.fetch(10, 1_000)
        failed = {"ack-1": "PERMANENT_FAILURE_INVALID_ACK_ID"}
        server.on["Acknowledge"] = refusing(grpc.StatusCode.FAILED_PRECONDITION, **failed)
        [refused] = await feed.settle([letter])
        assert "handed out again" in refused.why

    against(work, ("1", ""))


def test_several_of_a_key_are_handed_on_one_by_one() -> None:
    async def work(server: StandIn, feed: PubSubFeed) -> None:
        [one, other] = await feed.fetch(10, 1_000)
        assert (one.position, other.position) == ("1", "3")
        await feed.settle([one])
        [two] = await feed.fetch(10, 1_000)
        assert two.position == "2"
        assert told(server, "ModifyAckDeadline") == [(["ack-2"], 30)], "it has a whole lease again"
        await feed.release([Release(two, 0.0)])
        assert told(server, "ModifyAckDeadline")[1:] == [(["ack-2", "ack-4"], 0)]

    against(work, ("1", "a"), ("2", "a"), ("3", "b"), ("4", "a"), kind=Kind.KEY_SHARED)


def test_what_waits_in_a_line_goes_back_when_the_consumer_leaves() -> None:
    found: list[tuple[list[str], int]] = []

    async def work(server: StandIn, feed: PubSubFeed) -> None:
        await feed.fetch(10, 1_000)
        await feed.close()
        found.extend(told(server, "ModifyAckDeadline"))

    against(work, ("1", "a"), ("2", "a"), kind=Kind.KEY_SHARED)
    assert found == [(["ack-2"], 0)]


def test_what_a_slow_pull_still_brings_goes_back_when_the_consumer_leaves(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(feeds, "FETCH_S", 0.05)
    found: list[tuple[list[str], int]] = []

    async def work(server: StandIn, feed: PubSubFeed) -> None:
        bring = server.on["Pull"]

        async def slow(request: Any, context: Any) -> Any:
            await asyncio.sleep(1)
            return bring(request, context)

        server.on["Pull"] = slow
        assert await feed.fetch(10, 1_000) == []
        await feed.close()
        found.extend(told(server, "ModifyAckDeadline"))

    against(work, ("1", ""))
    assert found == [(["ack-1"], 0)]


def test_a_short_lease_is_set_after_the_pull_and_a_delay_is_kept_to_the_moment() -> None:
    async def work(server: StandIn, feed: PubSubFeed) -> None:
        [one, two, three] = await feed.fetch(10, 1_000)
        assert told(server, "ModifyAckDeadline") == [(["ack-1", "ack-2", "ack-3"], 8)]
        server.asked.clear()
        await feed.release([Release(one, 0.2), Release(two, 100.0), Release(three, 599.5)])
        assert told(server, "ModifyAckDeadline") == [
            (["ack-1"], 2), (["ack-2"], 100), (["ack-3"], 600),
        ]  # fmt: skip
        while len(told(server, "ModifyAckDeadline")) < 4:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        assert told(server, "ModifyAckDeadline")[3] == (["ack-1"], 0)

    against(work, ("1", ""), ("2", ""), ("3", ""), lease_s=7.5)


def test_what_is_late_is_neither_renewed_nor_given_back() -> None:
    async def work(server: StandIn, feed: PubSubFeed) -> None:
        [letter] = await feed.fetch(10, 1_000)
        letter.token.until = 0.0
        server.asked.clear()
        await feed.renew([letter])
        await feed.release([Release(letter, 0.0)])
        assert await feed.bury("orders.dead.billing", [letter]) == []
        [refused] = await feed.settle([letter])
        assert refused.letter is letter
        assert {name for name, _ in server.asked} <= {"Pull"}

    against(work, ("1", ""), is_exact=True)
