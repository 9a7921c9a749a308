"""What messages take: exact by record, however they are cut."""

from random import Random

from penstock.delivery.ranges import RangeSet
from penstock.delivery.sizes import SWEEP_MIN, Sizes

NOTHING = RangeSet()


def filled(*rows: tuple[int, int], start: int = 0) -> Sizes:
    """Records of (count, bytes), one behind the other."""
    sizes = Sizes(start)
    for count, size in rows:
        sizes.add(start, start + count, size, NOTHING)
        start += count
    return sizes


def test_each_record_has_its_own_size() -> None:
    sizes = filled((1, 12), (1, 60_000), (2, 200))
    assert [sizes.between(at, at + 1) for at in range(5)] == [12, 60_000, 100, 100, 0]
    assert sizes.between(0, 4) == 60_212


def test_the_parts_of_a_record_add_up_to_it() -> None:
    sizes = filled((7, 100), start=3)
    assert [sizes.between(at, at + 1) for at in range(3, 10)] == [15, 15, 14, 14, 14, 14, 14]
    for cut in range(3, 11):
        assert sizes.between(3, cut) + sizes.between(cut, 10) == 100


def test_records_of_the_same_size_are_one_run() -> None:
    sizes = filled(*[(1, 50)] * 1000, (10, 500), (1, 50))
    assert len(sizes.ends) == 2
    assert sizes.between(0, 1011) == 50 * 1011
    assert sizes.between(700, 701) == 50
    assert len(filled((3, 100), (3, 100)).ends) == 3, "the rest would move"


def test_what_was_never_stored_takes_nothing() -> None:
    sizes = filled((2, 20))
    sizes.add(100, 101, 10, NOTHING)
    assert sizes.between(2, 100) == 0
    assert sizes.between(0, 101) == 30
    sizes.add(50, 60, 999, NOTHING)
    assert sizes.between(0, 200) == 30, "it is there already"


def test_a_mask_is_the_sum_of_its_messages() -> None:
    random = Random(7)
    for _ in range(200):
        start = random.randrange(100)
        rows = [(random.randrange(1, 20), random.randrange(500)) for _ in range(8)]
        sizes = filled(*rows, start=start)
        base, mask = random.randrange(start + 80), random.getrandbits(random.choice([3, 40, 200]))
        expected = sum(
            sizes.between(base + bit, base + bit + 1)
            for bit in range(mask.bit_length())
            if mask >> bit & 1
        )
        assert sizes.of_mask(base, mask) == expected, (rows, base, mask)


def test_how_far_a_size_reaches() -> None:
    random = Random(8)
    for _ in range(200):
        rows = [(random.randrange(1, 20), random.randrange(500)) for _ in range(8)]
        sizes, end = filled(*rows), sum(count for count, _ in rows)
        start, size = random.randrange(end), random.randrange(1, 1500)
        found = sizes.reach(start, end, size)
        if sizes.between(start, end) <= size:
            assert sizes.between(start, found) == sizes.between(start, end)
        else:
            assert sizes.between(start, found) >= size > sizes.between(start, found - 1)


def test_only_what_is_held_is_remembered() -> None:
    sizes, released = Sizes(0), RangeSet()
    for offset in range(10_000):
        sizes.add(offset, offset + 1, 10 + offset % 7, released)
        if offset not in {0, 5_000}:
            released.add(offset, offset + 1)
    assert len(sizes.ends) <= 2 * SWEEP_MIN
    assert sizes.between(0, 1) == 10
    assert sizes.between(5_000, 5_001) == 10 + 5_000 % 7
    released.add(0, 1)
    sizes.sweep(released)
    assert sizes.between(5_000, 5_001) == 10 + 5_000 % 7


def test_a_restored_one_knows_the_same() -> None:
    sizes = filled((1, 12), (3, 60_000), (7, 200))
    copy = Sizes.restored(sizes.state())
    for each in (sizes, copy):
        each.add(11, 13, 9, NOTHING)
    assert [copy.between(at, at + 1) for at in range(14)] == [
        sizes.between(at, at + 1) for at in range(14)
    ]
