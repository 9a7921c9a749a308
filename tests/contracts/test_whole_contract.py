"""The whole contract on our own broker, and that no cell of the matrix is without a test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.drivers.capabilities import ROWS
from tests.contracts.suites.whole import CELLS, DriverSuite
from tests.contracts.suites.world import World, unique


@pytest.fixture
def topic() -> str:
    return unique("orders")


class TestEmbedded(DriverSuite):
    @pytest.fixture(params=["file", "memory"])
    def world(self, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
        if request.param == "file":
            yield World(f"file:{tmp_path / 'store'}")
            return
        # The name keeps it alive from client to client.
        world = World(f"memory:{unique('world')}")
        with world.blocking():
            yield world


def test_every_cell_of_the_matrix_has_a_test() -> None:
    assert CELLS.keys() == ROWS.keys()
    for name in CELLS.values():
        assert hasattr(DriverSuite, name), name
