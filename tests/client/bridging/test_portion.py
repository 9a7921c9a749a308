"""What the target cannot keep is refused by name, never dropped in silence."""

from typing import Any

import pytest

from penstock.batch.encode import Columns
from penstock.client.bridging.portion import Portion, check_without, fit, picked
from penstock.drivers.capabilities import NATS, REDIS
from penstock.drivers.embedded import FILE
from penstock.vocabulary.errors import InvalidArgument, Unsupported

NOW = 1_000_000
NOTHING: frozenset[str] = frozenset()


def portion(**columns: Any) -> Portion:
    whole = Columns(bodies=[b"a", b"bb", None], ids=["x", "y", "z"], attempts=[1, 2, 3], **columns)
    return Portion(1, whole, [7, 8, 12], start=5, end=13)


def test_attempts_are_the_sources_own() -> None:
    found = portion(priorities=[1, 2, 3], deliver_at=[NOW + 5, 0, 0], expires_at=[0, 0, NOW])
    fit(found, FILE, NOTHING, NOW)
    assert found.columns.attempts is None
    assert found.columns.priorities == [1, 2, 3]
    assert found.columns.deliver_at == [NOW + 5, 0, 0]
    assert found.columns.expires_at == [0, 0, NOW]


def test_a_priority_is_refused_by_name_and_left_out_when_asked() -> None:
    with pytest.raises(Unsupported, match=r"message 1:8 has a priority, which nats: URLs"):
        fit(portion(priorities=[0, 5, 0]), NATS, NOTHING, NOW)
    found = portion(priorities=[0, 5, 0])
    fit(found, NATS, check_without(["priority"]), NOW)
    assert found.columns.priorities is None
    fit(portion(priorities=[0, 0, 0]), NATS, NOTHING, NOW)


def test_a_delay_that_is_over_needs_no_keeping() -> None:
    found = portion(deliver_at=[NOW, NOW - 1, 0])
    fit(found, REDIS, NOTHING, NOW)
    assert found.columns.deliver_at is None
    with pytest.raises(Unsupported, match=r"message 1:12 has a delay.*--without delay"):
        fit(portion(deliver_at=[0, 0, NOW + 1]), REDIS, NOTHING, NOW)


def test_a_message_without_a_number_is_named_by_its_id() -> None:
    found = portion(priorities=[0, 5, 0])
    found.numbers = None
    with pytest.raises(Unsupported, match=r"message 'y' has a priority"):
        fit(found, REDIS, NOTHING, NOW)


def test_only_what_can_be_left_out_can_be_left_out() -> None:
    with pytest.raises(InvalidArgument, match="'key' cannot be left out; known: priority, delay"):
        check_without(["key"])


def test_halves_cover_what_the_whole_does() -> None:
    first, second = portion(priorities=[1, 2, 3]).halves()
    assert (first.start, first.end, first.numbers) == (5, 8, [7])
    assert (second.start, second.end, second.numbers) == (8, 13, [8, 12])
    assert second.columns.priorities == [2, 3]
    loose = portion()
    loose.start = loose.end = 0
    assert [each.end for each in loose.halves()] == [0, 0]


def test_a_picked_portion_keeps_its_range() -> None:
    found = picked(portion(), [2])
    assert (found.count, found.size, found.numbers, found.end) == (1, 0, [12], 13)
    assert portion().size == 3
