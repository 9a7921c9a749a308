"""What the frames of a server mean to a driver: each goes to whoever waits for it."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from penstock.drivers.remote.link import give
from penstock.vocabulary.errors import Draining, PenstockError, ProtocolError, StaleMap
from penstock.wire import frames, frames_claims, frames_publish
from penstock.wire.frames import MORE, Type
from penstock.wire.frames_errors import decode_error
from penstock.wire.frames_slices import read_slice

if TYPE_CHECKING:
    from penstock.drivers.remote.driver import RemoteDriver

Handler = Callable[[Any, int, int, memoryview], None]


# -- publish ---------------------------------------------------------------------------------


def _on_stored(driver: "RemoteDriver", _flags: int, number: int, payload: memoryview) -> None:
    flight = driver.flights.take(number, driver.link)
    if flight is not None:
        give(flight.answer, frames_publish.decode_stored(payload))


def _on_committed(driver: "RemoteDriver", _flags: int, number: int, payload: memoryview) -> None:
    flight = driver.flights.take(number, driver.link)
    if flight is not None:
        give(flight.answer, frames_publish.decode_committed(payload))


def _on_behind(driver: "RemoteDriver", _flags: int, number: int, _payload: memoryview) -> None:
    if driver.link is not None:
        driver.flights.behind(number, driver.link)


def _on_map(driver: "RemoteDriver", _flags: int, _number: int, payload: memoryview) -> None:
    found = frames_publish.decode_map(payload)
    driver.maps[found.topic] = found.partitions


# -- errors ----------------------------------------------------------------------------------


def _on_error(driver: "RemoteDriver", flags: int, number: int, payload: memoryview) -> None:
    error = decode_error(payload)
    if isinstance(error, Draining) and driver.link is not None:
        # What is refused so was not done; it goes to the server that comes after this one.
        driver.link.is_stopping = True
        return
    if number in driver.flights.flying:
        _refuse_flight(driver, number, error)
    elif number in driver.joining:
        if not driver.joining[number].done():
            driver.joining[number].set_exception(error)
    elif number in driver.attachments:
        _refuse_return(driver, number, error)
    elif number in driver.followings:
        _refuse_following(driver, number, error)
    elif number in driver.questions:
        driver.questions[number].on_error(error)
    elif number in driver.flushing:
        give(driver.flushing.pop(number), error)
    elif number in driver.leaving:
        give(driver.leaving.pop(number)[1], error)
    if flags & MORE:
        raise error  # the connection ends with it


def _refuse_flight(driver: "RemoteDriver", number: int, error: PenstockError) -> None:
    link = driver.link
    if link is not None:
        link.refusals += 1
    flight = driver.flights.take(number, link)
    assert flight is not None
    if isinstance(error, StaleMap) and (topic := flight.topic.decode() or error.topic):
        driver.maps[topic] = error.partitions
    give(flight.answer, error)


def _refuse_return(driver: "RemoteDriver", number: int, error: PenstockError) -> None:
    attachment = driver.attachments.pop(number)
    attachment.give_up()
    attachment.on_closed(error)
    driver.returned(number)


def _refuse_following(driver: "RemoteDriver", number: int, error: PenstockError) -> None:
    following = driver.followings.pop(number)
    if not following.joining.done():
        following.joining.set_exception(error)
        return
    following.on_closed(error)
    driver.returned(number)


# -- consume ---------------------------------------------------------------------------------


def _on_attached(driver: "RemoteDriver", _flags: int, number: int, payload: memoryview) -> None:
    attachment = driver.attachments.get(number)
    if attachment is None:
        return  # it was cancelled
    attachment.attached(frames_claims.decode_attached(payload), driver.generation)
    future = driver.joining.get(number)
    if future is not None and not future.done():
        future.set_result(None)
    if number in driver.leaving and driver.link is not None:
        driver.link.send(frames.frame(Type.DETACH, number, driver.leaving[number][0]))
    driver.returned(number)


def _on_slice(driver: "RemoteDriver", flags: int, number: int, payload: memoryview) -> None:
    attachment = driver.attachment(number)
    if attachment is not None and not attachment.is_leaving:
        attachment.on_slice(flags, read_slice(payload))


def _on_confirmed(driver: "RemoteDriver", _flags: int, _number: int, payload: memoryview) -> None:
    link = driver.link
    if link is None:
        return
    count = frames_claims.decode_count(payload)
    while link.confirmed < count and link.unconfirmed:
        link.confirmed += 1
        settled = link.unconfirmed.popleft()
        settled.attachment.confirmed(settled)


def _on_refused(driver: "RemoteDriver", _flags: int, number: int, payload: memoryview) -> None:
    attachment = driver.attachment(number)
    if attachment is not None:
        attachment.on_refused(frames_claims.decode_refused(payload))


def _on_revoked(driver: "RemoteDriver", _flags: int, number: int, payload: memoryview) -> None:
    attachment = driver.attachment(number)
    if attachment is not None:
        attachment.on_revoked(frames_claims.decode_revoked(payload))


def _on_closed(driver: "RemoteDriver", _flags: int, number: int, payload: memoryview) -> None:
    error = decode_error(payload)
    attachment = driver.attachment(number)
    if attachment is not None:
        attachment.on_closed(error)
    elif number in driver.followings:
        driver.followings[number].on_closed(error)


def _on_done(driver: "RemoteDriver", _flags: int, number: int, _payload: memoryview) -> None:
    if number in driver.flushing:
        give(driver.flushing.pop(number), None)
    elif number in driver.leaving:
        _, answer = driver.leaving.pop(number)
        attachment = driver.attachment(number)
        if attachment is not None:
            driver.forget(attachment)
        give(answer, None)


def _on_joined(driver: "RemoteDriver", _flags: int, number: int, payload: memoryview) -> None:
    joined = frames_claims.decode_joined(payload)
    following = driver.followings.get(number)
    if following is not None:
        leg = following.on_joined(joined, driver.generation)
        driver.leg_channels[joined.channel] = leg
    elif driver.link is not None:
        nothing = frames_claims.encode_begun({})
        driver.link.send(frames.frame(Type.DETACH, joined.channel, nothing))


def _on_followed(driver: "RemoteDriver", _flags: int, number: int, _payload: memoryview) -> None:
    following = driver.followings.get(number)
    if following is not None:
        following.on_followed()
    driver.returned(number)


# -- the rest --------------------------------------------------------------------------------


def _on_answer(driver: "RemoteDriver", flags: int, number: int, payload: memoryview) -> None:
    question = driver.questions.get(number)
    if question is not None:
        question.on_answer(flags, payload)


def _on_ping(driver: "RemoteDriver", _flags: int, number: int, payload: memoryview) -> None:
    _on_pong(driver, 0, 0, payload)
    if driver.link is not None:
        driver.link.send(frames.frame(Type.PONG, number))


def _on_pong(driver: "RemoteDriver", _flags: int, _number: int, payload: memoryview) -> None:
    driver.wall_base = (frames_claims.decode_count(payload), driver.time())


def _on_goodbye(driver: "RemoteDriver", _flags: int, _number: int, _payload: memoryview) -> None:
    """The server stops: it says so, and ends the connection when it has finished."""


HANDLERS: Final[dict[int, Handler]] = {
    Type.ERROR: _on_error,
    Type.STORED: _on_stored,
    Type.COMMITTED: _on_committed,
    Type.BEHIND: _on_behind,
    Type.MAP: _on_map,
    Type.ATTACHED: _on_attached,
    Type.SLICE: _on_slice,
    Type.CONFIRMED: _on_confirmed,
    Type.REFUSED: _on_refused,
    Type.REVOKED: _on_revoked,
    Type.CLOSED: _on_closed,
    Type.DONE: _on_done,
    Type.FOLLOWED: _on_followed,
    Type.JOINED: _on_joined,
    Type.ANSWER: _on_answer,
    Type.PING: _on_ping,
    Type.PONG: _on_pong,
    Type.GOODBYE: _on_goodbye,
}


def handle(driver: "RemoteDriver", kind: int, flags: int, number: int, payload: memoryview) -> None:
    """One frame. Raises ProtocolError."""
    handler = HANDLERS.get(kind)
    if handler is None:
        raise ProtocolError(f"the server sent a frame of type {kind} at the wrong time")
    handler(driver, flags, number, payload)
