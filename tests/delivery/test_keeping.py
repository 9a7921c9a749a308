"""Publish times, the replay window, and the newest messages of each key."""

import random

import msgspec
import pytest

from penstock.delivery.keeping import ROWS_MAX, Keeping, Key, is_keeping, needs_times, row_ms
from penstock.vocabulary.policy import TopicPolicy

PLAIN = TopicPolicy()
REPLAY = TopicPolicy(replay_s=10)


def test_a_plain_topic_keeps_nothing_more() -> None:
    assert not is_keeping(PLAIN)
    assert not is_keeping(TopicPolicy(retain_s=None))


@pytest.mark.parametrize(
    ("policy", "times"),
    [
        (REPLAY, True),
        (TopicPolicy(max_age_s=1), True),
        (TopicPolicy(keep_last=1), False),
        (TopicPolicy(max_bytes=1), False),
    ],
)
def test_each_rule_needs_its_state(policy: TopicPolicy, *, times: bool) -> None:
    assert is_keeping(policy)
    assert needs_times(policy) is times


def test_messages_of_one_second_share_a_row() -> None:
    keeping = Keeping()
    for offset, at in enumerate([1000, 1400, 1999, 2000]):
        keeping.note_time(offset, offset + 1, at, 1000)
    assert keeping.rows == [[0, 3, 1999], [3, 4, 2000]]


def test_messages_apart_do_not_share_a_row() -> None:
    keeping = Keeping()
    keeping.note_time(0, 1, 1000, 1000)
    keeping.note_time(5, 6, 1000, 1000)
    assert keeping.rows == [[0, 1, 1000], [5, 6, 1000]]


def test_a_clock_that_went_back_makes_nobody_older() -> None:
    keeping = Keeping()
    keeping.note_time(0, 1, 9000, 1000)
    keeping.note_time(1, 2, 2000, 1000)
    assert keeping.rows == [[0, 2, 9000]]


def test_rows_are_as_fine_as_the_shortest_time_asks_for() -> None:
    assert row_ms(REPLAY) == 1000
    assert row_ms(TopicPolicy(replay_s=72 * 3600)) == 72 * 3600 * 1000 // 1024
    assert row_ms(TopicPolicy(replay_s=5, max_age_s=3600)) == 1000
    assert row_ms(TopicPolicy(replay_s=5, max_age_s=7 * 24 * 3600)) == 604_800_000 // 16_384
    assert row_ms(PLAIN) == 1000


def test_the_end_of_what_was_published_by_a_time() -> None:
    keeping = Keeping()
    assert keeping.end_before(10**15) == 0
    for offset in range(3):
        keeping.note_time(offset, offset + 1, offset * 1000, 1000)
    assert [keeping.end_before(limit) for limit in (-1, 0, 999, 1000, 9999)] == [0, 1, 1, 2, 3]


def test_the_first_time_of_the_window() -> None:
    keeping = Keeping()
    assert keeping.next_time() is None
    for offset in range(0, 6, 2):
        keeping.note_time(offset, offset + 2, offset * 1000, 1000)
    found = []
    for window in range(7):
        keeping.window = window
        found.append(keeping.next_time())
    assert found == [0, 0, 2000, 2000, 4000, 4000, None]


def test_the_newest_of_a_key_push_out_the_oldest() -> None:
    keeping = Keeping()
    assert [keeping.note_key(b"a", offset, 2) for offset in range(4)] == [[], [], [0], [1]]
    assert keeping.note_key(b"b", 4, 2) == []
    assert keeping.newest == {b"a": [2, 3], b"b": [4]}


def test_messages_without_a_key_count_as_one_key() -> None:
    keeping = Keeping()
    keeping.note_key(None, 0, 1)
    assert keeping.note_key(b"", 1, 1) == []
    assert keeping.note_key(None, 2, 1) == [0]


def test_trimming_to_none_forgets_every_key() -> None:
    keeping = Keeping()
    for offset in range(4):
        keeping.note_key(b"%d" % (offset % 2), offset, 5)
    assert sorted(keeping.trim(1)) == [0, 1]
    assert sorted(keeping.trim(0)) == [2, 3]
    assert (keeping.newest, keeping.kept) == ({}, {})


def test_what_is_gone_is_not_kept() -> None:
    keeping = Keeping()
    for offset in range(6):
        keeping.note_key(b"%d" % (offset % 2), offset, 2)
    keeping.forget(0, 4)
    assert keeping.newest == {b"0": [4], b"1": [5]}
    keeping.forget(5, 6)
    assert (keeping.newest, keeping.kept) == ({b"0": [4]}, {4: b"0"})


def test_what_is_free_lies_below_the_window_and_between_the_newest() -> None:
    keeping = Keeping()
    keeping.window = 8
    for offset in (2, 5):
        keeping.note_key(b"%d" % offset, offset, 1)
    assert keeping.free([(0, 10)], REPLAY) == [(0, 2), (3, 5), (6, 8)]
    assert keeping.free([(0, 3), (9, 10)], REPLAY) == [(0, 2)]
    assert keeping.free([(0, 10)], PLAIN) == [(0, 2), (3, 5), (6, 10)]


@pytest.mark.parametrize("seed", range(20))
def test_it_keeps_exactly_the_newest_of_each_key(seed: int) -> None:
    dice = random.Random(seed)
    keeping, count = Keeping(), dice.randint(1, 3)
    there: dict[Key, list[int]] = {}
    for offset in range(200):
        key: Key = dice.choice([None, b"", b"a", b"b", b"c"])
        there.setdefault(key, []).append(offset)
        keeping.note_key(key, offset, count)
        there[key] = there[key][-count:]
        if dice.random() < 0.1:
            low = dice.randrange(offset + 1)
            high = low + dice.randrange(20)
            keeping.forget(low, high)
            there = {
                k: left
                for k, found in there.items()
                if (left := [o for o in found if not low <= o < high])
            }
        assert keeping.newest == there
        assert set(keeping.kept) == {o for found in there.values() for o in found}
        taken = {o for low, high in keeping.free([(0, 300)], PLAIN) for o in range(low, high)}
        assert taken == set(range(300)) - set(keeping.kept)


def test_it_survives_a_snapshot() -> None:
    keeping = Keeping()
    assert keeping.state() is None
    keeping.note_time(0, 3, 5000, 1000)
    keeping.window = 2
    for offset, key in enumerate([None, b"a", b"a"]):
        keeping.note_key(key, offset, 2)
    state = msgspec.msgpack.decode(msgspec.msgpack.encode(keeping.state()))
    again = Keeping.restored(state)
    assert (again.rows, again.window) == (keeping.rows, keeping.window)
    assert (again.newest, again.kept) == (keeping.newest, keeping.kept)


def test_many_old_rows_are_joined_and_stay_as_young_as_their_youngest() -> None:
    keeping = Keeping()
    keeping.rows = [[at, at + 1, 1000 * at] for at in range(ROWS_MAX + 3)]
    keeping.join_rows(ROWS_MAX)
    assert len(keeping.rows) == ROWS_MAX // 2 + 3
    assert keeping.rows[:2] == [[0, 2, 1000], [2, 4, 3000]]
    assert keeping.rows[-3:] == [[at, at + 1, 1000 * at] for at in range(ROWS_MAX, ROWS_MAX + 3)]
    keeping.join_rows(ROWS_MAX)
    assert len(keeping.rows) == ROWS_MAX // 2 + 3
