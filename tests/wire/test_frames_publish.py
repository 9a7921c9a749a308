"""Publishes, units and their answers on the wire."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.vocabulary.claims import Claim
from penstock.vocabulary.errors import ProtocolError
from penstock.vocabulary.message import Durability
from penstock.vocabulary.stored import Stored
from penstock.vocabulary.units import Part, UnitWish
from penstock.wire import frames_publish as wire
from penstock.wire.frames_publish import TopicMap

PUBLISHER = bytes(range(16))


def published(batch: bytes = b"batch") -> bytes:
    return wire.publish_head("ördér".encode(), 3, 7, PUBLISHER, 11, 13, 4, 2) + batch


def test_a_publish_arrives_as_it_was() -> None:
    got = wire.read_publish(memoryview(published()))
    assert got == ("ördér", 3, b"batch", 7, PUBLISHER, 11, 13, 4, 2)


@pytest.mark.parametrize("count", range(len(published(b""))))
def test_a_publish_that_is_cut_is_refused(count: int) -> None:
    with pytest.raises(ProtocolError):
        wire.read_publish(memoryview(published(b"")[:count]))


def test_numbers_over_their_limit_and_wrong_text_are_refused() -> None:
    for head in (
        wire.publish_head(b"t", 0, 1, PUBLISHER, 1 << 62, 0, 0, 0),
        wire.publish_head(b"t", 0, 1, PUBLISHER, 0, 1 << 63, 0, 0),
        wire.publish_head(b"\xff\xfe", 0, 1, PUBLISHER, 0, 0, 0, 0),
        wire.publish_head(b"t" * 300, 0, 1, PUBLISHER, 0, 0, 0, 0),
    ):
        with pytest.raises(ProtocolError):
            wire.read_publish(memoryview(head))


@pytest.mark.parametrize(
    "stored",
    [
        Stored(0, Durability.SYNCED, is_duplicate=False),
        Stored(None, Durability.MEMORY, is_duplicate=True),
        Stored(1 << 60, Durability.WRITTEN, is_duplicate=False, kept=(0, 2, 5)),
        Stored(4, Durability.REPLICATED, is_duplicate=True, kept=None, places={0: 17, 3: 1}),
    ],
)
def test_an_answer_arrives_as_it_was(stored: Stored) -> None:
    assert wire.decode_stored(wire.encode_stored(stored)) == stored
    assert wire.decode_committed(wire.encode_committed([stored, stored])) == [stored, stored]


def test_a_unit_arrives_as_it_was() -> None:
    parts = [Part("totals", 0, b"one", 1, 5, 0), Part("logs", 2, b"", 3, 5, 9)]
    wish = UnitWish(PUBLISHER, 5, 8, parts)
    claims = [(4, [Claim(9, 1, 2, ((5, 6), (8, 9)))]), (5, [])]
    pieces = wire.encode_unit(wish, claims, 6)
    assert pieces[1:] == [b"one", b""]
    got = wire.decode_unit(memoryview(b"".join(pieces)))
    assert got == (wish, claims, 6)


def test_a_unit_tells_its_maps_to_servers_that_know_them() -> None:
    part = Part("orders", 1, b"one", 1, 0, 0, 8)
    wish = UnitWish(PUBLISHER, 1, 2, [part])
    for has_maps, told in ((True, 8), (False, 0)):
        data = b"".join(wire.encode_unit(wish, [], 0, has_maps=has_maps))
        (found,) = wire.decode_unit(memoryview(data)).wish.parts
        assert (found.partitions, found.batch) == (told, part.batch)


def test_a_unit_with_bytes_too_few_or_too_many_is_refused() -> None:
    wish = UnitWish(PUBLISHER, 0, 0, [Part("t", 0, b"batch", 1, 0, 0)])
    data = b"".join(wire.encode_unit(wish, [], 0))
    for wrong in (data[:-1], data + b"x", data[:3], data[:9]):
        with pytest.raises(ProtocolError):
            wire.decode_unit(memoryview(wrong))
    odd = b"".join(wire.encode_unit(wish._replace(publisher=b"short"), [], 0))
    with pytest.raises(ProtocolError):
        wire.decode_unit(memoryview(odd))
    negative = UnitWish(PUBLISHER, 0, -1, [])
    with pytest.raises(ProtocolError):
        wire.decode_unit(memoryview(b"".join(wire.encode_unit(negative, [], 0))))


def test_maps_arrive_as_they_were() -> None:
    assert wire.decode_map(wire.encode_map(TopicMap("orders", 4))) == ("orders", 4)


@given(st.binary(max_size=300))
def test_invented_payloads_are_refused_or_read_and_nothing_else(data: bytes) -> None:
    for read in (
        lambda: wire.read_publish(memoryview(data)),
        lambda: wire.decode_stored(data),
        lambda: wire.decode_unit(memoryview(data)),
        lambda: wire.decode_committed(data),
        lambda: wire.decode_map(data),
    ):
        try:
            read()
        except ProtocolError:
            continue
