"""What a commit remembers of messages finished in any order."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.drivers.kafka.progress import (
    GONE,
    METADATA_BYTES_MAX,
    Progress,
    Range,
    metadata_of,
    remembered,
)


def fresh(offset: int = 0) -> Progress:
    return Progress(remembered(offset, None))


def taken_over(progress: Progress) -> Progress:
    return Progress(remembered(*progress.commit()))


def test_the_floor_is_the_lowest_that_is_not_finished() -> None:
    progress = fresh(10)
    assert [progress.take(offset) for offset in range(10, 15)] == [1] * 5
    assert progress.floor == 10
    progress.finish(11)
    progress.finish(10)
    assert (progress.floor, progress.outstanding) == (12, 3)
    for offset in (12, 13, 14):
        progress.finish(offset)
    assert (progress.floor, progress.next) == (15, 15)


def test_another_consumer_gets_what_is_left_and_knows_how_often_it_was_out() -> None:
    progress = fresh()
    for offset in range(6):
        progress.take(offset)
    for offset in (1, 3, 4):
        progress.finish(offset)
    assert progress.hand_again(2) == 2
    progress.spare(5)
    other = taken_over(progress)
    assert other.floor == 0
    assert [other.take(offset) for offset in range(8)] == [2, 0, 3, 0, 0, 1, 1, 1]


def test_what_kafka_lost_meanwhile_does_not_hold_the_floor() -> None:
    progress = fresh()
    for offset in range(4):
        progress.take(offset)
    other = taken_over(progress)
    assert other.take(2) == 2, "retention removed 0 and 1"
    assert other.floor == 2
    other.finish(2)
    assert other.take(7) == 1
    assert other.floor == 7


def test_a_consumer_that_died_leaves_doubt() -> None:
    progress = fresh()
    progress.take(0)
    assert Progress(remembered(*progress.commit())).is_doubtful
    assert not Progress(remembered(*progress.commit(is_clean=True))).is_doubtful
    assert not fresh().is_doubtful


def test_a_commit_may_be_made_as_if_some_were_finished() -> None:
    progress = fresh()
    for offset in range(3):
        progress.take(offset)
    offset, metadata = progress.commit(without={0, 1})
    assert (offset, remembered(offset, metadata).ranges) == (2, [Range(2, 3, 1)])
    assert progress.floor == 0


def test_the_policy_travels_along() -> None:
    said = metadata_of(5, 5, (), {"lease_s": 5.0}, is_clean=True)
    told = remembered(5, said)
    assert (told.policy, told.floor, told.end, told.is_clean) == ({"lease_s": 5.0}, 5, 5, True)


@pytest.mark.parametrize(
    "metadata", [None, "", "of another program", "{", "{}", '{"v":2}', '{"v":1,"o":"x"}', "[]"]
)
def test_what_others_commit_is_an_offset(metadata: str | None) -> None:
    told = remembered(7, metadata)
    assert (told.floor, told.end, told.ranges, told.is_gone) == (7, 7, [], False)


def test_a_deleted_subscription_is_known() -> None:
    assert remembered(7, GONE).is_gone


@given(
    st.integers(0, 1 << 40),
    st.dictionaries(st.integers(0, 3_000), st.integers(1, 5), max_size=300),
)
def test_a_commit_tells_everything(base: int, out: dict[int, int]) -> None:
    progress = fresh(base)
    for offset in range(3_001):
        progress.take(base + offset)
        if offset not in out:
            progress.finish(base + offset)
    for offset, times in out.items():
        for _ in range(times - 1):
            progress.hand_again(base + offset)
    offset, metadata = progress.commit()
    assert len(metadata) <= METADATA_BYTES_MAX
    told = remembered(offset, metadata)
    assert (told.end, told.outstanding) == (base + 3_001, len(out))
    listed = {o - base: r.times for r in told.ranges for o in range(r.start, r.end)}
    assert listed == out


def test_what_does_not_fit_counts_as_never_handed_out() -> None:
    progress = fresh()
    for offset in range(200_000):
        progress.take(offset)
        if hash((offset, "x")) % 7:
            progress.finish(offset)
    assert progress.is_crowded()
    offset, metadata = progress.commit()
    assert len(metadata) <= METADATA_BYTES_MAX
    told = remembered(offset, metadata)
    assert told.end < 200_000
    lost = [o for o in range(told.end, 200_000) if progress.is_out(o)]
    assert told.outstanding + len(lost) == progress.outstanding


def test_few_ranges_are_no_crowd() -> None:
    progress = fresh()
    for offset in range(5_000):
        progress.take(offset)
    assert not progress.is_crowded()
