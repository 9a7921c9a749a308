"""The contract over NATS JetStream."""

import pytest

from penstock.cli.bench.servers import Server
from tests.contracts.suites.whole import DriverSuite
from tests.contracts.suites.world import World, unique


@pytest.fixture
def topic() -> str:
    return unique("orders")


class TestNats(DriverSuite):
    @pytest.fixture
    def world(self, nats_server: Server) -> World:
        return World(f"nats://{nats_server.address}")
