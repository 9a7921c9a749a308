"""Letters as Kafka records, ours and those of other programs."""

import pytest

from penstock.drivers.foreign.envelope import Letter
from penstock.drivers.kafka.records import (
    dead_record_of,
    is_removal,
    opened,
    record_of,
    removal_of,
)


@pytest.mark.parametrize("body", [b"x", b"", None])
@pytest.mark.parametrize("key", [None, "k", "schlüssel", b"\xff", b"bytes", b""])
def test_a_letter_comes_back(body: bytes | None, key: bytes | str | None) -> None:
    letter = Letter(body=body, id="größe 17", key=key, headers={"a": "b", "ü": "\n"})
    record = record_of(letter)
    assert record.key == (key.encode() if isinstance(key, str) else key)
    assert record.value == body
    back = opened(*record, 2, 17, 5)
    assert (back.body, back.id, back.key, back.headers) == (
        letter.body, letter.id, letter.key, letter.headers,
    )  # fmt: skip
    assert (back.partition, back.offset, back.position, back.published_at) == (2, 17, "2:17", 5)


@pytest.mark.parametrize("body", [b"x", b"", None])
@pytest.mark.parametrize("key", [None, "k", b"\xff"])
def test_a_dead_letter_has_a_key_of_its_own(body: bytes | None, key: bytes | str | None) -> None:
    letter = Letter(
        body=body, id="i", key=key, dedup="dead s 0:1 3", headers={"penstock-dead-why": "rejected"}
    )
    record = dead_record_of(letter)
    assert record.key == b"dead s 0:1 3"
    assert record.value is not None, "an absent value would remove it"
    back = opened(*record, 0, 1, 5)
    assert (back.body, back.key, back.headers) == (body, key, letter.headers)
    assert back.token == record.key
    removal = removal_of(back.token)
    assert is_removal(removal.value, removal.headers)
    assert not is_removal(record.value, record.headers)
    assert not is_removal(None, None)


def test_a_record_of_another_program_is_taken_as_it_is() -> None:
    headers = [("a", b"1"), ("a", b"2"), ("bin", b"\xff\xfe"), ("none", None)]
    letter = opened(b"key", b"body", headers, 1, 2, 3)
    assert letter.headers == {"a": "1", "a#2": "2", "bin": "base64://4=", "none": ""}
    assert (letter.id, letter.key, letter.body) == ("1:2", "key", b"body")
    assert opened(b"\xff", None, None, 0, 0, 0).key == b"\xff"
    assert opened(None, None, None, 0, 0, 0).body is None


def test_a_record_that_makes_no_sense_is_delivered() -> None:
    headers = [("penstock-id", b"x"), ("penstock-expires", b"soon")]
    letter = opened(None, b"raw", headers, 0, 0, 0)
    assert letter.body == b"raw"
    assert "penstock-undecoded" in letter.headers
