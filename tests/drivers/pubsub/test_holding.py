"""One message of a key at a time; what waits behind it goes with it."""

import pytest

from penstock.drivers.foreign.envelope import Letter
from penstock.drivers.pubsub.holding import Hold, Lines, whole_seconds


def letter(number: int, key: str, until: float = 100.0) -> Letter:
    made = Letter(body=b"", id=str(number))
    made.token = Hold(f"ack-{number}", key, until)
    return made


def ids(letters: list[Letter]) -> list[int]:
    return [int(each.id) for each in letters]


@pytest.mark.parametrize(("lease_s", "expected"), [(0.1, 1), (1.0, 1), (1.2, 2), (30, 30)])
def test_a_lease_is_whole_seconds(lease_s: float, expected: int) -> None:
    assert whole_seconds(lease_s) == expected


def test_the_next_of_a_key_goes_when_the_first_is_finished() -> None:
    lines = Lines()
    one, two, three, other, free = (
        letter(number, key) for number, key in enumerate(["a", "a", "a", "b", ""])
    )
    assert ids(lines.admit([one, two, three, other, free])) == [0, 3, 4]
    assert not lines.finished([free])
    assert lines.finished([one])
    assert lines.take(50.0) == ([two], [])
    assert lines.take(50.0) == ([], [])
    lines.finished([two])
    assert lines.take(50.0) == ([three], [])
    lines.finished([three, other])
    assert ids(lines.admit([letter(9, "a"), letter(10, "b")])) == [9, 10]


def test_a_line_goes_back_with_its_first() -> None:
    lines = Lines()
    one, two, three = (letter(number, "a") for number in range(3))
    lines.admit([one, two, three])
    assert lines.returned([one]) == [two, three]
    assert lines.admit([one]) == [one]


def test_what_waited_too_long_goes_back_with_its_line() -> None:
    lines = Lines()
    one, two, three = (letter(number, "a", until=10.0) for number in range(3))
    lines.admit([one, two, three])
    lines.finished([one])
    assert lines.take(20.0) == ([], [two, three])
    assert lines.admit([two]) == [two]


def test_everything_that_waits_can_be_had() -> None:
    lines = Lines()
    letters = [letter(number, key) for number, key in enumerate(["a", "a", "b", "b", "b"])]
    lines.admit(letters)
    lines.finished(letters[:1])
    assert sorted(ids(lines.clear())) == [1, 3, 4]
    assert lines.clear() == []
