import pytest

from penstock.cli.bench import loopback


def test_a_round_trip_takes_a_moment() -> None:
    rate, times = loopback.limit(0.05, size=10_000)
    assert rate > 0
    assert 0 < times.p50 <= times.worst


def test_the_other_process_ends_with_the_measurement() -> None:
    with loopback.echoing() as trip:
        trip()
    with pytest.raises(OSError, match=r"."):
        trip()
