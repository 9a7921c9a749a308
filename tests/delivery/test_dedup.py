"""A window remembers exactly the newest ids, up to a number and an age, in little memory."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import msgpack

from penstock.delivery import dedup
from penstock.delivery.dedup import Hashes, Numbers, Page, Window, hashes, hashes_in
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


def test_pages_are_marked_while_there_are_several(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dedup, "PAGE_IDS_MAX", 64)
    window = Window()
    for turn in range(12):  # more pages than there are bits for marks
        at = NOW + turn * 1_000
        remember(window, at, *(f"{turn}-{n}" for n in range(60)))
        every = [f"{old}-{n}" for old in range(turn + 1) for n in range(60)]
        assert find(window, at, *every) == list(range(60 * (turn + 1)))
        assert find(window, at, *(f"no-{n}" for n in range(200))) == [-1] * 200
    assert [page.bit for page in window.pages].count(0) == 4
    later = NOW + AGE_MS + 10_000  # what is left is one page, then none
    assert find(window, later, *(f"11-{n}" for n in range(60))) == list(range(660, 720))
    assert [page.bit for page in window.pages] == [0]
    assert find(window, later + 1_000, *(f"11-{n}" for n in range(60))) == [-1] * 60
    remember(window, later + 1_000, "new")
    assert find(window, later + 1_000, "new", *["11-1"] * 9) == [720] + [-1] * 9


def test_an_id_whose_bucket_was_full_is_found_among_several_pages(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(dedup, "PAGE_IDS_MAX", 64)
    window, high = Window(), np.arange(40, dtype=np.uint64)
    full = Hashes(np.full(40, 7, np.uint64), high)  # all in one bucket, which has room for 8
    window.add(full, np.arange(40), NOW)
    window.add(drawn(1, 40), np.arange(40, 80), NOW)
    assert len(window.pages) == 2
    assert window.find(full, NOW).tolist() == list(range(40))
    assert window.find(Hashes(full.low, high + np.uint64(40)), NOW).tolist() == [-1] * 40


@given(
    st.lists(st.text(st.characters(codec="ascii"), min_size=3, max_size=3), min_size=1)
    | st.lists(st.none() | st.text(st.characters(codec="utf-8"), max_size=3), max_size=20)
)
def test_a_column_is_hashed_as_its_ids_are_or_not_at_all(ids: list[str | None]) -> None:
    found = hashes_in(memoryview(msgpack.encode(ids)), len(ids))
    texts = [id for id in ids if id is not None]
    is_alike = len(set(map(len, texts))) == 1 and "".join(texts).isascii() and any(texts)
    assert (found is not None) == (is_alike and len(texts) == len(ids))
    if found is not None:
        assert [half.tolist() for half in found] == [half.tolist() for half in hashes(texts)]


@pytest.mark.parametrize("count", [1, 15, 16, 1_000, 65_536])
@pytest.mark.parametrize("length", [1, 31, 32, 36, 255])
def test_a_column_may_have_any_count_and_any_short_length(count: int, length: int) -> None:
    ids = [f"{n % 10}" * length for n in range(count)]
    found = hashes_in(memoryview(msgpack.encode(ids)), count)
    assert found is not None
    assert found.low.tolist()[-20:] == hashes(ids[-20:]).low.tolist()


@pytest.mark.parametrize(
    ("column", "count"),
    [
        (b"", 1),
        (b"\x90", 0),
        (b"\x91", 1),
        (b"\x91\xa0", 1),
        (b"\x91\xc0", 1),
        (b"\x91\xd9", 1),
        (b"\x92\xa1a\xa1b", 1),
        (b"\x92\xa1a", 2),
        (b"\x92\xa1a\xa1b\xc0", 2),
        (b"\x92\xa1a\x01b", 2),
        (b"\x92\xa2ab\xa1ab", 2),
        (b"\x92\xd9\x01a\xd9\x02b", 2),
        (b"\x91\xa1\x80", 1),
        (b"\x91\xc4\x01a", 1),
        (msgpack.encode(["x" * 256]), 1),
    ],
)
def test_a_column_of_anything_else_is_left_to_be_decoded(column: bytes, count: int) -> None:
    assert hashes_in(memoryview(column), count) is None


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
    page.find(keys, 15, found)
    assert found.tolist() == [-1] * 5 + [5, 6, 7, 8, 9]
    assert page.find_one(int(keys.low[4]), int(keys.high[4]), 15) == -1
    assert page.find_one(int(keys.low[5]), int(keys.high[5]), 15) == 5
