import json
from dataclasses import dataclass, field
from typing import Any

import pytest

from penstock.cli import message
from penstock.vocabulary.errors import InvalidArgument
from penstock.vocabulary.message import Message


@dataclass
class Received:
    topic: str = "orders"
    partition: int = 0
    offset: int = 17
    position: str = "0:17"
    id: str = "order-1"
    key: Any = None
    headers: dict[str, str] = field(default_factory=dict)
    priority: int = 0
    published_at: float = 1_700_000_000.0
    attempt: int = 1
    body: bytes | None = b"hello"


def test_text_stays_text_in_json() -> None:
    row = message.to_json(Received(key="customer-7"))
    assert (row["body"], row["key"], row["position"]) == ("hello", "customer-7", "0:17")


def test_bytes_that_are_not_text_come_as_base64() -> None:
    row = message.to_json(Received(key=b"\xff", body=b"\x00\xff"))
    assert (row["body_base64"], row["key_base64"]) == ("AP8=", "/w==")
    assert "body" not in row


def test_an_absent_body_is_null() -> None:
    assert message.to_json(Received(body=None))["body"] is None


@pytest.mark.parametrize(
    "received",
    [
        Received(),
        Received(key="k", headers={"a": "b"}),
        Received(body=b"\xff", key=b"\xfe"),
        Received(body=None, key="k"),
        Received(body=b""),
    ],
)
def test_what_was_printed_can_be_published_again(received: Received) -> None:
    again = message.from_json(json.dumps(message.to_json(received)), "line 1")
    body = again.body.encode() if isinstance(again.body, str) else again.body
    assert (body, again.key, again.id) == (received.body, received.key, received.id)
    assert (again.headers or {}) == received.headers


def test_a_json_value_becomes_the_body() -> None:
    assert message.from_json('{"json": {"a": [1, 2]}}', "line 1") == Message(body='{"a":[1,2]}')


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("{", "line 3 is not JSON"),
        ("[1]", "line 3 is not a JSON object"),
        ('{"bdy": "x"}', "line 3 has the unknown field 'bdy'"),
        ('{"body": 5}', "line 3: 'body' must be text; put a JSON value under 'json'"),
        ('{"key": 5}', "line 3: 'key' must be text"),
        ('{"body_base64": "%"}', "line 3: body_base64 is not base64"),
        ('{"body": "x", "headers": [1]}', "line 3: 'headers' has the wrong type"),
        ('{"body": "x", "priority": "high"}', "line 3: 'priority' has the wrong type"),
    ],
)
def test_a_wrong_line_is_named(line: str, problem: str) -> None:
    with pytest.raises(InvalidArgument, match=problem):
        message.from_json(line, "line 3")


def test_a_line_for_people_has_place_time_key_and_body() -> None:
    line = message.to_line(Received(key="customer-7"))
    assert line.split()[0] == "0:17"
    assert line.endswith("key=customer-7  hello")


def test_long_bodies_are_cut_and_counted() -> None:
    text = message.shortened(b"x" * 1_000)
    assert text.endswith("… (1,000 bytes)")
    assert len(text) < 250


def test_a_missing_body_is_said() -> None:
    assert message.shortened(None) == "(no body)"
