"""A proof reads both sides; it takes nothing from the target and leaves nothing behind."""

import asyncio
from typing import Any

import pytest

import penstock
from penstock.client.bridging import Wanted, bridge
from penstock.vocabulary.message import Message
from tests.client.bridging.world import contents, filled, some


async def spoiled(name: str, spoil: Any) -> Any:
    """Copies ten messages, lets somebody spoil the target, and verifies."""
    source, target = f"memory:{name}", f"memory:{name}-copy"
    async with filled(source, "t", some(10)) as origin, penstock.connect(target) as goal:
        await bridge(source, target, "t")
        await spoil(origin, goal)
        held = len(await contents(goal, "t"))
        found = await bridge(source, target, wanted=Wanted(topic="t", verify=True))
        assert len(await contents(goal, "t")) == held, "looking took something"
        rows = await origin.subscriptions("t")
        assert [row["subscription"] for row in rows] == [found.subscription]
        return found.verified


async def nothing(_origin: Any, _goal: Any) -> None:
    """Nobody spoils anything."""


async def lost(_origin: Any, goal: Any) -> None:
    async with goal.subscribe("t", "thief") as deliveries:
        message = await deliveries.receive(timeout_s=20)
        message.ack()


async def added(_origin: Any, goal: Any) -> None:
    await goal.publish("t", b"of another", id="other")


async def twice(_origin: Any, goal: Any) -> None:
    await bridge(
        "memory:v-twice", "memory:v-twice-copy", wanted=Wanted(topic="t", subscription="b")
    )


@pytest.mark.parametrize(
    ("name", "spoil", "kind"),
    [
        ("v-nothing", nothing, None),
        ("v-lost", lost, "missing"),
        ("v-added", added, None),
        ("v-twice", twice, "repeated"),
    ],
)
def test_what_was_done_to_the_target_is_found(name: str, spoil: Any, kind: str | None) -> None:
    if spoil is twice:
        # A second bridge, of another name, copies once more: its reader stays in the source.
        async def scenario() -> Any:
            source, target = f"memory:{name}", f"memory:{name}-copy"
            async with filled(source, "t", some(10)), penstock.connect(target):
                await bridge(source, target, "t")
                await twice(None, None)
                found = await bridge(source, target, wanted=Wanted(topic="t", verify=True))
                return found.verified
    else:

        async def scenario() -> Any:
            return await spoiled(name, spoil)

    verified = asyncio.run(scenario())
    assert verified.compared == 10
    assert verified.is_equal == (kind is None)
    assert (verified.difference and verified.difference.kind) == kind
    if kind is not None:
        assert verified.difference.source == "0:0"
    assert verified.others == (1 if spoil is added else 0)


def test_a_changed_message_is_named_with_its_fields() -> None:
    async def scenario() -> None:
        source, target = "memory:v-changed", "memory:v-changed-copy"
        async with (
            filled(source, "t", [Message(body=b"right", id="a", key="k")]) as origin,
            penstock.connect(target) as goal,
        ):
            await origin.create_subscription("t", "late", start="latest")
            await goal.publish("t", b"wrong", id="a", key="k", headers={"x": "y"})
            await bridge(source, "memory:v-elsewhere", "t", wanted=Wanted(topic="t"))
            # This one believes that it copied everything, as after a target was restored.
            wanted = Wanted(topic="t", subscription="restored")
            async with penstock.connect("memory:v-gone"):
                await bridge(source, "memory:v-gone", wanted=wanted)
            found = await bridge(
                source, target, wanted=Wanted(topic="t", subscription="restored", verify=True)
            )
            assert found.verified is not None
            assert found.verified.changed == 1
            difference = found.verified.difference
            assert difference is not None
            assert (difference.kind, difference.id, difference.source) == ("changed", "a", "0:0")
            assert difference.fields == ["headers", "body", "published_at"]

    asyncio.run(scenario())


def test_a_reader_that_a_killed_proof_left_is_removed_by_the_next_bridge() -> None:
    async def scenario() -> None:
        source, target = "memory:v-left", "memory:v-left-copy"
        async with filled(source, "t", some(3)) as origin, penstock.connect(target):
            found = await bridge(source, target, "t")
            left = f"{found.subscription}.verify"
            await origin.reader("t", left, owner="bridge-verify/killed")
            await bridge(source, target, "t")
            rows = await origin.subscriptions("t")
            assert left not in {row["subscription"] for row in rows}

    asyncio.run(scenario())


def test_a_source_that_holds_nothing_any_more_is_said_so() -> None:
    async def scenario() -> None:
        async with (
            penstock.connect("memory:v-empty") as origin,
            penstock.connect("memory:v-empty-copy"),
        ):
            await origin.publish("t", b"x")
            await bridge("memory:v-empty", "memory:v-empty-copy", "t")
            found = await bridge(
                "memory:v-empty", "memory:v-empty-copy", wanted=Wanted(topic="t", verify=True)
            )
            assert found.verified is not None
            assert (found.verified.is_equal, found.verified.compared) == (True, 0)

    asyncio.run(scenario())
