"""Broker time: a clock that jumps ahead is not believed until somebody says so."""

import logging

import pytest

from penstock.broker.wall import JUMP_MS_MAX, BrokerTime, alert
from tests.broker.rig import ManualClock

HOUR = 3600


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def time(clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> BrokerTime:
    # The import linter, run as a test in the same process, switches all known loggers off.
    monkeypatch.setattr(logging.getLogger("penstock.broker"), "disabled", False)
    return BrokerTime(clock)


def test_time_that_passes_is_believed(clock: ManualClock, time: BrokerTime) -> None:
    clock.advance(100 * 24 * HOUR)
    assert time.now_wall() == clock.wall()
    assert not time.is_paused


@pytest.mark.parametrize("jump_ms", [JUMP_MS_MAX, 1, -1, -10 * JUMP_MS_MAX])
def test_small_jumps_and_jumps_back_are_believed(
    clock: ManualClock, time: BrokerTime, jump_ms: int
) -> None:
    clock.wall_ms += jump_ms
    assert time.now_wall() == clock.wall()
    assert not time.is_paused


def test_a_clock_that_drifts_is_believed_between_two_looks(
    clock: ManualClock, time: BrokerTime
) -> None:
    for _ in range(5):
        clock.advance(60)
        clock.wall_ms += JUMP_MS_MAX // 2
        time.now_wall()
        assert not time.is_paused


def test_a_jump_over_an_hour_pauses_and_warns_once(
    clock: ManualClock, time: BrokerTime, caplog: pytest.LogCaptureFixture
) -> None:
    clock.wall_ms += JUMP_MS_MAX + 1
    with caplog.at_level(logging.WARNING, "penstock.broker"):
        time.now_wall()
        clock.advance(10)
        time.now_wall()
    assert time.is_paused
    assert [record.getMessage() for record in caplog.records] == [alert(JUMP_MS_MAX + 1)]
    assert time.state() == {"is_paused": True, "jumped_s": (JUMP_MS_MAX + 1) / 1000}
    clock.advance(100 * HOUR)
    time.now_wall()
    assert time.is_paused, "waiting is no confirmation"


def test_a_confirmed_jump_is_believed(clock: ManualClock, time: BrokerTime) -> None:
    clock.wall_ms += 5 * JUMP_MS_MAX
    time.now_wall()
    time.confirm()
    assert not time.is_paused
    assert time.now_wall() == clock.wall()
    assert not time.is_paused
    clock.wall_ms += 2 * JUMP_MS_MAX
    time.now_wall()
    assert time.is_paused, "the next jump is another one"


def test_a_clock_set_right_again_needs_no_confirmation(
    clock: ManualClock, time: BrokerTime
) -> None:
    clock.wall_ms += 5 * JUMP_MS_MAX
    time.now_wall()
    clock.advance(60)
    clock.wall_ms -= 5 * JUMP_MS_MAX
    time.now_wall()
    assert not time.is_paused
    assert time.state() == {"is_paused": False, "jumped_s": 0.0}
