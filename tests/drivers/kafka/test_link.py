"""Kafka's errors in our words, and what becomes of a call of `produce`."""

import asyncio
from concurrent.futures import Future
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._group import ListConsumerGroupsResult

import penstock
from penstock.drivers.foreign.address import parse
from penstock.drivers.kafka.link import NOBODY, Link, Sending, code_of, sdk_log, translated
from penstock.drivers.kafka.records import Record
from penstock.drivers.kafka.settings import settings_of
from penstock.drivers.reasons import UNKNOWN_HOST
from penstock.vocabulary.errors import (
    AccessRefused,
    InvalidName,
    PenstockError,
    StorageError,
    TooLarge,
    Unavailable,
    UnknownTopic,
)
from penstock.vocabulary.policy import SubscriptionPolicy, TopicPolicy
from tests.contracts.suites.world import unique
from tests.drivers.kafka.rig import carrier_of, run
from tests.servers.kafka import Cluster


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (KafkaError.UNKNOWN_TOPIC_OR_PART, UnknownTopic),
        (KafkaError.MSG_SIZE_TOO_LARGE, TooLarge),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, AccessRefused),
        (KafkaError._AUTHENTICATION, AccessRefused),
        (KafkaError.TOPIC_EXCEPTION, InvalidName),
        (KafkaError._ALL_BROKERS_DOWN, Unavailable),
        (KafkaError.NOT_ENOUGH_REPLICAS, Unavailable),
        (KafkaError.CORRUPT_MESSAGE if hasattr(KafkaError, "CORRUPT_MESSAGE") else 2, StorageError),
    ],
)
def test_an_error_has_our_kind_and_says_where(code: int, kind: type[PenstockError]) -> None:
    error = KafkaException(KafkaError(code))
    assert code_of(error) == code
    found = translated(error, "kafka://h:9092")
    assert type(found) is kind
    assert "kafka://h:9092" in str(found)


def test_other_errors_are_errors_of_storage() -> None:
    assert code_of(ValueError()) is None
    assert type(translated(ValueError("x"), "h")) is StorageError


def test_the_loop_is_woken_once_for_many_reports() -> None:
    async def scenario() -> None:
        done = asyncio.Event()
        sending = Sending(3, asyncio.get_running_loop(), done.set)

        class Told:
            def partition(self) -> int:
                return 1

            def offset(self) -> int:
                return 7

        sending.report(2, None, Told())
        sending.report(0, KafkaError(1), None)
        await asyncio.sleep(0)
        assert not done.is_set()
        sending.report(1, None, Told())
        await asyncio.wait_for(done.wait(), 10)
        assert sending.places == [(-1, -1), (1, 7), (1, 7)]
        assert list(sending.errors) == [0]

    asyncio.run(scenario())


def test_records_the_library_does_not_take_are_not_waited_for() -> None:
    async def scenario() -> None:
        told: list[int] = []
        sending = Sending(3, asyncio.get_running_loop(), lambda: told.append(1))
        sending.give_up(1, KafkaError(1))
        await asyncio.sleep(0)
        assert told == []  # the first one is still on its way
        sending.report(0, KafkaError(1), None)
        await asyncio.sleep(0.01)
        assert told == [1]
        assert sorted(sending.errors) == [0, 1, 2]
        nothing = Sending(1, asyncio.get_running_loop(), lambda: told.append(2))
        nothing.give_up(0, KafkaError(1))
        assert told == [1]  # never within the call
        await asyncio.sleep(0)
        assert told == [1, 2]

    asyncio.run(scenario())


def test_a_message_that_is_too_large_is_not_stored(kafka_server: Cluster) -> None:
    async def scenario() -> None:
        carrier = await carrier_of(kafka_server)
        topic = unique("large")
        try:
            await carrier.make_topic(topic, 1, 1, TopicPolicy())
            with pytest.raises(TooLarge, match=topic):
                await carrier.link.produce(topic, [Record(None, bytes(3 << 20), [])])
            assert await carrier.look(topic, 10, None) == []
            places = await carrier.link.produce(topic, [Record(None, b"x", [])])
            assert places == [(0, 0)]
        finally:
            await carrier.close()
            await carrier.close()

    run(scenario())


class HalfDeaf(AdminClient):
    """An administrator for whom a coordinator is away when it is first asked."""

    def __init__(self, cluster: Cluster, error: KafkaError) -> None:
        super().__init__({"bootstrap.servers": cluster.bootstrap})
        self._error = error
        self.asked = 0

    def list_consumer_groups(self, **options: Any) -> Future[Any]:  # type: ignore[override]
        self.asked += 1
        if self.asked > 1:
            return super().list_consumer_groups(**options)
        answer: Future[Any] = Future()
        answer.set_result(ListConsumerGroupsResult([], [KafkaException(self._error)]))
        return answer


def test_groups_are_listed_whole_or_not_at_all(kafka_server: Cluster) -> None:
    async def scenario() -> None:
        topic = unique("orders")
        carrier = await carrier_of(kafka_server)
        try:
            await carrier.put_topic(topic, 1, TopicPolicy())
            await carrier.put_subscription(topic, "work", SubscriptionPolicy(), "earliest")
            deaf = HalfDeaf(kafka_server, KafkaError(KafkaError.COORDINATOR_LOAD_IN_PROGRESS))
            carrier.link._group_admin = deaf
            assert [row.subscription for row in await carrier.list_subscriptions(topic)] == ["work"]
            assert deaf.asked == 2
            carrier.link._group_admin = HalfDeaf(
                kafka_server, KafkaError(KafkaError.CLUSTER_AUTHORIZATION_FAILED)
            )
            with pytest.raises(AccessRefused, match="kafka"):
                await carrier.list_subscriptions(topic)
        finally:
            await carrier.close()

    run(scenario())


def test_failed_connections_are_no_errors_of_the_library(caplog: pytest.LogCaptureFixture) -> None:
    failed = "FAIL [producer.1#producer-1] Connect to ipv4#127.0.0.1:1 failed"
    with caplog.at_level("WARNING", "penstock"):
        sdk_log.error(failed)
        sdk_log.error("PROTOERR [x] Protocol parse failure")
    assert [(r.levelname, r.getMessage()[:8]) for r in caplog.records] == [("ERROR", "PROTOERR")]
    caplog.clear()
    with caplog.at_level("INFO", "penstock"):
        sdk_log.error(failed)
    assert [(r.levelname, r.getMessage()) for r in caplog.records] == [("INFO", failed)]


def test_a_topic_that_kafka_keeps_for_itself_is_named(kafka_server: Cluster) -> None:
    async def scenario() -> None:
        async with penstock.connect(f"kafka://{kafka_server.bootstrap}?topics=1:1") as client:
            await client.create_subscription(unique("t"), "one")  # makes the topic of groups
            with pytest.raises(InvalidName, match=r"'__consumer_offsets'.*keeps the topic for"):
                await client.publish("__consumer_offsets", b"x")

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("code", "said", "why"),
    [
        (KafkaError._RESOLVE, "h:9092/bootstrap: Failed to resolve 'h:9092'", UNKNOWN_HOST),
        (KafkaError._TRANSPORT, "h:9: Connect to ipv4#::1 failed: Connection refused (after 0ms)",
         "connection refused"),
        (KafkaError._TRANSPORT, "h:9/bootstrap: odd", NOBODY),
    ],
)  # fmt: skip
def test_a_cluster_that_never_answered_says_why(code: int, said: str, why: str) -> None:
    async def scenario() -> None:
        link = Link(settings_of(parse("kafka://127.0.0.1:9", 9092, {})))
        try:
            link._heard(KafkaError(code, said))
            link._heard(KafkaError(KafkaError._ALL_BROKERS_DOWN, "1/1 brokers are down"))
            late: Future[None] = Future()
            late.set_exception(KafkaException(KafkaError(KafkaError._TIMED_OUT)))
            with pytest.raises(Unavailable, match=f"kafka://127.0.0.1:9: {why}$"):
                await link.ask(late)
        finally:
            await link.close()

    asyncio.run(scenario())
