import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.client.client import connect
from penstock.drivers.port import Capabilities
from penstock.pipeline.datasets.features import LOOK, TOPIC, Features, FeatureView
from penstock.vocabulary.errors import InvalidArgument, Unavailable
from penstock.vocabulary.message import Durability
from tests.contracts.suites.world import until


def run(steps: Any) -> None:
    async def main() -> None:
        async with connect("memory:") as client:
            await steps(client)

    asyncio.run(main())


async def released(view: FeatureView, only: str) -> bool:
    return view.features.release == (only,)


def test_validation_and_logging_are_on_until_somebody_says_otherwise() -> None:
    async def steps(client: Any) -> None:
        view = FeatureView(client)
        assert await view.read() == Features()
        assert view.version == -1
        assert view.features.has_validation
        assert view.features.has_logging

    run(steps)


def test_a_change_is_seen_by_others_with_its_version() -> None:
    async def steps(client: Any) -> None:
        one, other = FeatureView(client), FeatureView(client)
        await one.change(operational=["logging", "logging"], release=["x"])
        found = await other.read()
        assert (found.operational, found.release) == (("logging",), ("x",))
        assert not found.has_validation
        version = other.version
        await one.change(operational=["logging"])  # no change, no message
        await other.read()
        assert other.version == version
        await one.change(operational=["validation"])
        assert (await other.read()).has_validation
        assert other.version > version

    run(steps)


def test_the_topic_keeps_its_last_message() -> None:
    async def steps(client: Any) -> None:
        view = FeatureView(client)
        for at in range(150):
            await view.publish(Features(release=(str(at),)))
        assert (await FeatureView(client).read()).release == ("149",)
        policy = (await client.describe_topic(TOPIC))["policy"]
        assert policy["keep_last"] == 1

    run(steps)


def test_the_topic_keeps_its_last_message_whoever_made_it() -> None:
    async def steps(client: Any) -> None:
        async with client.subscribe(TOPIC, "watcher") as deliveries:
            await FeatureView(client).change(operational=["logging"])
            message = await deliveries.receive(timeout_s=10.0)
            message.ack()
            await deliveries.flush()
        assert not (await FeatureView(client).read()).has_validation

    run(steps)


def test_what_is_no_list_of_features_changes_nothing() -> None:
    async def steps(client: Any) -> None:
        view = FeatureView(client)
        await view.change(operational=[])
        await client.publish(TOPIC, b"{")
        await client.publish(TOPIC, b'{"release":["caf\xe9"]}')
        await client.publish(TOPIC, b'{"release":' + b"[" * 100_000)
        await client.publish(TOPIC, json={"operational": "validation"})
        assert (await FeatureView(client).read()).operational == ()
        with pytest.raises(InvalidArgument, match="no kind of feature 'other'"):
            await view.change(other=["x"])

    run(steps)


def test_a_broker_without_offsets_is_read_by_position() -> None:
    class Foreign:
        """Answers as a broker does that has positions only."""

        capabilities = Capabilities(scheme="x", durability=Durability.MEMORY)
        bodies = [b'{"release":["old"]}'] * LOOK + [b'{"release":["new"]}']

        async def peek(self, _topic: str, limit: int, *, after: int | str = 0) -> list[Any]:
            assert after == 0 or isinstance(after, str)
            start = int(str(after).removeprefix("p") or 0)
            found = enumerate(self.bodies[start : start + limit], start + 1)
            return [SimpleNamespace(offset=None, position=f"p{at}", body=b) for at, b in found]

    client = Foreign()
    view = FeatureView(client)
    assert asyncio.run(view.read()).release == ("new",)
    assert asyncio.run(view.read()).release == ("new",)
    assert view.version == LOOK
    client.bodies.append(b'{"release":["newer"]}')
    assert asyncio.run(view.read()).release == ("newer",)
    assert view.version == LOOK + 1


def test_a_change_by_somebody_else_is_followed() -> None:
    async def steps(client: Any) -> None:
        view = FeatureView(client)
        await FeatureView(client).change(release=["before"])
        task = asyncio.create_task(view.follow())
        await view.ready()
        assert view.features.release == ("before",)
        await FeatureView(client).change(release=["after"])
        await until(lambda: released(view, "after"), "the change")
        task.cancel()
        await asyncio.wait([task])

    run(steps)


def test_a_broker_that_fails_is_asked_again(caplog: pytest.LogCaptureFixture) -> None:
    class Failing:
        capabilities = Capabilities(scheme="x", durability=Durability.MEMORY)
        asked = 0

        async def peek(self, *_asked: Any, **_options: Any) -> list[Any]:
            self.asked += 1
            if self.asked < 3:
                raise Unavailable("away")
            return [SimpleNamespace(offset=0, body=b'{"release":["x"]}')]

    async def steps() -> None:
        view = FeatureView(Failing())
        task = asyncio.create_task(view.follow())
        await view.ready()
        await until(lambda: released(view, "x"), "an answer")
        task.cancel()
        await asyncio.wait([task])

    with caplog.at_level("WARNING", "penstock.pipeline"):
        asyncio.run(steps())
    assert caplog.text.count("cannot be followed just now: away") == 1
