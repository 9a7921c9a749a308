"""Both sources of a pipeline on Spark have everything the port asks for."""

import inspect

import pytest

from penstock.pipeline.spark.feed import Feed
from penstock.pipeline.spark.kafka_feed import KafkaFeed
from penstock.pipeline.spark.penstock_feed import PenstockFeed


@pytest.mark.parametrize("kind", [KafkaFeed, PenstockFeed])
def test_a_feed_takes_what_the_port_gives(kind: type) -> None:
    for name, asked in inspect.getmembers(Feed, inspect.isfunction):
        if not name.startswith("_"):
            has = list(inspect.signature(getattr(kind, name)).parameters)
            assert has == list(inspect.signature(asked).parameters), name
