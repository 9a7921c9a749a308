"""Letters as messages of Pub/Sub, with its limits."""

import pytest

from penstock.drivers.foreign.envelope import Letter
from penstock.drivers.pubsub.records import (
    REQUEST_BYTES_MAX,
    Record,
    chains_of,
    opened,
    ordering_key,
    packed,
    place,
)
from penstock.vocabulary.errors import Unsupported


def letter(**fields: object) -> Letter:
    return Letter(**{"body": b"x", "id": "i", **fields})  # type: ignore[arg-type]


def come_back(sent: Letter) -> Letter:
    record = packed("orders", sent)
    assert all(len(value.encode()) <= 1024 for value in record.attributes.values())
    return opened("m1", record.data, record.attributes, 5_000_000)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"body": None, "key": "k"},
        {"key": bytes(1_024)},
        {"headers": {"größe": "ü" * 400, "line": "a\nb", "": "x"}},
        {"headers": {f"name {n}": "ä" * 200 for n in range(20)}},
        {"headers": {"penstock-dead-reason": "r" * 5_000}},
        {"id": "ü" * 100, "target": "ä", "attempts": 7, "expires_at": 99},
    ],
)
def test_a_letter_comes_back(fields: dict[str, object]) -> None:
    sent = letter(**fields)
    got = come_back(sent)
    for name in ("body", "id", "key", "headers", "target", "attempts", "expires_at"):
        assert getattr(got, name) == getattr(sent, name), name
    assert (got.position, got.published_at) == ("m1", 5)


@pytest.mark.parametrize("value", ["x" * 1_025, "ü" * 513])
def test_a_header_that_is_too_long_is_refused_by_name(value: str) -> None:
    with pytest.raises(Unsupported, match=r"header 'trace' has 102\d bytes; pubsub"):
        packed("orders", letter(headers={"trace": value}))
    with pytest.raises(Unsupported, match=r"the name of header .* 257 bytes"):
        packed("orders", letter(headers={"n" * 257: "x"}))


def test_messages_of_other_programs_are_taken_as_they_are() -> None:
    got = opened("17", b"plain", {"a~1": "b", "a": "c"}, 0)
    assert (got.id, got.body, got.headers) == ("17", b"plain", {"a~1": "b", "a": "c"})
    odd = opened("18", b"odd", {"penstock-id": "1", "penstock-expires": "soon"}, 0)
    assert "penstock-undecoded" in odd.headers


def test_a_dead_letter_that_pubsub_made_tells_its_story() -> None:
    said = {
        "penstock-id": "i",
        "CloudPubSubDeadLetterSourceDeliveryCount": "100",
        "CloudPubSubDeadLetterSourceSubscription": "orders~.billing",
    }
    got = opened("m1", b"x", said, 0)
    assert got.headers["penstock-dead-why"] == "max_attempts"
    assert got.headers["penstock-dead-attempts"] == "100"


def test_a_request_has_one_ordering_key_and_an_end() -> None:
    def record(key: str, size: int = 1) -> Record:
        return Record(b"", {}, key, size)

    assert chains_of([record(""), record("a"), record(""), record("a")]) == [[[0, 2]], [[1, 3]]]
    assert [len(group) for group in chains_of([record("")] * 2_500)[0]] == [1_000, 1_000, 500]
    large = [record("", REQUEST_BYTES_MAX - 1)] * 3
    assert chains_of(large) == [[[0], [1], [2]]]
    assert chains_of([]) == []


def test_keys_order() -> None:
    assert (ordering_key(None), ordering_key("k"), ordering_key(b"\xff")) == ("", "k", "/w==")
    assert len(ordering_key(bytes(1_024))) == 16


def test_letters_are_sorted_by_their_publishing() -> None:
    made = [opened(id, b"", {}, at) for id, at in (("m10", 5), ("m9", 5), ("m1", 7))]
    assert [each.position for each in sorted(made, key=place)] == ["m9", "m10", "m1"]
