"""Letters as MQTT publishes, and back."""

from typing import Any

import pytest

from penstock.drivers.foreign.envelope import Letter
from penstock.drivers.mqtt.parcels import Incoming, opened, packed
from penstock.vocabulary.errors import Unsupported


def back(packet: Any, *, is_retained: bool = False) -> Letter:
    incoming = Incoming(
        packet.topic, packet.body, packet.qos, 1, False, is_retained, packet.headers or {}
    )
    return opened(incoming, 5_000)


def test_a_letter_comes_back_as_it_was() -> None:
    letter = Letter(body=None, id="i", key=b"\xff", headers={"größe": "ü", "a": "b"},
                    expires_at=9_500)  # fmt: skip
    [packet] = packed("t", [letter], 5, 1, 8_000, is_retained=False)
    assert (packet.body, packet.qos, packet.expires_s) == (b"", 1, 2)
    found = back(packet)
    assert (found.body, found.id, found.key) == (None, "i", b"\xff")
    assert (found.headers, found.expires_at, found.published_at) == (letter.headers, 9_500, 8_000)
    assert found.position == "i"


def test_what_is_nearly_over_has_a_second_left() -> None:
    [packet] = packed("t", [Letter(body=b"", id="i", expires_at=10)], 5, 1, 9_000, is_retained=True)
    assert (packet.expires_s, packet.is_retained) == (1, True)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"is_given": True}, "an id"),
        ({"headers": {"a": "b"}}, "headers"),
        ({"key": "k"}, "a key"),
        ({"body": None}, "an absent body"),
        ({"expires_at": 5}, "expires_at"),
        ({"target": "billing"}, "redrive to one subscription"),
    ],
)
def test_version_3_refuses_what_is_no_body(fields: dict[str, Any], said: str) -> None:
    plain = Letter(body=b"x", id="i")
    [packet] = packed("t", [plain], 4, 2, 1, is_retained=False)
    assert (packet.body, packet.qos, packet.headers) == (b"x", 2, None)
    letter = Letter(**{"body": b"x", "id": "i", **fields})
    with pytest.raises(Unsupported, match=f"{said}: not available on mqtt: URLs with version=3"):
        packed("t", [plain, letter], 4, 1, 1, is_retained=False)


def test_a_given_id_travels() -> None:
    letter = Letter(body=b"x", id="i", is_given=True, published_at=7)
    [packet] = packed("t", [letter], 5, 1, 1, is_retained=False)
    assert (back(packet).id, back(packet).published_at) == ("i", 7)


def test_messages_of_other_programs_are_taken_as_they_are() -> None:
    one = opened(Incoming("t", b"x", 0, 0, False, False, {"trace": "1"}), 7)
    two = opened(Incoming("t", b"x", 0, 0, False, True, {}), 7)
    assert (one.body, one.headers, one.published_at) == (b"x", {"trace": "1"}, 7)
    assert two.headers == {"mqtt-retained": "true"}
    assert one.id != two.id
    odd = {"penstock-id": "1", "penstock-expires": "soon"}
    three = opened(Incoming("t", b"x", 0, 0, False, False, odd), 7)
    assert "penstock-undecoded" in three.headers
