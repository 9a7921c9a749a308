"""The sides of other brokers do the work of a comparison, against the real servers."""

from collections.abc import Callable
from typing import Any

import pytest

from penstock.cli.bench import load
from penstock.cli.bench.plan import Plan
from penstock.cli.bench.servers import Server
from tests.servers.kafka import Cluster

WORKS = [load.publish, load.consume, load.end_to_end, load.callers, load.one, load.latency]


def _check(work: Any, url: str, server: str) -> None:
    plan = Plan(
        server=url, messages=500, seconds=0.2, batch=100, callers=10, in_flight=0, rate=500.0
    )
    found = work(plan)
    assert found["messages"] >= 500
    assert found.get("lost", 0) == 0
    assert found["about"]["server"].startswith(server)


@pytest.mark.parametrize("work", WORKS, ids=lambda work: work.__name__)
def test_nats(work: Any, nats_server: Server) -> None:
    _check(work, f"nats://{nats_server.address}", "nats-server 2.")


@pytest.mark.parametrize("work", WORKS, ids=lambda work: work.__name__)
def test_redis(work: Any, redis_server: Callable[..., Server]) -> None:
    _check(work, f"redis://{redis_server('everysec').address}", "redis ")


@pytest.mark.parametrize("work", WORKS, ids=lambda work: work.__name__)
def test_kafka(work: Any, kafka_server: Cluster) -> None:
    _check(work, f"kafka://{kafka_server.bootstrap}", "kafka, 1 broker")


def test_redis_says_when_it_syncs(redis_server: Callable[..., Server]) -> None:
    url = f"redis://{redis_server('always').address}"
    found = load.publish(Plan(server=url, messages=100, seconds=0.1, batch=100, in_flight=0))
    assert found["about"]["durability"] == "appendfsync always"
