"""Records: numbers on disk never change their meaning."""

from typing import get_args

import msgspec
import pytest

from penstock.vocabulary import records
from penstock.vocabulary.records import Cause, Outcome, Published, Record, partition_key


def test_outcomes_keep_their_numbers() -> None:
    assert {each.name: each.value for each in Outcome} == {
        "ACKED": 1,
        "DEAD": 2,
        "EXPIRED": 3,
        "DROPPED": 4,
        "REPLACED": 5,
    }


def test_causes_keep_their_numbers() -> None:
    assert {each.name: each.value for each in Cause} == {
        "NACKED": 1,
        "EXPIRED": 2,
        "REJECTED": 3,
        "LOST": 4,
        "LOST_ALONE": 5,
        "UNSTARTED": 6,
        "RELEASED": 7,
        "REVOKED": 8,
    }


def test_a_published_record_ends_after_its_last_message() -> None:
    assert Published(1, 0, 10, 3, b"", 0, 0, 0, b"").end == 13


def test_a_published_record_goes_to_every_subscription_unless_it_says_otherwise() -> None:
    record = Published(1, 0, 0, 1, b"", 0, 0, 0, b"")
    assert (record.kept, record.target) == (None, 0)


@pytest.mark.parametrize("kind", get_args(Record), ids=lambda kind: kind.__name__)
def test_every_record_is_a_frozen_value(kind: type[msgspec.Struct]) -> None:
    assert kind.__struct_config__.frozen


def test_every_struct_of_the_module_is_a_record() -> None:
    structs = {
        each
        for each in vars(records).values()
        if isinstance(each, type)
        and issubclass(each, msgspec.Struct)
        and each.__module__ == records.__name__
    }
    assert structs == set(get_args(Record))


def test_no_two_partitions_share_a_key() -> None:
    keys = {partition_key(topic, part) for topic in range(40) for part in (0, 1, 1023, 65535)}
    assert len(keys) == 160
