"""The contract over Redis Streams."""

from collections.abc import Callable

import pytest

from penstock.cli.bench.servers import Server
from tests.contracts.suites.whole import DriverSuite
from tests.contracts.suites.world import World, unique


@pytest.fixture
def topic() -> str:
    return unique("orders")


class TestRedis(DriverSuite):
    @pytest.fixture
    def world(self, redis_server: Callable[..., Server]) -> World:
        return World(f"redis://{redis_server().address}")
