"""Only a backlog that nothing moves is a stall."""

from typing import Any

import pytest

from penstock.client.stalls import OK, STALLED, UNREACHABLE, Health, Watch, Watched, backlog, joined


def row(waiting: int | None = 0, leased: int = 0, acked: int = 0, **more: Any) -> dict[str, Any]:
    return {
        "waiting": waiting, "leased": leased, "acked": acked, "dead": 0, "delayed": 0,
        "consumers": ["me"], "kind": "shared", **more,
    }  # fmt: skip


def told(watch: Watch, *rows: dict[str, Any] | None) -> list[bool]:
    """What a watch says when it looks once a second."""
    return [watch.told(float(at), each, "me") for at, each in enumerate(rows)]


def test_a_backlog_that_nothing_moves_is_a_stall() -> None:
    watch = Watch(3.0, 0.0)
    assert told(watch, *[row(5)] * 4) == [False, False, False, True]
    assert (watch.state, watch.stalls, watch.waiting) == (STALLED, 1, 5)


def test_it_stays_stalled_until_something_moves_and_is_told_again() -> None:
    watch = Watch(3.0, 0.0)
    assert told(watch, *[row(5)] * 7) == [False, False, False, True, False, False, True]
    assert watch.stalls == 2
    assert not watch.told(7.0, row(4, acked=1), "me")
    assert watch.state == OK


def test_more_messages_are_no_progress() -> None:
    watch = Watch(3.0, 0.0)
    assert told(watch, row(1), row(2), row(3), row(9)) == [False, False, False, True]


@pytest.mark.parametrize(
    "rows",
    [
        [row(0)] * 9,
        [None] * 9,
        [row(None)] * 9,
        [row(5, acked=at) for at in range(9)],
        [row(9 - at) for at in range(9)],
        [row(5, dead=at) for at in range(9)],
        [row(5), row(5), row(0)] * 3,
    ],
    ids=["idle", "unknown", "uncounted", "others work", "fewer", "dead letters", "bursts"],
)
def test_what_is_no_stall(rows: list[dict[str, Any] | None]) -> None:
    watch = Watch(3.0, 0.0)
    assert not any(told(watch, *rows))
    assert watch.state == OK


def test_who_has_messages_in_hand_works() -> None:
    watch = Watch(3.0, 0.0)
    for at in range(9):
        assert not watch.told(at + 0.0, row(5), "me")
        if at % 2:
            watch.busy(at + 0.5)


def test_a_broker_that_cannot_be_reached_is_no_stall_but_no_health_either() -> None:
    watch = Watch(3.0, 0.0)
    assert not watch.told(0.0, row(5), "me")
    watch.cut_off(10.0)
    assert watch.state == UNREACHABLE
    assert not watch.told(11.0, row(5), "me")
    assert watch.state == OK


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (row(3, 2), 5),  # sent to a consumer that has nothing in hand
        (row(3, 2, consumers=["me", "other"]), 3),
        (row(3, 2, delayed=None), 3),  # leased may mean delayed, on brokers that do not tell
        (row(3, 2, kind="key_shared", consumers=["me", "other"]), 0),
        (row(3, 0, kind="key_shared", consumers=["me", "other"]), 3),
        (row(None), 0),
        (None, 0),
    ],
)
def test_what_counts_as_backlog(asked: dict[str, Any] | None, expected: int) -> None:
    assert backlog(asked, "me") == expected


def test_on_a_connection_that_is_not_heard_what_is_leased_counts_too() -> None:
    assert backlog(row(0, 2, delayed=None), "me", is_heard=False) == 2
    watch = Watch(3.0, 0.0)
    assert watch.can_tell is None
    looks = [watch.told(at, row(0, 2, delayed=None), "me", is_heard=False) for at in (0, 1, 2, 3)]
    assert looks == [False, False, False, True]
    watch.told(4.0, row(None), "me")
    assert watch.can_tell is False


def test_health_as_lines_for_prometheus() -> None:
    rows = [Watched('a"b', "s", "me", STALLED, 2, 7), Watched("t", "s", "me", OK, 0, 0)]
    lines = Health(False, 2, rows).metrics().splitlines()
    assert "penstock_client_stalls_total 2" in lines
    assert 'penstock_client_subscription_stalled{topic="a\\"b",subscription="s"} 1' in lines
    assert 'penstock_client_subscription_waiting{topic="a\\"b",subscription="s"} 7' in lines
    assert 'penstock_client_subscription_stalled{topic="t",subscription="s"} 0' in lines


def test_a_least_count_is_a_backlog_too_and_a_place_that_moves_is_progress() -> None:
    watch = Watch(3.0, 0.0)
    behind = row(None, waiting_min=1_000, upto="5-0")
    assert told(watch, *[behind] * 4) == [False, False, False, True]
    assert (watch.can_tell, watch.waiting) == (True, 1_000)
    watch = Watch(3.0, 0.0)
    moving = [row(None, waiting_min=1_000, upto=f"{at}-0") for at in range(9)]
    assert not any(told(watch, *moving))


def test_the_rows_of_a_pattern_are_one_and_only_those_with_a_backlog_count() -> None:
    assert joined([]) is None
    assert joined([row(3)]) == row(3)
    busy = [joined([row(2), row(0, acked=at), row(1, leased=1)]) for at in range(4)]
    assert busy[0] is not None
    assert (busy[0]["waiting"], busy[0]["leased"], busy[0]["acked"]) == (3, 1, 0)
    assert told(Watch(3.0, 0.0), *busy) == [False, False, False, True]
    assert not any(told(Watch(3.0, 0.0), *[joined([row(0), row(0)])] * 9))
    assert not any(told(Watch(3.0, 0.0), *[joined([row(None), row(None)])] * 9))
