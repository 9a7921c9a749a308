"""Leases, which KubeMQ does not know: its consumer keeps them."""

from pathlib import Path

from tests.drivers.kubemq.environment import double, run_inside

LEASES = "lease_that_ends or comes_too_late or not_begun or back_after_its_delay"


def test_a_consumer_keeps_leases_itself(tmp_path: Path) -> None:
    with double(tmp_path / "kubemq") as server:
        assert run_inside(server, "-k", LEASES).startswith("4 passed")
