"""The broker's two clocks."""

import time

from penstock.broker.clock import Clock, SystemClock


def test_the_machines_clocks_are_a_clock() -> None:
    clock: Clock = SystemClock()
    assert clock.now() <= clock.now()


def test_wall_time_is_unix_time_in_milliseconds() -> None:
    before = time.time_ns() // 1_000_000
    found = SystemClock().wall()
    assert before <= found <= time.time_ns() // 1_000_000


def test_monotonic_time_does_not_follow_the_wall() -> None:
    before = time.monotonic_ns() // 1_000_000
    found = SystemClock().now()
    assert before <= found <= time.monotonic_ns() // 1_000_000
