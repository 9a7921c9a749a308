"""Letters as entries of a stream."""

import pytest

from penstock.drivers.foreign.envelope import Letter
from penstock.drivers.redis import entries
from penstock.vocabulary.errors import InvalidName


def test_a_letter_comes_back_from_its_entry() -> None:
    letter = Letter(body=b"\xff", id="1", key=b"\x00", headers={"a": "b"})
    fields = [text.encode() for text in entries.flat(letter)]
    found = entries.opened("1700000000123-4", [b"body", b"\xff", *fields], 3)
    assert (found.body, found.id, found.key, found.headers) == (b"\xff", "1", b"\x00", {"a": "b"})
    assert (found.position, found.attempt, found.published_at) == (
        "1700000000123-4", 3, 1_700_000_000_123,
    )  # fmt: skip
    assert found.offset is None


def test_an_entry_of_another_program_is_never_swallowed() -> None:
    found = entries.opened("5-0", {b"order": b"17", b"raw": b"\xff"}, 1)
    assert found.body == '{"order":"17","raw":"ÿ"}'.encode()
    assert found.headers["penstock-foreign"] == "redis-fields"
    assert found.id == "5-0"


def test_the_short_way_for_plain_entries_finds_the_same() -> None:
    for name in (b"p-1-2", b"\xff", "ä".encode()):
        fields = [b"body", b"x", b"penstock-id", name]
        again = [*fields, b"penstock-attempts", b"0"]  # which says nothing
        assert entries.opened("5-1", fields, 2) == entries.opened("5-1", again, 2)


def test_an_answer_is_read_without_what_was_deleted() -> None:
    rows = [[b"s", [[b"1-0", [b"body", b"x"]], [b"2-0", None]]]]
    [letter] = entries.letters_read(rows)
    assert (letter.position, letter.body, letter.attempt) == ("1-0", b"x", 1)
    assert entries.letters_read(None) == []


def test_places() -> None:
    assert entries.place_before((5, 7)) == "5-6"
    assert entries.place_before((5, 0)) == f"4-{(1 << 64) - 1}"
    assert entries.place_before((0, 0)) == "0-0"
    assert entries.pair_of("5-7") == (5, 7)
    assert entries.key_pattern("a*b?[") == "a\\*b\\?\\[*"
    assert "finished" in entries.why_of("gone")
    assert entries.why_of("else") == "else"


def test_names_that_are_ours_are_refused() -> None:
    entries.check_name("orders")
    with pytest.raises(InvalidName, match="keep for themselves"):
        entries.check_name("$penstock:topics")
