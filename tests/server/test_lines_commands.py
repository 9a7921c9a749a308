"""Every command of the line protocol, over a real socket."""

import asyncio
import json
from contextlib import closing
from typing import Any

import pytest

from penstock.batch import encode_many
from penstock.broker.broker import Broker
from penstock.broker.mailbox import DIRECT, Pending
from penstock.journal.memory import MemoryDisk
from penstock.server.lines_settings import LinesSettings
from penstock.vocabulary.message import Message
from penstock.vocabulary.policy import SubscriptionPolicy, TopicPolicy
from tests.broker.rig import ManualClock
from tests.server.lines_rig import Talker, listening, run


def publish(broker: Broker, topic: str, *messages: Any) -> None:
    """Publishes as a program does that speaks another protocol."""
    pending = Pending()
    publisher = b"\x01" + topic.encode().ljust(15)[:15]
    sequence = broker.describe_topic(topic)["published"] if topic in broker.state.names else 0
    broker.publish(
        topic, 0, encode_many(messages), len(messages), publisher, 0, sequence, DIRECT, pending
    )
    pending.wait()


def test_the_conversation_of_the_contract() -> None:
    async def scenario() -> None:
        async with (
            listening() as listener,
            await Talker.connect(listener) as alice,
            await Talker.connect(listener) as bob,
        ):
            assert await alice.ask("sub tweets") == "error: topic tweets does not exist"
            assert await alice.ask('pub tweets {"id":"0","priority":1,"msg":"old"}') == "ok 0"
            await alice.sub("tweets")
            await bob.pub("tweets", "1", 3, "tweet 1")
            assert await alice.event() == {
                "topic": "tweets", "id": "1", "priority": 3, "msg": "tweet 1",
            }  # fmt: skip
            assert await alice.ask("ack tweets 1") == "ok 1"
            assert await alice.ask("ack tweets 1") == "error: event with id 1 does not exist"
            unsubscribed = "successfully unsubscribed from topic tweets"
            assert await alice.ask("unsub tweets") == unsubscribed
            again = "error: you are not subscribed to topic tweets"
            assert await alice.ask("unsub tweets") == again
            assert await alice.ask("quit") == "bye"
            assert await alice.line() == ""

    run(scenario)


def test_long_words_mean_the_same() -> None:
    async def scenario() -> None:
        async with listening() as listener, await Talker.connect(listener) as alice:
            assert await alice.ask('PUBLISH t {"id":1,"priority":1,"msg":null}') == "ok 1"
            assert await alice.ask("SUBSCRIBE t") == "successfully subscribed to topic t"
            await alice.pub("t", "2")
            assert (await alice.event())["id"] == "2"
            assert await alice.ask("ACKNOWLEDGE t 2") == "ok 2"
            gone = "successfully unsubscribed from topic t"
            assert await alice.ask("UNSUBSCRIBE t") == gone

    run(scenario)


def test_words_can_be_configured() -> None:
    async def scenario() -> None:
        settings = LinesSettings(commands={"publish": ["SEND"], "help": ["?"]})
        async with (
            listening(settings=settings) as listener,
            await Talker.connect(listener) as alice,
        ):
            assert await alice.ask('SEND t {"id":1}') == "ok 1"
            assert "unknown command: pub" in await alice.ask('pub t {"id":1}')

    run(scenario)


def test_the_highest_priority_comes_first_then_arrival_one_at_a_time() -> None:
    async def scenario() -> None:
        async with (
            listening() as listener,
            await Talker.connect(listener) as alice,
            await Talker.connect(listener) as bob,
        ):
            await bob.pub("t", "old")
            await alice.sub("t")
            for id, priority in (("first", 0), ("a", 1), ("b", 5), ("c", -1), ("d", 5), ("e", 0)):
                await bob.pub("t", id, priority)
            order = []
            for _ in range(6):
                order.append((await alice.event())["id"])
                await alice.silence()
                assert await alice.ask(f"ack t {order[-1]}") == f"ok {order[-1]}"
            assert order == ["first", "b", "d", "a", "e", "c"]

    run(scenario)


def test_an_event_replaces_the_waiting_one_with_its_id() -> None:
    async def scenario() -> None:
        async with (
            listening() as listener,
            await Talker.connect(listener) as alice,
            await Talker.connect(listener) as bob,
        ):
            await bob.pub("t", "old")
            await alice.sub("t")
            await bob.pub("t", "held")
            await bob.pub("t", "x", 1, "before")
            await bob.pub("t", "y", 2)
            await bob.pub("t", "x", 3, "after")
            assert (await alice.event())["id"] == "held"
            alice.say("ack t held")
            assert await alice.line() == "ok held"
            assert await alice.event() == {"topic": "t", "id": "x", "priority": 3, "msg": "after"}
            assert await alice.ask("ack t x") == "ok x"
            assert (await alice.event())["id"] == "y"
            assert await alice.ask("ack t y") == "ok y"
            await alice.silence()

    run(scenario)


def test_a_nack_brings_the_event_again_and_others_go_on_meanwhile() -> None:
    clock = ManualClock()
    broker = Broker.open(MemoryDisk(), clock=clock)

    async def scenario() -> None:
        async with listening(broker) as listener, await Talker.connect(listener) as alice:
            await alice.pub("t", "old")
            await alice.sub("t")
            await alice.pub("t", "1", 9)
            assert (await alice.event())["id"] == "1"
            await alice.pub("t", "2")
            assert await alice.ask("nack t 1") == "ok 1"
            assert (await alice.event())["id"] == "2"
            assert await alice.ask("ack t 1") == "error: event with id 1 does not exist"
            assert await alice.ask("ack t 2") == "ok 2"
            clock.advance(1)
            assert (await alice.event())["id"] == "1"
            assert await alice.ask("ack t 1") == "ok 1"

    with closing(broker):
        run(scenario)


def test_credit_lets_several_events_fly_and_any_of_them_be_acked() -> None:
    async def scenario() -> None:
        async with (
            listening(settings=LinesSettings(credit=3)) as listener,
            await Talker.connect(listener) as alice,
        ):
            await alice.pub("t", "old")
            await alice.sub("t")
            for id in "abcde":
                alice.say(f'pub t {{"id":"{id}"}}')
            lines = [await alice.line() for _ in range(8)]
            assert [line for line in lines if line[0] == "o"] == [f"ok {id}" for id in "abcde"]
            assert {json.loads(line)["id"] for line in lines if line[0] == "{"} == set("abc")
            assert await alice.ask("ack t b") == "ok b"
            assert (await alice.event())["id"] == "d"
            await alice.silence()
            alice.say("ack t a")
            alice.say("ack t c")
            alice.say("ack t d")
            lines = [await alice.line() for _ in range(4)]
            assert [line for line in lines if line[0] == "o"] == ["ok a", "ok c", "ok d"]
            assert [json.loads(line)["id"] for line in lines if line[0] == "{"] == ["e"]

    run(scenario)


def test_an_id_with_spaces_or_marks_can_be_acked_as_it_is_shown() -> None:
    async def scenario() -> None:
        async with listening() as listener, await Talker.connect(listener) as alice:
            await alice.pub("t", "old")
            await alice.sub("t")
            assert await alice.ask(r'pub t {"id":"a b","priority":3}') == "ok a b"
            assert (await alice.event())["id"] == "a b"
            assert await alice.ask("ack t a b") == "ok a b"
            assert await alice.ask(r'pub t {"id":"a\nb\"\u001b"}') == r"ok a\nb\"\u001b"
            assert (await alice.event())["id"] == 'a\nb"\x1b'
            assert await alice.ask(r"ack t a\nb\"\u001b") == r"ok a\nb\"\u001b"

    run(scenario)


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        (Message(body=b'{"a": 1}', id="1"), {"a": 1}),
        (Message(body="text", id="1"), "text"),
        (Message(body=b"\x00\xff", id="1"), {"$base64": "AP8="}),
        (Message(body=None, id="1", key="k"), None),
        (Message(body=b"", id="1"), ""),
        (Message(body=b'{\r\n "a": 1\r\n}', id="1"), {"a": 1}),
    ],
)
def test_a_message_of_another_protocol_is_delivered_as_json_text_or_base64(
    message: Message, shown: Any
) -> None:
    async def scenario() -> None:
        async with listening() as listener, await Talker.connect(listener) as alice:
            await alice.pub("t", "old")
            await alice.sub("t")
            publish(listener.broker, "t", message)
            assert await alice.event() == {"topic": "t", "id": "1", "priority": 0, "msg": shown}
            assert await alice.ask("ack t 1") == "ok 1"

    run(scenario)


def test_a_message_without_an_id_has_the_rendered_one() -> None:
    async def scenario() -> None:
        async with listening() as listener, await Talker.connect(listener) as alice:
            listener.broker.create_topic("t", 1, TopicPolicy())
            await alice.sub("t")
            publish(listener.broker, "t", b"x", b"y")
            first = (await alice.event())["id"]
            assert first.endswith("-0-0")
            assert await alice.ask(f"ack t {first}") == f"ok {first}"
            assert (await alice.event())["id"].endswith("-0-1")

    run(scenario)


def test_explain_names_the_event_and_says_when_it_is_with_you() -> None:
    async def scenario() -> None:
        async with listening() as listener:
            alice = await Talker.connect(listener, "alice")
            bob = await Talker.connect(listener, "bob")
            await alice.pub("t", "0")
            await alice.sub("t")
            for id in ("1", "2"):
                await bob.pub("t", id)
            await alice.event()
            mine = "it is with you: say ack t 1 when you are done, or nack t 1"
            assert await alice.ask("explain t") == f"ok leased: event 1: {mine}"
            later = "it comes when you are done with the one you have: ack t 1"
            assert await alice.ask("explain t 2") == f"ok no-credit: event 2: {later}"
            hers = await bob.ask("explain t 1")
            assert hers.startswith("ok leased: event 1: consumer 'alice' holds it")
            await alice.close()
            await bob.close()

    run(scenario)


def test_topics_stats_peek_and_explain() -> None:
    async def scenario() -> None:
        async with listening() as listener, await Talker.connect(listener) as alice:
            assert await alice.listed("topics") == []
            await alice.pub("tweets", "1", 2, {"a": 1})
            await alice.pub("birds", "2")
            await alice.sub("tweets")
            await alice.pub("tweets", "3")
            await alice.event()
            rows = [json.loads(line) for line in await alice.listed("topics")]
            assert [row["topic"] for row in rows] == ["birds", "tweets"]
            assert len(await alice.listed("topics twe")) == 1
            peeked = [json.loads(line) for line in await alice.listed("peek tweets")]
            assert peeked[0] == {"topic": "tweets", "id": "1", "priority": 2, "msg": {"a": 1}}
            assert len(await alice.listed("peek tweets 1")) == 1
            assert "count must be" in await alice.ask("peek tweets none")
            assert await alice.ask("peek nothing") == "error: topic nothing does not exist"
            broker, own = [json.loads(line) for line in await alice.listed("stats")]
            assert broker["topics"] == 2
            assert own["lines"]["in_flight"] == {"tweets": 1}
            assert (await alice.ask("explain tweets 3")).startswith("ok leased: ")
            assert (await alice.ask("explain birds")).startswith("ok no-subscription: ")
            assert await alice.ask("explain nothing 1") == "error: topic nothing does not exist"

    run(scenario)


def test_help_helps() -> None:
    async def scenario() -> None:
        async with listening() as listener, await Talker.connect(listener) as alice:
            assert any("pub <topic> <json>" in line for line in await alice.listed("help"))
            assert "also written PUBLISH" in await alice.listed("help pub")
            assert "did you mean pub?" in await alice.ask("help pbu")

    run(scenario)


def test_who_you_are_is_said_before_subscribing() -> None:
    async def scenario() -> None:
        async with listening() as listener, await Talker.connect(listener) as alice:
            assert (await alice.ask("id")).startswith("ok ~")
            assert await alice.ask("id alice") == "ok alice"
            assert await alice.ask("id alice") == "ok alice"
            assert await alice.ask("id") == "ok alice"
            await alice.pub("t", "1")
            await alice.sub("t")
            assert "you are subscribed as alice already" in await alice.ask("id bob")
            assert await alice.ask("id alice") == "ok alice"
            for name in ("~x", "a@b", "x" * 200, "a.dead.b", "tab\there", "\u202e"):
                assert (await alice.ask(f"id {name}")).startswith("error: ")

    run(scenario)


def test_subscribing_twice_is_harmless_and_many_topics_are_limited() -> None:
    async def scenario() -> None:
        settings = LinesSettings(subscriptions_max=2)
        async with (
            listening(settings=settings) as listener,
            await Talker.connect(listener) as alice,
        ):
            for topic in "abc":
                await alice.pub(topic, "1")
            await alice.sub("a")
            await alice.sub("a")
            await alice.sub("b")
            assert "2 topics at most" in await alice.ask("sub c")
            await alice.pub("a", "2")
            assert (await alice.event())["topic"] == "a"
            await alice.silence()

    run(scenario)


def test_a_client_that_returns_may_unsubscribe_from_its_queue_without_joining_it() -> None:
    async def scenario() -> None:
        async with listening() as listener:
            alice = await Talker.connect(listener, "alice")
            await alice.pub("t", "0")
            await alice.sub("t")
            await alice.close()
            again = await Talker.connect(listener, "alice")
            await again.pub("t", "1")
            assert await again.ask("unsub t") == "successfully unsubscribed from topic t"
            assert listener.counts()["dropped_events"] == 1
            assert listener.broker.subscriptions("t") == []
            assert await again.ask("unsub t") == "error: you are not subscribed to topic t"
            await again.close()

    run(scenario)


def test_unsub_drops_and_counts_what_waits_and_a_queue_in_use_by_others_stays() -> None:
    async def scenario() -> None:
        async with listening() as listener, await Talker.connect(listener, "alice") as alice:
            await alice.pub("t", "0")
            await alice.sub("t")
            for id in "123":
                await alice.pub("t", id)
                if id == "1":
                    await alice.event()
            assert (await alice.ask("unsub t")).startswith("successfully unsubscribed")
            assert listener.dropped_events == 3
            await alice.sub("t")
            await alice.silence()
            listener.broker.create_subscription("t", "line.alice", SubscriptionPolicy(), None)
            (row,) = listener.broker.subscriptions("t")
            assert row["attached"] == 0

    run(scenario)


def test_an_event_that_was_handed_out_again_is_not_acked() -> None:
    async def scenario() -> None:
        async with listening() as listener, await Talker.connect(listener, "alice") as alice:
            await alice.pub("t", "0")
            await alice.sub("t")
            await alice.pub("t", "1")
            await alice.event()
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(None, listener.broker.seek, "t", "line.alice", "latest")
            assert (await alice.ask("ack t 1")).startswith("error: event with id 1")
            await alice.pub("t", "2")
            assert (await alice.event())["id"] == "2"

    run(scenario)
