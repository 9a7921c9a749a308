import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.client.client import connect
from penstock.pipeline.datasets.features import LOOK, TOPIC, Features, FeatureView
from penstock.vocabulary.errors import InvalidArgument


def run(steps: Any) -> None:
    async def main() -> None:
        async with connect("memory:") as client:
            await steps(client)

    asyncio.run(main())


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


def test_what_is_no_list_of_features_changes_nothing() -> None:
    async def steps(client: Any) -> None:
        view = FeatureView(client)
        await view.change(operational=[])
        await client.publish(TOPIC, b"{")
        await client.publish(TOPIC, json={"operational": "validation"})
        assert (await FeatureView(client).read()).operational == ()
        with pytest.raises(InvalidArgument, match="no kind of feature 'other'"):
            await view.change(other=["x"])

    run(steps)


def test_a_broker_without_offsets_is_read_to_its_end() -> None:
    class Foreign:
        """Answers as a broker does that has no offsets: all it holds, whatever is asked."""

        async def peek(self, *_asked: Any, **_options: Any) -> list[Any]:
            bodies = [b'{"release":["old"]}'] * (LOOK - 1) + [b'{"release":["new"]}']
            return [SimpleNamespace(offset=None, body=body) for body in bodies]

    view = FeatureView(Foreign())
    assert asyncio.run(view.read()).release == ("new",)
    assert asyncio.run(view.read()).release == ("new",)
    assert view.version == -1
