"""The cache of recent records: bounded, newest first, messages only."""

from penstock.journal.cache import RECORD_MEMORY, Cache
from penstock.vocabulary.records import TopicDeleted
from tests.journal.store import message


def test_only_messages_are_kept() -> None:
    cache = Cache(10_000)
    first, second = message(0), message(1)
    cache.add([10, 20, 30], [first, TopicDeleted(1), second], 100)
    assert cache.get(10) is first
    assert cache.get(20) is None
    assert cache.get(30) is second


def test_the_oldest_groups_make_room() -> None:
    cache = Cache(2 * (RECORD_MEMORY + 100))
    for place in range(5):
        cache.add([place], [message(place)], 100)
    assert [place for place in range(5) if cache.get(place) is not None] == [3, 4]


def test_a_group_larger_than_the_cache_stays_until_the_next() -> None:
    cache = Cache(1)
    cache.add([1], [message(1)], 1000)
    assert cache.get(1) is not None
    cache.add([2], [message(2)], 1000)
    assert cache.get(1) is None
    assert cache.get(2) is not None


def test_a_cleared_cache_is_empty_and_usable() -> None:
    cache = Cache(1_000)
    cache.add([1], [message(1)], 100)
    cache.clear()
    assert cache.get(1) is None
    cache.add([2], [message(2)], 100)
    assert cache.get(2) is not None
