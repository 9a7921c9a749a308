"""Traits: what is known of messages without reading them."""

from array import array

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from penstock.batch import encode_many
from penstock.delivery.ranges import RangeSet
from penstock.delivery.traits import CHUNK_COUNT_MAX, NEVER, Traits, is_plain, traits_of
from penstock.vocabulary.message import Message
from penstock.vocabulary.records import Published


def published(messages: list[Message | bytes], kept: tuple[int, ...] | None = None) -> Published:
    count = len(messages) if kept is None else len(kept)
    return Published(1, 0, 10, count, bytes(16), 0, 0, 0, encode_many(messages), kept)


def test_only_bodies_are_plain() -> None:
    assert is_plain(encode_many([b"a", b"b"]))
    assert not is_plain(encode_many([Message(body=b"a", key="k")]))
    assert not is_plain(encode_many([Message(priority=3)]))
    assert not is_plain(encode_many([Message(headers={"a": "b"})]))


def test_the_columns_of_a_record_are_those_of_its_kept_messages() -> None:
    messages: list[Message | bytes] = [
        Message(body=b"0", priority=5), Message(body=b"1", deliver_at=2.0),
        Message(body=b"2", expires_at=3.0, priority=-1),
    ]  # fmt: skip
    found = traits_of(published(messages), is_timed=True)
    assert {name: list(column) for name, column in found.items()} == {
        "levels": [5, 0, -1], "due": [0, 2000, 0], "expiry": [0, 0, 3000],
    }  # fmt: skip
    part = traits_of(published(messages, kept=(2,)), is_timed=False)
    assert {name: list(column) for name, column in part.items()} == {"levels": [-1]}


batches = st.lists(
    st.tuples(
        st.integers(0, 5),  # offsets without traits before it
        st.lists(st.integers(-9, 9), min_size=1, max_size=40),
        st.sampled_from(["levels", "due", "hashes", "expiry"]),
    ),
    max_size=12,
)


@given(batches, st.integers(0, 60), st.integers(0, 300))
def test_traits_are_found_again_wherever_they_were_put(
    rows: list[tuple[int, list[int], str]], start: int, length: int
) -> None:
    traits, model = Traits(), {}
    base = 0
    for gap, values, name in rows:
        base += gap
        numbers = values if name == "levels" else [abs(value) for value in values]
        letter = {"levels": "h", "hashes": "Q"}.get(name, "q")
        traits.add(base, len(numbers), {name: array(letter, numbers)})
        model.update({(name, base + at): number for at, number in enumerate(numbers)})
        base += len(numbers)
    for again in (traits, Traits.restored(traits.dump())):
        for name in ("levels", "due", "hashes", "expiry"):
            expected = [model.get((name, o), 0) for o in range(start, start + length)]
            assert again.column(name, start, start + length).tolist() == expected
            offsets = np.arange(start, start + length, 3)
            assert again.of(name, offsets).tolist() == expected[::3]
        assert again.counts == traits.counts


def test_single_messages_share_chunks_of_limited_size() -> None:
    traits = Traits()
    for offset in range(CHUNK_COUNT_MAX + 10):
        traits.add(offset, 1, {"levels": array("h", [offset % 10])})
    assert [chunk.count for chunk in traits.chunks] == [CHUNK_COUNT_MAX, 10]
    assert traits.counts["levels"] == 2


def test_a_record_read_twice_is_noted_once() -> None:
    traits = Traits()
    for _ in range(2):
        traits.add(5, 2, {"levels": array("h", [1, 2])})
    assert traits.column("levels", 5, 7).tolist() == [1, 2]
    assert sum(chunk.count for chunk in traits.chunks) == 2


def test_dropped_chunks_are_gone_with_their_counts() -> None:
    traits = Traits()
    traits.add(0, 1, {"expiry": array("q", [7])})
    traits.add(5, 1, {"levels": array("h", [7])})
    assert [chunk.soonest for chunk in traits.chunks] == [7, NEVER]
    assert traits.release(0, 1)
    assert traits.counts == {"hashes": 0, "levels": 1, "due": 0, "expiry": 0}
    assert traits.column("expiry", 0, 2).tolist() == [0, 0]
    assert traits.column("levels", 4, 7).tolist() == [0, 7, 0]
    assert not traits.release(4, 9)


def test_after_a_restart_a_chunk_goes_when_the_rest_of_it_is_released() -> None:
    traits = Traits()
    traits.add(10, 4, {"levels": array("h", [1, 2, 3, 4])})
    released = RangeSet(12)
    again = Traits.restored(traits.dump())
    again.count_live(released)
    assert again.release(12, 13)
    assert not again.release(13, 14)


def test_what_waits_again_is_looked_at_again_for_its_end() -> None:
    traits = Traits()
    traits.add(0, 3, {"expiry": array("q", [30, 10, 20])})
    traits.chunks[0].soonest = NEVER
    traits.touch(2, 3)
    assert traits.chunks[0].soonest == 20
    traits.touch(0, 3)
    assert traits.chunks[0].soonest == 10
