"""The contract over the common half alone: brokers in memory that do much, or nearly nothing."""

from asyncio import get_running_loop
from typing import Any

import pytest

from penstock.client.client import Client
from penstock.drivers.capabilities import MATRIX, ROWS, Cell, Support
from penstock.drivers.foreign.carrier import Traits
from penstock.drivers.foreign.driver import ForeignDriver
from tests.contracts.suites.whole import DriverSuite
from tests.contracts.suites.world import World, unique
from tests.drivers.foreign.memory_carrier import MemoryCarrier, Shop

REFUSED = {"key_shared", "partitions", "priority", "reader", "transactions"}


class ShopWorld(World):
    def __init__(self, traits: Traits, refused: set[str], monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__("shop:")
        column = {row: Cell(Support.REFUSED if row in refused else Support.NATIVE) for row in ROWS}
        monkeypatch.setitem(MATRIX, "shop", column)
        self._traits = traits
        self._refused = refused
        self._shop = Shop()

    def client(self, **options: Any) -> Client:
        async def opened() -> ForeignDriver:
            return ForeignDriver(MemoryCarrier(self._shop, self._traits), get_running_loop(), 5.0)

        return Client(self.url, opened, **options)

    def can(self, row: str) -> bool:
        return row not in self._refused


@pytest.fixture
def topic() -> str:
    return unique("orders")


class TestABrokerThatDoesMuch(DriverSuite):
    @pytest.fixture
    def world(self, monkeypatch: pytest.MonkeyPatch) -> World:
        return ShopWorld(Traits(fetch_s=0.05), REFUSED, monkeypatch)

    test_the_blocking_twin_works: Any = None  # a shop has no URL


class TestABrokerWithShortDelays(DriverSuite):
    @pytest.fixture
    def world(self, monkeypatch: pytest.MonkeyPatch) -> World:
        return ShopWorld(Traits(fetch_s=0.05, is_release_leased=True), REFUSED, monkeypatch)

    test_the_blocking_twin_works: Any = None  # a shop has no URL


class TestABrokerThatOnlyHandsOut(DriverSuite):
    @pytest.fixture
    def world(self, monkeypatch: pytest.MonkeyPatch) -> World:
        traits = Traits(fetch_s=0.05, has_leases=False, has_release=False, counts_attempts=False)
        return ShopWorld(traits, REFUSED | {"lease_moves", "stale_ack"}, monkeypatch)

    test_the_blocking_twin_works: Any = None  # a shop has no URL
    # Such a broker does not count what its consumers began.
    test_what_was_not_begun_goes_back_at_once_and_uncounted: Any = None
    test_of_a_pattern_only_what_was_begun_is_counted: Any = None
