from typing import Any

import pytest

from penstock.server.http_exchange import Exchange, line
from penstock.vocabulary.errors import UnknownTopic
from penstock.wire.rest import Refused


class Listener:
    is_draining = False

    def date(self) -> bytes:
        return b"date: now\r\n"


class Wire:
    """Stands for a connection: an exchange asks nothing more of it."""

    def __init__(self) -> None:
        self.listener = Listener()
        self.answered_count = 0

    def answered(self) -> None:
        self.answered_count += 1

    flush = answered


@pytest.fixture
def exchange() -> Exchange:
    wire: Any = Wire()
    return Exchange(wire)


def test_an_answer_is_a_head_and_a_body(exchange: Exchange) -> None:
    exchange.reply(200, b"{}")
    assert exchange.data == (
        b"HTTP/1.1 200 OK\r\ndate: now\r\ncontent-type: application/json\r\n"
        b"content-length: 2\r\n\r\n{}"
    )


def test_an_answer_to_head_has_the_length_and_not_the_body(exchange: Exchange) -> None:
    exchange.is_head = True
    exchange.reply(200, b"{}")
    assert exchange.data is not None
    assert exchange.data.endswith(b"content-length: 2\r\n\r\n")


def test_an_answer_without_content_has_no_length(exchange: Exchange) -> None:
    exchange.reply(204, b"ignored")
    assert exchange.data == b"HTTP/1.1 204 No Content\r\ndate: now\r\n\r\n"


def test_a_request_is_answered_once(exchange: Exchange) -> None:
    exchange.reply(200)
    with pytest.raises(AssertionError):
        exchange.reply(200)


def test_errors_are_problems(exchange: Exchange) -> None:
    exchange.fail(UnknownTopic("there is no topic"))
    assert exchange.data is not None
    assert exchange.data.startswith(b"HTTP/1.1 404 ")
    assert b"application/problem+json" in exchange.data
    assert not exchange.is_close


def test_a_refusal_of_bytes_ends_the_connection(exchange: Exchange) -> None:
    exchange.fail(Refused(400, "bad-request", "no"))
    assert exchange.data is not None
    assert b"connection: close\r\n" in exchange.data


def test_no_value_ends_its_line_early() -> None:
    assert line("allow", "GET\r\nset-cookie: x") == b"allow: GET  set-cookie: x\r\n"


def test_an_address_is_taken_apart(exchange: Exchange) -> None:
    exchange.aim(b"/v1/a%2Fb?x=1")
    assert (exchange.path, exchange.query) == (["v1", "a/b"], "x=1")


def test_what_is_accepted_is_what_was_named(exchange: Exchange) -> None:
    exchange.headers = {
        "accept": "text/html, application/cloudevents+json",
        "content-type": "A/B; c",
    }
    assert exchange.accepts("application/cloudevents+json")
    assert not exchange.accepts("application/json")
    assert exchange.content_type == "a/b"
