"""Dead letters: the same name, headers and redrive on every URL."""

from typing import Any

import pytest

from penstock.vocabulary.errors import UnknownSubscription, UnknownTopic
from penstock.vocabulary.policy import Retry
from tests.contracts.suites.world import World, first, nothing, scenario, several, until


class DeadLetterSuite:
    @scenario
    async def test_a_rejected_message_is_a_dead_letter_with_its_story(
        self, world: World, topic: str
    ) -> None:
        async with world.client() as client:
            sent = await client.publish(topic, b"x", key="k", headers={"a": "b"})
            async with client.subscribe(topic, "billing", consumer="worker-1") as deliveries:
                (await first(deliveries)).reject("no such customer: größe")
                await deliveries.flush()
                await nothing(deliveries)
            found = await until(lambda: client.dead_letters(topic, "billing"), "the dead letter")
            [dead] = found
            assert (dead.body, dead.key, dead.id) == (b"x", "k", sent.id)
            told = {k: v for k, v in dead.headers.items() if k != "penstock-dead-at"}
            place = str(sent.offset) if sent.offset is not None else sent.position
            assert told == {
                "a": "b",
                "penstock-dead-why": "rejected",
                "penstock-dead-reason": "no such customer: größe",
                "penstock-dead-topic": topic,
                "penstock-dead-subscription": "billing",
                "penstock-dead-partition": "0",
                "penstock-dead-offset": place,
                "penstock-dead-consumer": "worker-1",
                "penstock-dead-attempts": "1",
            }
            assert int(dead.headers["penstock-dead-at"]) > 0

    @scenario
    async def test_a_message_that_fails_too_often_is_a_dead_letter(
        self, world: World, topic: str
    ) -> None:
        async with world.client() as client:
            await client.publish(topic, b"x")
            retry = Retry(first_s=0.05, max_s=0.1, max_attempts=3)
            async with client.subscribe(topic, "billing", retry=retry) as deliveries:
                for attempt in (1, 2, 3):
                    message = await first(deliveries)
                    assert message.attempt == attempt
                    message.nack(reason=f"failure {attempt}")
                await nothing(deliveries)
            found = await until(lambda: client.dead_letters(topic, "billing"), "the dead letter")
            [dead] = found
            assert dead.headers["penstock-dead-why"] == "max_attempts"
            assert dead.headers["penstock-dead-reason"] == "failure 3"
            assert dead.headers["penstock-dead-attempts"] == "3"

    @scenario
    async def test_a_message_nobody_finishes_in_time_is_a_dead_letter_too(
        self, world: World, topic: str
    ) -> None:
        async with world.client() as client:
            await client.publish(topic, b"x")
            retry = Retry(first_s=0.05, max_s=0.1, max_attempts=2)
            options: dict[str, Any] = {"retry": retry, "lease_s": 4, "credit": 1}
            async with client.subscribe(topic, "billing", **options) as deliveries:
                assert (await first(deliveries)).attempt == 1
                assert (await first(deliveries)).attempt == 2
                found = await until(
                    lambda: client.dead_letters(topic, "billing"), "the dead letter"
                )
                assert found[0].headers["penstock-dead-why"] == "max_attempts"
                await nothing(deliveries)

    @scenario
    async def test_dead_letters_go_back_to_their_subscription_only(
        self, world: World, topic: str
    ) -> None:
        async with world.client() as client:
            for name in ("billing", "stock"):
                await client.create_subscription(topic, name)
            sent = [await client.publish(topic, str(number)) for number in range(4)]
            async with client.subscribe(topic, "stock") as deliveries:
                for message in await several(deliveries, 4):
                    message.ack()
            async with client.subscribe(topic, "billing") as deliveries:
                for message in await several(deliveries, 4):
                    message.reject("odd" if int(message.body or b"0") % 2 else "even")
                await deliveries.flush()

                async def buried() -> bool:
                    return len(await client.dead_letters(topic, "billing")) == 4

                await until(buried, "four dead letters")
                redrive = client.redrive
                assert await redrive(topic, "billing", dry_run=True) == 4
                assert await redrive(topic, "billing", id=sent[2].id) == 1
                assert await redrive(topic, "billing", reason_contains="od", limit=1) == 1
                assert await redrive(topic, "billing", rate=1000) == 2
                back = await several(deliveries, 4)
                assert sorted(m.id for m in back) == sorted(receipt.id for receipt in sent)
                assert all(m.headers == {} for m in back)
                for message in back:
                    message.ack()
                await deliveries.flush()
            assert await client.dead_letters(topic, "billing") == []
            async with client.subscribe(topic, "stock") as deliveries:
                await nothing(deliveries)

    @scenario
    async def test_dead_letters_can_be_received_and_removed(self, world: World, topic: str) -> None:
        async with world.client() as client:
            await client.publish_many(topic, [b"0", b"1", b"2"])
            async with client.subscribe(topic, "billing") as deliveries:
                for message in await several(deliveries, 3):
                    message.reject("bad")
                await deliveries.flush()

            async def are_dead() -> bool:
                return len(await client.dead_letters(topic, "billing")) == 3

            await until(are_dead, "three dead letters")
            async with client.subscribe(f"{topic}.dead.billing", "care") as deliveries:
                dead = await first(deliveries)
                assert dead.headers["penstock-dead-reason"] == "bad"
                dead.nack(delay_s=0)
                assert (await first(deliveries)).body in {b"0", b"1", b"2"}
            assert await client.purge_dead(topic, "billing", limit=2, dry_run=True) == 2
            assert await client.purge_dead(topic, "billing", limit=2) == 2
            assert await client.purge_dead(topic, "billing") == 1
            assert await client.dead_letters(topic, "billing") == []

    @scenario
    async def test_dead_letters_of_what_does_not_exist_are_an_error(
        self, world: World, topic: str
    ) -> None:
        async with world.client() as client:
            with pytest.raises(UnknownTopic, match=topic):
                await client.dead_letters(topic, "billing")
            await client.publish(topic, b"x")
            for call in (client.dead_letters, client.redrive, client.purge_dead):
                with pytest.raises(UnknownSubscription, match="billing"):
                    await call(topic, "billing")
