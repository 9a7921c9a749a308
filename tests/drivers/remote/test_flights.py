"""Publishes and units under way: their order, their room, their second sending."""

from itertools import count
from typing import Any

import pytest

from penstock.drivers.remote import flights as module
from penstock.drivers.remote.flights import Flight, Flights, UnitFlight
from penstock.vocabulary.errors import Closed
from penstock.vocabulary.limits import UNITS_KEPT
from penstock.vocabulary.units import Part, UnitWish
from penstock.wire import frames
from penstock.wire.frames import RECENT, Type
from penstock.wire.frames_hello import UNIT_MAPS, Welcome
from penstock.wire.frames_publish import decode_unit, read_publish


class Wire:
    """Keeps what is sent."""

    def __init__(self) -> None:
        self.refusals = 0
        self.is_stopping = False
        self.welcome: Welcome | None = None
        self.sent: list[tuple[int, int, int, bytes]] = []

    def send_pieces(self, pieces: list[bytes]) -> None:
        data = b"".join(pieces)
        _, kind, flags, _, number, _ = frames.HEADER.unpack_from(data)
        self.sent.append((kind, number, flags, data[frames.HEADER_BYTES :]))

    @property
    def numbers(self) -> list[int]:
        return [number for _, number, _, _ in self.sent]


def flights() -> Flights:
    numbers = count(1)
    return Flights(lambda: next(numbers))


def one(answers: list[Any], sequence: int = 0, batch: bytes = b"batch") -> Flight:
    return Flight(b"t", batch, (0, 1, bytes(16), 0, sequence), 1, answers.append, 1e12)


def unit(answers: list[Any], sequence: int) -> UnitFlight:
    return UnitFlight(UnitWish(bytes(16), 0, sequence, []), [], answers.append, 1e12)


@pytest.mark.parametrize(("features", "told"), [([UNIT_MAPS], 4), ([], 0)])
def test_a_unit_tells_its_maps_where_the_server_knows_them(features: list[str], told: int) -> None:
    wire: Any = Wire()
    wire.welcome = Welcome(
        version=1, server="s", store=bytes(16), generation=1, wall=0, features=features
    )
    wish = UnitWish(bytes(16), 0, 0, [Part("t", 0, b"batch", 1, 0, 0, 4)])
    flights().add(UnitFlight(wish, [], [].append, 1e12), wire)
    (payload,) = [payload for *_, payload in wire.sent]
    (part,) = decode_unit(memoryview(payload)).wish.parts
    assert part.partitions == told


def test_what_has_a_connection_goes_at_once_and_the_rest_when_there_is_one() -> None:
    wire: Any = Wire()
    under = flights()
    answers: list[Any] = []
    under.add(one(answers, 0), wire)
    under.add(one(answers, 1), None)
    under.add(one(answers, 2), wire)  # behind what waits
    assert wire.numbers == [1, 2, 3]
    found = [read_publish(memoryview(payload)).sequence for *_, payload in wire.sent]
    assert found == [0, 1, 2]
    assert all(flags == RECENT for _, _, flags, _ in wire.sent)


def test_a_new_connection_gets_everything_again_in_order() -> None:
    under = flights()
    answers: list[Any] = []
    first: Any = Wire()
    second: Any = Wire()
    for n in range(5):
        under.add(one(answers, n), first)
    assert under.take(2, first) is not None
    under.hold()
    under.add(one(answers, 5), None)
    under.send_again(second)
    assert second.numbers == [1, 3, 4, 5, 6]
    assert second.sent[0][3] == first.sent[0][3]


def test_what_was_behind_a_refusal_goes_again_and_knows_of_it() -> None:
    wire: Any = Wire()
    under = flights()
    answers: list[Any] = []
    for n in range(3):
        under.add(one(answers, n), wire)
    wire.refusals = 1
    under.take(1, wire)
    under.behind(2, wire)
    under.behind(3, wire)
    under.behind(99, wire)
    assert wire.numbers == [1, 2, 3, 2, 3]
    assert read_publish(memoryview(wire.sent[-1][3])).refusals == 1
    assert list(under.flying) == [2, 3]


def test_units_wait_for_each_other_and_what_is_behind_them_too() -> None:
    wire: Any = Wire()
    under = flights()
    answers: list[Any] = []
    for n in range(UNITS_KEPT + 2):
        under.add(unit(answers, n), wire)
    under.add(one(answers), wire)
    assert len(wire.sent) == UNITS_KEPT
    assert under.take(1, wire) is not None
    assert len(wire.sent) == UNITS_KEPT + 1
    assert under.take(2, wire) is not None
    assert wire.numbers[-2:] == [UNITS_KEPT + 2, UNITS_KEPT + 3]
    assert wire.sent[-1][0] == Type.PUBLISH
    assert decode_unit(memoryview(wire.sent[0][3])).wish.sequence == 0


def test_a_server_that_stops_gets_nothing_new() -> None:
    wire: Any = Wire()
    under = flights()
    answers: list[Any] = []
    wire.is_stopping = True
    under.add(one(answers), wire)
    assert wire.sent == []
    other: Any = Wire()
    under.send_again(other)
    assert other.numbers == [1]


def test_publishers_wait_for_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FLYING_BYTES_MAX", 1000)
    wire: Any = Wire()
    under = flights()
    answers: list[Any] = []
    told: list[Any] = []
    for n in range(3):
        under.add(one(answers, n, bytes(400)), wire)
    assert not under.has_room()
    under.when_room(told.append)
    under.take(1, wire)
    assert told == []
    under.take(2, wire)
    assert told == [None]
    assert under.has_room()


def test_an_old_flight_says_so() -> None:
    wire: Any = Wire()
    flight = one([])
    flight.since = 0.0
    flight.send(wire, 1)
    assert wire.sent[0][2] == 0


def test_the_end_is_told_to_everybody() -> None:
    under = flights()
    answers: list[Any] = []
    told: list[Any] = []
    under.add(one(answers), None)
    under.add(unit(answers, 0), None)
    under.when_room(told.append)
    under.end(Closed("over"))
    assert [type(each) for each in answers + told] == [Closed] * 3
    assert under.has_room()
    assert under.take(1, None) is None
