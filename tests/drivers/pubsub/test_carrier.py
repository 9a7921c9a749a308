"""What is special about Pub/Sub, on the server its Go client tests itself with."""

import asyncio
import time
from contextlib import suppress
from typing import Any

import pytest

import penstock
from penstock.cli.bench.servers import Server
from penstock.drivers.pubsub import feed
from penstock.drivers.pubsub import names as ids
from penstock.drivers.pubsub.carrier import PubSubCarrier, check_start
from penstock.vocabulary.errors import (
    AccessRefused,
    InvalidArgument,
    PenstockError,
    Unavailable,
    Unsupported,
)
from penstock.vocabulary.message import Durability
from tests.contracts.soak import Soak
from tests.contracts.suites.world import (
    PATIENCE_S,
    first,
    nobody,
    nothing,
    seconds_told,
    several,
    unique,
    until,
)
from tests.servers import emulators
from tests.servers.fixtures import starting
from tests.standstill import noticed


def url_of(server: Server, **options: Any) -> str:
    more = "".join(f"&{name}={value}" for name, value in options.items())
    return f"pubsub://project?emulator={server.address}{more}"


def carrier_of(client: penstock.Client) -> PubSubCarrier:
    carrier = client._opened().carrier  # type: ignore[attr-defined]
    assert isinstance(carrier, PubSubCarrier)
    return carrier


def test_a_confirmed_message_is_replicated(pstest: Server) -> None:
    async def scenario() -> None:
        async with penstock.connect(url_of(pstest)) as client:
            receipt = await client.publish(unique("level"), b"x", durability="replicated")
            assert receipt.durability is Durability.REPLICATED
            assert receipt.offset is None
            with pytest.raises(Unsupported, match="'synced' is more than pubsub"):
                await client.publish(unique("level"), b"x", durability="synced")

    asyncio.run(scenario())


def test_the_emulator_variable_is_honoured(pstest: Server, monkeypatch: Any) -> None:
    monkeypatch.setenv("PUBSUB_EMULATOR_HOST", pstest.address)

    async def scenario() -> None:
        async with penstock.connect("pubsub://another-project") as client:
            topic = unique("env")
            await client.publish(topic, b"x")
            assert [m.body for m in await client.peek(topic)] == [b"x"]

    asyncio.run(scenario())


def test_topics_and_subscriptions_are_made_as_decided(pstest: Server) -> None:
    topic = unique("made") + ".a:b"

    async def scenario() -> tuple[Any, Any, Any, list[str]]:
        async with penstock.connect(url_of(pstest, exactly_once="true")) as client:
            await client.create_topic(topic, replay_s=7_200, max_age_s=86_400)
            await client.create_subscription(topic, "billing", lease_s=17)
            await client.subscribe(topic, "screens", kind="multicast", consumer="hall")
            service = carrier_of(client).service
            made = await service.call("GetTopic", topic=service.topic(ids.topic_id(topic)))
            found = []
            for name in ("billing", "screens@hall"):
                path = service.subscription(ids.subscription_id(topic, name))
                found.append(await service.call("GetSubscription", subscription=path))
            dead = ids.topic_id(f"{topic}.dead.billing")
            return made, *found, await service.subscriptions_of(dead)

    made, billing, member, kept = asyncio.run(scenario())
    assert made.message_retention_duration.seconds == 86_400
    assert billing.ack_deadline_seconds == 17
    assert billing.message_retention_duration.seconds == 86_400
    assert billing.enable_exactly_once_delivery
    assert not billing.expiration_policy.ttl.seconds
    assert billing.dead_letter_policy.max_delivery_attempts == 100
    assert member.expiration_policy.ttl.seconds == 7 * 86_400
    assert len(kept) == 1, "a dead-letter topic without a subscription would lose its messages"


def test_records_of_other_programs_are_delivered(pstest: Server) -> None:
    topic = unique("foreign")

    async def scenario() -> None:
        async with penstock.connect(url_of(pstest)) as client:
            service = carrier_of(client).service
            name = service.topic(topic)
            await service.call("CreateTopic", name=name)
            path = service.subscription(f"{topic}-theirs")
            await service.call("CreateSubscription", name=path, topic=name, ack_deadline_seconds=10)
            odd = {"penstock-id": "1", "penstock-expires": "soon"}
            for data, attributes in ((b"plain", {"trace": "1"}), (b"odd", odd)):
                message = {"data": data, "attributes": attributes}
                await service.call("Publish", topic=name, messages=[message])
            await client.publish(topic, b"ours")
            assert [row["subscription"] for row in await client.subscriptions(topic)] == [
                f"{topic}-theirs"
            ]
            async with client.subscribe(topic, f"{topic}-theirs") as deliveries:
                one, two, three = await several(deliveries, 3)
                assert (one.body, one.headers, one.id) == (b"plain", {"trace": "1"}, one.position)
                assert two.body == b"odd"
                assert "penstock-undecoded" in two.headers
                assert three.body == b"ours"

    asyncio.run(scenario())


def test_a_header_that_is_too_long_is_refused_and_its_neighbours_are_not(pstest: Server) -> None:
    topic = unique("headers")

    async def scenario() -> None:
        async with penstock.connect(url_of(pstest)) as client:
            good = [asyncio.create_task(client.publish(topic, b"x")) for _ in range(3)]
            with pytest.raises(PenstockError, match=r"'trace' has 2000 bytes; pubsub"):
                await client.publish(topic, b"y", headers={"trace": "x" * 2_000})
            await asyncio.gather(*good)
            assert {m.body for m in await client.peek(topic)} == {b"x"}

    asyncio.run(scenario())


def test_a_dead_letter_keeps_a_long_reason(pstest: Server) -> None:
    topic, reason = unique("reason"), "because " * 120

    async def scenario() -> None:
        async with penstock.connect(url_of(pstest)) as client:
            await client.publish(topic, b"x")
            async with client.subscribe(topic, "s") as deliveries:
                (await first(deliveries)).reject(reason)
                await deliveries.flush()
            [dead] = await until(lambda: client.dead_letters(topic, "s"), "the dead letter")
            assert dead.headers["penstock-dead-reason"].strip() == reason.strip()

    asyncio.run(scenario())


def test_without_exactly_once_a_late_ack_is_harmless(pstest: Server) -> None:
    topic = unique("late")

    async def scenario() -> None:
        async with penstock.connect(url_of(pstest)) as client:
            await client.publish(topic, b"x")
            retry = {"max_attempts": None}
            async with client.subscribe(topic, "s", lease_s=5, credit=1, retry=retry) as deliveries:
                late = await first(deliveries)
                again = await first(deliveries)
                assert (late.attempt, again.attempt) == (1, 2), "counted here"
                again.extend(30)
                late.ack()
                await deliveries.flush()
                again.ack()
                await deliveries.flush()
                await nothing(deliveries)

    asyncio.run(scenario())


def test_a_pull_that_waits_at_the_server_brings_messages_and_leaves_none(
    pstest: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed, "LAST_PULL_S", PATIENCE_S)  # the emulator ends it much earlier
    topic = unique("waiting")

    async def scenario() -> None:
        async with penstock.connect(url_of(pstest)) as client:
            carrier_of(client).has_waiting_pulls = True
            async with client.subscribe(topic, "s", lease_s=60) as deliveries:
                await client.publish(topic, b"0")
                (await first(deliveries)).ack()
                await asyncio.sleep(0.1)  # the next pull is under way
                await client.publish(topic, b"1")
            async with client.subscribe(topic, "s") as deliveries:
                message = await first(deliveries)
                assert (message.body, message.attempt) == (b"1", 1)
                message.ack()
            assert {m.body for m in await client.peek(topic)} == {b"0", b"1"}

    asyncio.run(scenario())


def test_a_nack_may_wait_minutes(pstest: Server) -> None:
    topic = unique("minutes")

    async def scenario() -> None:
        async with penstock.connect(url_of(pstest)) as client:
            await client.publish_many(topic, [b"0", b"1"])
            async with client.subscribe(topic, "s", lease_s=5) as deliveries:
                one, two = await several(deliveries, 2)
                one.nack(delay_s=300)
                two.nack(delay_s=3_000)
                await deliveries.flush()
                assert await deliveries.receive(timeout_s=7) is None

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("pubsub://project:8085", "without port"),
        ("pubsub://one,two", "one project"),
        ("pubsub://project/topics/x", "without port and path"),
        ("pubsub://me:secret1@project", "no user and password"),
    ],
)
def test_a_wrong_url_is_refused_without_its_credentials(url: str, text: str) -> None:
    with pytest.raises(InvalidArgument, match=text) as raised:
        asyncio.run(_open(url))
    assert "secret1" not in str(raised.value)


def test_missing_and_wrong_credentials_say_what_to_do(monkeypatch: Any, tmp_path: Any) -> None:
    monkeypatch.delenv("PUBSUB_EMULATOR_HOST", raising=False)
    wrong = tmp_path / "key.json"
    wrong.write_text('{"type": "service_account", "private_key": "secret1"}', encoding="utf-8")
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(wrong))
    with pytest.raises(AccessRefused, match="gcloud auth application-default login") as raised:
        asyncio.run(_open("pubsub://project"))
    assert "secret1" not in str(raised.value)


def test_a_server_that_is_not_there_is_named_with_the_time_it_was_tried() -> None:
    began = time.monotonic()
    with (
        nobody() as port,
        noticed() as standstill,
        pytest.raises(Unavailable, match=rf"pubsub://project could not .*{port}") as caught,
    ):
        asyncio.run(_open(f"pubsub://project?emulator=127.0.0.1:{port}&connect_s=1"))
    assert 1 <= seconds_told(str(caught.value)) < 2 + standstill.seconds
    assert time.monotonic() - began < 30


async def _open(url: str) -> None:
    await penstock.connect(url).open()


@pytest.mark.parametrize("start", ["m17", "0:5", True, None])
def test_a_position_is_no_start(start: Any) -> None:
    with pytest.raises(Unsupported, match="not at a position"):
        check_start(start)


def test_an_emulator_that_restarts_forgets_and_the_client_says_so(tmp_path: Any) -> None:
    """Publishers go on by themselves; a consumer is told that its subscription is gone."""
    topic = unique("forgets")

    async def scenario(server: Server) -> None:
        async with penstock.connect(url_of(server)) as client:
            await client.publish(topic, b"before")
            deliveries = await client.subscribe(topic, "s")
            (await first(deliveries)).ack()
            await deliveries.flush()
            server.kill()
            sending = asyncio.create_task(client.publish(topic, b"after"))
            await asyncio.sleep(0.3)
            assert not sending.done(), "it is tried until the server is back"
            await asyncio.to_thread(server.start)
            await asyncio.wait_for(sending, 30)
            with pytest.raises(PenstockError, match="forgot it; subscribe again"):
                await deliveries.receive(timeout_s=30)
            await deliveries.close()
            async with client.subscribe(topic, "s") as again:
                assert (await first(again)).body == b"after"

    with starting(lambda: emulators.pstest(tmp_path / "pstest")) as server:
        asyncio.run(scenario(server))


def test_a_soak_leaves_nothing_unexplained(pstest: Server) -> None:
    topic, total = unique("soak"), 5_000
    soaked = Soak(topic, total)

    async def scenario() -> None:
        async with (
            penstock.connect(url_of(pstest)) as one,
            penstock.connect(url_of(pstest)) as two,
        ):
            await one.create_subscription(topic, "work")
            workers = [asyncio.create_task(soaked.work(client)) for client in (one, one, two)]
            for low in range(0, total, 500):
                await one.publish_many(topic, [str(number) for number in range(low, low + 500)])
            await asyncio.wait_for(asyncio.gather(*workers), 100)
            dead = await one.dead_letters(topic, "work", 1_000)
            assert len(dead) == total // 50
            async with one.subscribe(topic, "work") as deliveries:
                await nothing(deliveries)

    asyncio.run(scenario())
    assert soaked.seen == dict.fromkeys(range(total), 1)
    assert (soaked.outcome["nacked"], soaked.outcome["rejected"]) == (total // 10, total // 50)


class Proxy:
    """A way to a server that can be cut, and goes on."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._writers: list[asyncio.StreamWriter] = []
        self._server: asyncio.Server | None = None
        self.port = 0

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._join, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", self._port)
        self._writers += [writer, back]
        await asyncio.gather(self._copy(reader, back), self._copy(there, writer))

    async def _copy(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await source.read(65_536):
                target.write(data)
                await target.drain()
        target.close()

    async def cut(self) -> None:
        """Nobody gets through from now on."""
        assert self._server is not None
        self._server.close()
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()
        await self._server.wait_closed()


def test_a_connection_that_breaks_is_made_again_without_help(pstest: Server) -> None:
    topic, total = unique("cut"), 300
    got: set[str] = set()

    async def consume(client: penstock.Client) -> None:
        async with client.subscribe(topic, "s", lease_s=2) as deliveries:
            while len(got) < total:
                message = await deliveries.receive(timeout_s=0.2)
                if message is not None:
                    got.add((message.body or b"").decode())
                    message.ack()

    async def scenario() -> None:
        proxy = Proxy(pstest.port)
        await proxy.start()
        async with penstock.connect(f"pubsub://project?emulator=127.0.0.1:{proxy.port}") as client:
            await client.create_subscription(topic, "s", lease_s=2)
            consuming = asyncio.create_task(consume(client))
            for number in range(total):
                if number == total // 2:
                    await proxy.cut()
                    asyncio.get_running_loop().call_later(
                        0.5, lambda: tasks.append(asyncio.create_task(proxy.start()))
                    )
                await client.publish(topic, str(number))
            await asyncio.wait_for(consuming, 60)
        await asyncio.gather(*tasks)
        await proxy.cut()

    tasks: list[asyncio.Task[None]] = []
    asyncio.run(scenario())
    assert got == {str(number) for number in range(total)}
