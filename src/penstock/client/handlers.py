"""A function that is called with messages: what it wants, what its answer means."""

import inspect
import logging
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from penstock.client import decoding
from penstock.client.received import ReceivedMessage
from penstock.vocabulary.errors import BodyDoesNotFit, InvalidArgument
from penstock.vocabulary.message import Ack, Nack, Reject

log = logging.getLogger("penstock.client")

HANDLER_TIMEOUT_S_DEFAULT: Final = 300.0
CONCURRENCY_MAX: Final = 10_000


class Subscribing(NamedTuple):
    """The arguments of `subscribe` a handler was registered with."""

    topic: str
    subscription: str | None
    options: dict[str, Any]


class Handler(NamedTuple):
    """A registered function."""

    function: Callable[..., Any]
    name: str
    is_async: bool
    wants: tuple[Any, ...]
    """For each parameter ReceivedMessage, or the type its body is decoded into."""
    subscribing: Subscribing
    concurrency: int
    timeout_s: float

    def arguments(self, message: ReceivedMessage) -> list[Any]:
        """What to call the function with. Raises BodyDoesNotFit."""
        return [
            message if kind is ReceivedMessage else decoding.decode(message.body, kind)
            for kind in self.wants
        ]


def register(
    function: Callable[..., Any], subscribing: Subscribing, concurrency: int, timeout_s: float
) -> Handler:
    """A handler for this function. Raises InvalidArgument when it cannot be called."""
    name = getattr(function, "__qualname__", repr(function))
    if not callable(function):
        raise InvalidArgument(f"a handler must be a function, not {function!r}")
    if isinstance(concurrency, bool) or not isinstance(concurrency, int):
        raise InvalidArgument(f"concurrency must be a whole number, not {concurrency!r}")
    if not 1 <= concurrency <= CONCURRENCY_MAX:
        raise InvalidArgument(f"concurrency must be 1…{CONCURRENCY_MAX}, not {concurrency}")
    if not isinstance(timeout_s, int | float) or not timeout_s > 0:
        raise InvalidArgument(f"handler_timeout_s must be above 0, not {timeout_s!r}")
    is_async = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004 - an object with an async call
    )
    wants = _wants(function, name)
    return Handler(function, name, is_async, wants, subscribing, concurrency, timeout_s)


def _wants(function: Callable[..., Any], name: str) -> tuple[Any, ...]:
    try:
        signature = inspect.signature(function, eval_str=True)
    except (NameError, AttributeError, TypeError, ValueError) as error:
        raise InvalidArgument(
            f"the annotations of handler {name} cannot be read: {error}; define its types at the "
            "top of the module"
        ) from error
    wanted: list[Any] = []
    for parameter in signature.parameters.values():
        if parameter.kind in {parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD}:
            continue
        if parameter.kind is parameter.KEYWORD_ONLY or (
            parameter.default is not parameter.empty and wanted
        ):
            continue
        wanted.append(_kind(parameter.annotation))
    bodies = [kind for kind in wanted if kind is not ReceivedMessage]
    if not wanted or len(bodies) > 1:
        raise InvalidArgument(
            f"handler {name} must take the message, or its body, or both: one parameter with the "
            "type of the body, one of type ReceivedMessage"
        )
    for kind in bodies:
        decoding.check_kind(kind)
    return tuple(wanted)


def _kind(annotation: Any) -> Any:
    return ReceivedMessage if annotation is inspect.Parameter.empty else annotation


# -- what its answer means -----------------------------------------------------------------------


def finish(handler: Handler, message: ReceivedMessage, outcome: Any) -> None:
    """Settles a message by what the handler returned."""
    if message.is_settled:
        if outcome is not None:
            log.warning(
                "handler %s settled message %s itself and returned %r, which is ignored",
                handler.name, message.id, outcome,
            )  # fmt: skip
    elif outcome is None or isinstance(outcome, Ack):
        message.ack()
    elif not isinstance(outcome, Nack | Reject):
        _nonsense(handler, message, outcome, "return None, Ack, Nack or Reject")
    else:
        try:
            if isinstance(outcome, Nack):
                message.nack(delay_s=outcome.delay_s, reason=outcome.reason)
            else:
                message.reject(outcome.reason)
        except InvalidArgument as error:  # as bad as any other wrong answer, and no worse
            _nonsense(handler, message, outcome, error.text)


def _nonsense(handler: Handler, message: ReceivedMessage, outcome: Any, help_text: str) -> None:
    text = f"returned {outcome!r:.200}; {help_text}"
    log.error("handler %s, message %s: %s", handler.name, message.id, text)
    message.nack(reason=f"handler {text}")


def fail(handler: Handler, message: ReceivedMessage, error: Exception) -> None:
    """Settles a message whose handler raised: back-off and another attempt."""
    log.warning(
        "handler %s failed on message %s, attempt %d", handler.name, message.id, message.attempt,
        exc_info=error,
    )  # fmt: skip
    if not message.is_settled:
        message.nack(reason=repr(error))


def time_out(handler: Handler, message: ReceivedMessage) -> None:
    """Settles a message whose handler took too long."""
    text = f"the handler took longer than {handler.timeout_s} s"
    log.warning("handler %s, message %s: %s", handler.name, message.id, text)
    if not message.is_settled:
        message.nack(reason=text)


def misfit(handler: Handler, message: ReceivedMessage, error: BodyDoesNotFit) -> None:
    """Settles a message whose body the handler cannot take: trying again is useless."""
    log.warning("handler %s, message %s: %s", handler.name, message.id, error)
    message.reject(error.text)
