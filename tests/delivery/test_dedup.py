"""A window remembers exactly the newest ids, up to a number and an age, in little memory."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.delivery import dedup
from penstock.delivery.dedup import Hashes, Numbers, Page, Window, hashes
from penstock.vocabulary import limits

AGE_MS = int(limits.DEDUP_S * 1000)
NOW = 1_700_000_000_000


def places(*numbers: int) -> Numbers:
    return np.array(numbers, np.int64)


def remember(window: Window, at: int, *ids: str) -> None:
    """Stores ids one behind the other; the offset is the number of ids before."""
    window.add(hashes(ids), window.total + np.arange(len(ids)), at)


def find(window: Window, at: int, *ids: str) -> list[int]:
    found: list[int] = window.find(hashes(ids), at).tolist()
    return found


def drawn(seed: int, count: int) -> Hashes:
    random = np.random.default_rng(seed)
    both = random.integers(0, 1 << 64, (2, count), dtype=np.uint64)
    return Hashes(both[0], both[1])


@pytest.mark.parametrize("count", [1, 3, 4, 5, 2_000])
def test_what_was_added_is_found_at_its_place_and_nothing_else(count: int) -> None:
    window = Window()
    remember(window, NOW, *(f"id-{n}" for n in range(count)))
    assert find(window, NOW, *(f"id-{n}" for n in range(count))) == list(range(count))
    assert find(window, NOW, *(f"no-{n}" for n in range(count))) == [-1] * count
    assert [find(window, NOW, f"id-{n}") for n in range(count)] == [[n] for n in range(count)]
    assert len(window) == count


def test_ids_are_told_apart_by_all_128_bits() -> None:
    window = Window()
    low = np.full(20, 7, np.uint64)  # all in one bucket, which has room for 8 of them
    high = np.arange(20, dtype=np.uint64)
    window.add(Hashes(low, high), np.arange(20), NOW)
    assert window.find(Hashes(low, high), NOW).tolist() == list(range(20))
    assert window.find(Hashes(low[:1], high[19:]), NOW).tolist() == [19]
    assert window.find(Hashes(low + np.uint64(64), high), NOW).tolist() == [-1] * 20
    assert window.find(Hashes(low, high + np.uint64(20)), NOW).tolist() == [-1] * 20


def test_ids_added_one_by_one_share_a_bucket_too() -> None:
    window = Window()
    for number in range(20):
        key = Hashes(np.full(1, 7, np.uint64), np.full(1, number, np.uint64))
        window.add(key, places(number), NOW)
        assert window.find(key, NOW).tolist() == [number]
    low = np.full(20, 7, np.uint64)
    assert window.find(Hashes(low, np.arange(20, dtype=np.uint64)), NOW).tolist() == list(range(20))


def test_an_id_is_forgotten_after_ten_minutes() -> None:
    window = Window()
    remember(window, NOW, "old")
    remember(window, NOW + 5_000, "young")
    assert find(window, NOW + AGE_MS - 1, "old", "young") == [0, 1]
    assert find(window, NOW + AGE_MS, "old", "young") == [-1, 1]
    assert find(window, NOW + AGE_MS + 5_000, "old", "young") == [-1, -1]
    assert (len(window), window.pages) == (0, [])


def test_an_id_is_not_forgotten_early_when_the_clock_goes_back() -> None:
    window = Window()
    remember(window, NOW + 60_000, "a")
    remember(window, NOW, "b")
    assert find(window, NOW + AGE_MS, "a", "b") == [0, 1]


def test_an_id_that_comes_again_after_its_time_is_remembered_anew() -> None:
    window = Window()
    for turn in range(30):
        at = NOW + turn * AGE_MS
        assert find(window, at, "again") == [-1]
        remember(window, at, "again", f"other-{turn}")
        remember(window, at + AGE_MS // 2, f"late-{turn}")  # so that its page is never empty
        assert find(window, at + AGE_MS - 1, "again") == [3 * turn]
        assert find(window, at + AGE_MS - 1, *(["again"] * 9)) == [3 * turn] * 9


def test_only_so_many_ids_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "DEDUP_IDS_MAX", 100)
    window = Window()
    remember(window, NOW, *(f"id-{n}" for n in range(100)))
    assert find(window, NOW, "id-0") == [0]
    remember(window, NOW, "one more")
    assert find(window, NOW, "id-0", "id-1", "one more") == [-1, 1, 100]
    assert len(window) == 100


@given(st.data())
@settings(max_examples=40, deadline=None)
def test_a_window_is_a_dict_that_forgets(data: st.DataObject) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "DEDUP_IDS_MAX", 150)
        patch.setattr(dedup, "PAGE_IDS_MAX", 64)
        window, at = Window(), NOW
        known: dict[str, tuple[int, int, int]] = {}
        for _ in range(data.draw(st.integers(1, 12))):
            at += data.draw(st.sampled_from([0, 1_000, 200_000, 700_000]))
            numbers = data.draw(st.sets(st.integers(0, 200), min_size=1, max_size=60))
            ids = [f"id-{n}" for n in sorted(numbers)]
            expected = [
                place if at - then < AGE_MS and window.total - number <= 150 else -1
                for place, then, number in (known.get(id, (-1, 0, 0)) for id in ids)
            ]
            assert find(window, at, *ids) == expected
            assert [find(window, at, id)[0] for id in ids] == expected
            new = [id for id, place in zip(ids, expected, strict=True) if place < 0]
            for id in new:
                known[id] = (window.total + new.index(id), at, window.total + new.index(id))
            remember(window, at, *new)
            state = window.state(1 << 62)
            assert state is not None
            every = [f"id-{n}" for n in range(201)]
            assert find(Window.restored(state), at, *every) == find(window, at, *every)


def test_many_ids_take_little_memory_and_none_is_lost_when_pages_turn() -> None:
    window, step = Window(), 1_000
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for turn in range(200):
        window.add(drawn(turn, step), np.arange(turn * step, turn * step + step), NOW)
    used = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert len(window) == 200_000
    assert used / len(window) <= 64
    for turn in range(200, 600):
        window.add(drawn(turn, step), np.arange(turn * step, turn * step + step), NOW)
    assert len(window.pages) > 2
    for turn in range(0, 600, 50):
        expected = list(range(turn * step, turn * step + step))
        assert window.find(drawn(turn, step), NOW).tolist() == expected


def test_a_snapshot_holds_what_is_durable_and_when_it_arrived() -> None:
    window = Window()
    remember(window, NOW, "a", "b")
    remember(window, NOW + 60_000, "c", "decided only")
    assert window.state(0) is None
    state = window.state(3)
    assert state is not None
    copy = Window.restored(state)
    assert find(copy, NOW, "a", "b", "c", "decided only") == [0, 1, 2, -1]
    assert find(copy, NOW + AGE_MS, "a", "b", "c") == [-1, -1, 2]


def test_a_page_grows_without_the_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    window = Window()
    for turn in range(100):
        remember(window, NOW + turn * AGE_MS // 4, *(f"{turn}-{n}" for n in range(30)))
    assert sum(page.room for page in window.pages) <= 512
    assert len(window) == 4 * 30


def test_a_page_finds_nothing_older_than_asked() -> None:
    page = Page(64, 10)
    keys = hashes([f"id-{n}" for n in range(10)])
    page.add(keys, np.arange(10))
    found = np.full(10, -1, np.int64)
    page.find(keys, dedup._tags(keys.high)[:, None], 15, found)
    assert found.tolist() == [-1] * 5 + [5, 6, 7, 8, 9]
    assert page.find_one(int(keys.low[4]), int(keys.high[4]), 15) == -1
    assert page.find_one(int(keys.low[5]), int(keys.high[5]), 15) == 5
