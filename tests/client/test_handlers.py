"""What a handler wants is read from its signature; what it returns settles the message."""

import asyncio
import functools
import logging
from dataclasses import dataclass
from typing import Any

import pytest

from penstock.client import handlers
from penstock.client.handlers import Handler, Subscribing, register
from penstock.client.received import ReceivedMessage
from penstock.vocabulary.errors import BodyDoesNotFit, InvalidArgument
from penstock.vocabulary.message import Ack, Nack, Reject

ASKED = Subscribing("t", "s", {})


@dataclass
class Order:
    number: int


def registered(function: Any, concurrency: Any = 1, timeout_s: Any = 5.0) -> Handler:
    return register(function, ASKED, concurrency, timeout_s)


class FakeMessage:
    """Notes how it was settled."""

    id = "id-1"
    attempt = 1

    def __init__(self, body: bytes | None = None) -> None:
        self.body = body
        self.is_settled = False
        self.outcome: tuple[Any, ...] = ()

    def _settle(self, *outcome: Any) -> None:
        self.is_settled = True
        self.outcome = outcome

    def ack(self) -> None:
        self._settle("ack")

    def nack(self, *, delay_s: float | None = None, reason: str = "") -> None:
        self._settle("nack", delay_s, reason)

    def reject(self, reason: str = "") -> None:
        self._settle("reject", reason)


def message(body: bytes | None = None) -> Any:
    return FakeMessage(body)


# -- what it wants -------------------------------------------------------------------------------


async def takes_message(got: ReceivedMessage) -> None: ...
async def takes_anything(got) -> None: ...  # type: ignore[no-untyped-def]  # noqa: ANN001
def takes_order(order: Order) -> None: ...
def takes_both(order: Order, got: ReceivedMessage) -> None: ...
def takes_later(order: "Order", *, flag: bool = True) -> None: ...
def takes_default(body: bytes, flag: int = 3) -> None: ...


class Callable_:  # noqa: N801 - a callable object
    async def __call__(self, body: str) -> None: ...


class Methods:
    def handle(self, order: dict[str, Any]) -> None: ...


@pytest.mark.parametrize(
    ("function", "wants", "is_async"),
    [
        (takes_message, (ReceivedMessage,), True),
        (takes_anything, (ReceivedMessage,), True),
        (takes_order, (Order,), False),
        (takes_both, (Order, ReceivedMessage), False),
        (takes_later, (Order,), False),
        (takes_default, (bytes,), False),
        (Callable_(), (str,), True),
        (Methods().handle, (dict[str, Any],), False),
        (functools.partial(takes_message), (ReceivedMessage,), True),
    ],
)
def test_a_handler_says_what_it_wants_by_its_annotations(
    function: Any, wants: tuple[Any, ...], is_async: bool
) -> None:
    handler = registered(function)
    assert (handler.wants, handler.is_async) == (wants, is_async)


def test_arguments_are_decoded_as_annotated() -> None:
    got = message(b'{"number": 5}')
    assert registered(takes_both).arguments(got) == [Order(5), got]
    with pytest.raises(BodyDoesNotFit, match=r"\$\.number"):
        registered(takes_order).arguments(message(b'{"number": "five"}'))


class Opaque:
    pass


def _nothing() -> None: ...
def _two_bodies(one: Order, other: bytes) -> None: ...
def _unknown(order: "Nowhere") -> None: ...  # type: ignore[name-defined]  # noqa: F821
def _opaque(order: Opaque) -> None: ...


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (_nothing, "must take the message"),
        (_two_bodies, "must take the message"),
        (_unknown, "Nowhere.*top of the module"),
        (_opaque, "cannot be read as Opaque"),
        (5, "must be a function"),
    ],
)
def test_a_function_that_cannot_be_called_is_refused_at_registration(
    function: Any, text: str
) -> None:
    with pytest.raises(InvalidArgument, match=text):
        registered(function)


@pytest.mark.parametrize("concurrency", [0, -1, 1.5, True, 10**9])
def test_concurrency_is_a_sensible_number(concurrency: Any) -> None:
    with pytest.raises(InvalidArgument, match="concurrency"):
        registered(takes_order, concurrency=concurrency)


@pytest.mark.parametrize("timeout_s", [0, -1, "5"])
def test_the_timeout_is_a_sensible_number(timeout_s: Any) -> None:
    with pytest.raises(InvalidArgument, match="handler_timeout_s"):
        registered(takes_order, timeout_s=timeout_s)


# -- what its answer means -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("outcome", "settled"),
    [
        (None, ("ack",)),
        (Ack(), ("ack",)),
        (Nack(), ("nack", None, "")),
        (Nack(delay_s=3, reason="busy"), ("nack", 3, "busy")),
        (Reject("bad"), ("reject", "bad")),
    ],
)
def test_the_outcome_settles_the_message(outcome: Any, settled: tuple[Any, ...]) -> None:
    got = message()
    handlers.finish(registered(takes_order), got, outcome)
    assert got.outcome == settled


def test_an_unknown_outcome_is_a_failure_that_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    got = message()
    handlers.finish(registered(takes_order), got, True)
    assert got.outcome[0] == "nack"
    assert "returned True" in got.outcome[2]
    assert "id-1" in caplog.text


def test_a_message_the_handler_settled_itself_is_left_alone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    got = message()
    got.reject("own decision")
    handlers.finish(registered(takes_order), got, None)
    handlers.fail(registered(takes_order), got, ValueError("late"))
    handlers.time_out(registered(takes_order), got)
    assert got.outcome == ("reject", "own decision")
    handlers.finish(registered(takes_order), got, Ack())
    assert "ignored" in caplog.text


def test_an_exception_is_a_nack_with_its_repr_and_a_log_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING)
    got = message()
    handlers.fail(registered(takes_order), got, ValueError("no stock"))
    assert got.outcome == ("nack", None, "ValueError('no stock')")
    assert "id-1" in caplog.text
    assert "takes_order" in caplog.text


def test_a_timeout_is_a_nack_and_a_misfit_a_reject() -> None:
    late, misfit = message(), message()
    handlers.time_out(registered(takes_order), late)
    assert late.outcome == ("nack", None, "the handler took longer than 5.0 s")
    handlers.misfit(registered(takes_order), misfit, BodyDoesNotFit("at `$.number`"))
    assert misfit.outcome == ("reject", "at `$.number`")


def test_handlers_stay_ordinary_functions() -> None:
    assert asyncio.iscoroutinefunction(registered(takes_message).function)
