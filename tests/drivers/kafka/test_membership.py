"""Assignments of consumers, as Kafka keeps them."""

from struct import pack
from types import SimpleNamespace

import pytest

from penstock.drivers.kafka.membership import client_ids, topics_of


def assignment(**topics: list[int]) -> bytes:
    said = pack(">hi", 1, len(topics))
    for name, partitions in topics.items():
        raw = name.encode()
        said += pack(">h", len(raw)) + raw + pack(">i", len(partitions))
        said += b"".join(pack(">i", each) for each in partitions)
    return said + pack(">i", -1)  # no data of the user's


def test_topics_are_those_of_which_there_are_partitions() -> None:
    assert topics_of(assignment(orders=[0, 2], état=[1], none=[])) == {"orders", "état"}
    assert topics_of(assignment()) == set()


def test_consumers_are_told_by_their_client_ids() -> None:
    one = SimpleNamespace(client_id="one", assignment=assignment(orders=[0]))
    two = SimpleNamespace(client_id="two", assignment=assignment(others=[0]))
    new = SimpleNamespace(client_id="new", assignment=b"")
    group = SimpleNamespace(members=[one, two, new])
    assert client_ids(group, "orders") == ["one"]


@pytest.mark.parametrize(
    "odd",
    [
        b"", b"\0", b"connect: not in this format", pack(">hi", 1, 1), b"\xff" * 64,
        pack(">hihi", 1, 1, 2, 0)[:9], pack(">hih", 1, 1, 2) + b"\xff\xfe" + pack(">ii", 1, 0),
        pack(">hih", 1, 2**31 - 1, 0) + bytes(64), pack(">hih", 1, 1, 1) + b"a" + pack(">i", 9),
    ],
)  # fmt: skip
def test_what_is_no_assignment_names_nothing(odd: bytes) -> None:
    assert topics_of(odd) == set()


def test_a_cut_assignment_names_nothing_or_what_it_has() -> None:
    whole = assignment(orders=[0], others=[1])
    for end in range(len(whole) - 4):
        assert topics_of(whole[:end]) == set()
