"""Marks never say that a page lacks an id which it has, and seldom that it may have another."""

import numpy as np

from penstock.delivery.marks import MARK_BITS, Marks, Numbers


def drawn(seed: int, count: int) -> Numbers:
    return np.random.default_rng(seed).integers(0, 1 << 64, count, dtype=np.uint64)


def test_what_was_marked_is_told_for_its_page_and_little_else() -> None:
    marks = Marks()
    bits = [marks.begin() for _ in range(3)]
    for seed, bit in enumerate(bits):
        marks.add(drawn(seed, 10_000), bit)
    for seed in range(3):
        rows, ends = marks.look(drawn(seed, 10_000), bits)
        parts = np.split(rows, ends[:-1])
        assert ends[-1] == len(rows)
        assert parts[seed].tolist() == list(range(10_000))
        assert all(len(part) < 200 for at, part in enumerate(parts) if at != seed)
    rows, ends = marks.look(drawn(9, 10_000), bits[1:])
    assert len(ends) == 2
    assert len(rows) < 200


def test_ids_with_the_same_first_bits_share_a_mark() -> None:
    marks, step = Marks(), np.uint64(1 << (64 - MARK_BITS))
    bit = marks.begin()
    marks.add(np.array([3 * step, 3 * step + np.uint64(5)]), bit)
    rows, _ = marks.look(np.array([2 * step, 4 * step - np.uint64(1), 4 * step]), [bit])
    assert rows.tolist() == [1]


def test_a_page_that_is_gone_leaves_no_marks_and_its_bit_to_another() -> None:
    marks, low = Marks(), drawn(1, 100)
    first, second = marks.begin(), marks.begin()
    marks.add(low, first)
    marks.add(low[:50], second)
    marks.end(first)
    assert marks.look(low, [first, second])[1] == [0, 50]
    assert marks.begin() == first
    assert marks.look(low, [first])[1] == [0]


def test_more_than_eight_pages_have_no_marks() -> None:
    marks, low = Marks(), drawn(1, 10)
    bits = [marks.begin() for _ in range(9)]
    assert len(set(bits)) == 9
    assert bits[8] == 0
    marks.add(low, bits[8])
    assert marks.look(low, bits[:8])[1] == [0] * 8
    marks.end(bits[8])
    marks.end(bits[7])
    assert marks.begin() == bits[7]
