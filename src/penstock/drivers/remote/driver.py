"""The remote driver: the whole port, over a connection that is made again when it is lost.

Everything a caller was not answered yet is kept here and sent again: publishes and units in their
order, with their numbers; acks; questions that may be asked twice. Belongs to one event loop.
"""

import logging
import time
from asyncio import AbstractEventLoop, CancelledError, Future
from collections.abc import Callable
from functools import partial
from threading import get_ident
from typing import Any, Final

import msgspec

from penstock.drivers.port import Answer, Attachment, Capabilities, Follower, Following, Sink
from penstock.drivers.remote import asking
from penstock.drivers.remote.attachment import RemoteAttachment, Settled, closed
from penstock.drivers.remote.flights import Flight, Flights, UnitFlight
from penstock.drivers.remote.following import RemoteFollowing
from penstock.drivers.remote.frames_in import handle
from penstock.drivers.remote.link import Link, give
from penstock.vocabulary import requests as q
from penstock.vocabulary.claims import Claim
from penstock.vocabulary.errors import Closed, InvalidArgument, PenstockError, Unavailable
from penstock.vocabulary.units import UnitWish
from penstock.vocabulary.wishes import Wish
from penstock.wire import frames, frames_claims
from penstock.wire.frames import Type
from penstock.wire.frames_hello import Welcome
from penstock.wire.frames_publish import TopicMap, encode_map

log = logging.getLogger("penstock.drivers")

MAPS_MAX: Final = 100_000
"""Topics whose partitions are remembered."""
DETACH_S_MAX: Final = 1.0
"""How long a subscription that is closed without a connection waits for one to send its acks."""


class RemoteDriver:
    """One client's way to a server."""

    gathers_units = True

    def __init__(
        self, loop: AbstractEventLoop, scheme: str, when_lost: Callable[["RemoteDriver"], None]
    ) -> None:
        self.link: Link | None = None
        self.loop = loop
        self.capabilities = Capabilities(scheme=scheme, durability="memory")  # type: ignore[arg-type]  # until the server says
        self.is_closed = False
        self.time = loop.time
        self.flights = Flights(self._next_number)
        self.attachments: dict[int, RemoteAttachment] = {}
        """By channel; those that only wait to be attached too."""
        self.joining: dict[int, Future[None]] = {}
        """Channel → who waits for the first attachment."""
        self.followings: dict[int, RemoteFollowing] = {}
        self.leg_channels: dict[int, RemoteAttachment] = {}
        self.questions: dict[int, asking.Question] = {}
        self.flushing: dict[int, Answer] = {}
        self.leaving: dict[int, tuple[bytes, Answer]] = {}
        """Channel → what was begun, and who waits for the end."""
        self.returning: set[int] = set()
        """Channels and patterns that must be attached again before publishes go on."""
        self.maps: dict[str, int] = {}
        self.generation = 0
        self.wall_base = (0, 0.0)
        self._unmapped: set[str] = set()
        self._number = 0
        self._thread = get_ident()
        self._when_lost = when_lost
        self._error: PenstockError | None = None

    # -- the port: what it knows -----------------------------------------------------------------

    @property
    def wall(self) -> int:
        base, at = self.wall_base
        return base + int((self.time() - at) * 1000)

    def partitions(self, topic: str) -> int:
        known = self.maps.get(topic)
        if known is None:
            if len(self.maps) >= MAPS_MAX:
                del self.maps[next(iter(self.maps))]
            known = self.maps[topic] = 1
            self._ask_map(topic)
        return known

    def _ask_map(self, topic: str) -> None:
        if self.link is None:
            self._unmapped.add(topic)
            return
        payload = encode_map(TopicMap(topic, 0))
        self.link.send(frames.frame(Type.MAP, self._next_number(), payload))

    def has_room(self) -> bool:
        return self.flights.has_room()

    def when_room(self, answer: Answer) -> None:
        if self.is_closed:
            self.loop.call_soon(give, answer, closed())
        elif self.flights.has_room():
            self.loop.call_soon(give, answer, None)
        else:
            self.flights.when_room(answer)

    def reconnect(self) -> None:
        """Gives the connection up, as one that stands still; another one is made at once."""
        if self.link is not None:
            self.link.fail(Unavailable("the connection stands still"))

    def deliver(self) -> None:
        if self.link is not None:
            self.link.poll()

    def _next_number(self) -> int:
        # Numbers below the channels that the server chooses; 0 speaks of the connection.
        self._number = self._number % 0x7FFF_FFFE + 1
        return self._number

    def on_loop(self, call: Callable[..., None], *arguments: Any) -> None:
        """Calls on the loop's thread: at once, or soon when this is another thread."""
        if get_ident() == self._thread:
            call(*arguments)
            return
        try:
            self.loop.call_soon_threadsafe(partial(call, *arguments))
        except RuntimeError:
            raise Closed("the event loop of this client is closed") from None

    # -- the port: publish -----------------------------------------------------------------------

    def publish(  # noqa: PLR0913, PLR0917 - the hot path: no object per call
        self, topic: str, partition: int, batch: bytes, count: int, publisher: bytes, epoch: int,
        sequence: int, answer: Answer, partitions: int = 0,
    ) -> None:  # fmt: skip
        if self.is_closed:
            raise self._ended()
        flight = Flight(
            topic.encode(), batch, (partition, count, publisher, epoch, sequence), partitions,
            answer, time.time(),
        )  # fmt: skip
        self.flights.add(flight, None if self.returning else self.link)

    def commit_unit(
        self, wish: UnitWish, claims: list[tuple[Attachment, list[Claim]]], answer: Answer
    ) -> None:
        if self.is_closed:
            raise self._ended()
        known: list[tuple[RemoteAttachment, list[Claim]]] = []
        for attachment, listed in claims:
            if not isinstance(attachment, RemoteAttachment) or not self._knows(attachment):
                raise InvalidArgument(
                    "a message of the unit was received by another client, or its subscription "
                    "was closed since: ack messages with the client that received them"
                )
            known.append((attachment, listed))
        flight = UnitFlight(wish, known, answer, time.time())
        self.flights.add(flight, None if self.returning else self.link)

    def _knows(self, attachment: RemoteAttachment) -> bool:
        if self.attachments.get(attachment.channel) is attachment:
            return not attachment.is_leaving
        return any(
            leg is attachment and not leg.is_leaving
            for following in self.followings.values()
            for leg in following.legs.values()
        )

    # -- the port: consume -----------------------------------------------------------------------

    async def attach(self, wish: Wish, sink: Sink) -> RemoteAttachment:
        if self.is_closed:
            raise self._ended()
        channel = self._next_number()
        attachment = RemoteAttachment(self, wish, channel)
        future: Future[None] = self.loop.create_future()
        self.attachments[channel] = attachment
        self.joining[channel] = future
        if self.link is not None:
            self._send_attach(attachment, self.link)
        try:
            await future
        except CancelledError:
            self.detach(attachment, frames_claims.encode_begun({}), _nothing)
            raise
        except BaseException:
            self.attachments.pop(channel, None)
            raise
        finally:
            self.joining.pop(channel, None)
        # Once whoever awaits this has gone on and knows its attachment.
        self.loop.call_soon(attachment.begin, sink)
        return attachment

    def _send_attach(self, attachment: RemoteAttachment, link: Link) -> None:
        wish = attachment.wish._replace(start=attachment.start(), returning=attachment.returning())
        payload = frames_claims.encode_wish(wish)
        link.send(frames.frame(Type.ATTACH, attachment.channel, payload))

    async def follow(self, wish: Wish, follower: Follower) -> Following:
        if self.is_closed:
            raise self._ended()
        number = self._next_number()
        following = RemoteFollowing(self, wish, follower, number, self.loop)
        self.followings[number] = following
        following.on_left = partial(self._left, number)
        if self.link is not None:
            following.send(self.link)
        try:
            await following.joining
        except BaseException:
            following.leave()
            for leg in following.legs.values():
                self.detach(leg, frames_claims.encode_begun({}), _nothing)
            raise
        self.loop.call_soon(following.begin)
        return following

    def _left(self, number: int) -> None:
        self.followings.pop(number, None)
        self.returned(number)

    def flush(self, answer: Answer) -> None:
        """Answers None once everything sent so far is durable."""
        if self.is_closed:
            self.loop.call_soon(give, answer, self._ended())
            return
        number = self._next_number()
        self.flushing[number] = answer
        if self.link is not None and not self.returning:
            self.link.send(frames.frame(Type.FLUSH, number))

    def detach(self, attachment: RemoteAttachment, begun: bytes, answer: Answer) -> None:
        """Ends an attachment; without a connection only as long as acks may need one."""
        attachment.is_leaving = True
        channel = attachment.channel
        if self.link is not None and attachment.is_joined:
            self.leaving[channel] = (begun, answer)
            self.link.send(frames.frame(Type.DETACH, channel, begun))
        elif self.link is not None and channel in self.attachments and not attachment.has_unsent:
            # The server is about to attach it, for the first time or again, and then ends it.
            self.link.send(frames.frame(Type.DETACH, channel, begun))
            self.forget(attachment)
            self.loop.call_soon(give, answer, None)
        elif self.is_closed or not attachment.has_unsent:
            self.forget(attachment)
            attachment.give_up()
            self.loop.call_soon(give, answer, None)
        else:
            self.leaving[channel] = (begun, answer)
            self.give_up_later(channel)

    def give_up_later(self, channel: int) -> None:
        """Somebody waits for an end that needs a connection: not for ever."""
        self.loop.call_later(DETACH_S_MAX, self._give_up, channel)

    def _give_up(self, channel: int) -> None:
        attachment = self.attachment(channel)
        if attachment is None or attachment.is_joined or channel not in self.leaving:
            return
        _, answer = self.leaving.pop(channel)
        self.forget(attachment)
        attachment.give_up()
        give(answer, None)

    def attachment(self, channel: int) -> RemoteAttachment | None:
        """The consumer on a channel of the present connection."""
        return self.attachments.get(channel) or self.leg_channels.get(channel)

    def _every_attachment(self) -> list[RemoteAttachment]:
        legs = [leg for each in self.followings.values() for leg in each.legs.values()]
        return [*self.attachments.values(), *legs]

    def forget(self, attachment: RemoteAttachment) -> None:
        """A consumer is not there any more."""
        if self.attachments.get(attachment.channel) is attachment:
            del self.attachments[attachment.channel]
        self.leg_channels.pop(attachment.channel, None)
        for following in self.followings.values():
            if following.legs.get(attachment.wish.topic) is attachment:
                del following.legs[attachment.wish.topic]
        self.returned(attachment.channel)

    # -- the port: ask and close -----------------------------------------------------------------

    async def ask(self, request: q.Request) -> Any:
        if self.is_closed:
            raise self._ended()
        question = asking.Question(request, self.loop)
        number = self._next_number()
        self.questions[number] = question
        if self.link is not None:
            question.send(self.link, number)
        try:
            answer = await question.future
        finally:
            self.questions.pop(number, None)
        self._learn(request)
        return answer

    def _learn(self, request: q.Request) -> None:
        if isinstance(request, q.CreateTopic | q.AlterTopic) and request.partitions:
            self.maps[request.topic] = request.partitions

    async def close(self) -> None:
        self.end(closed())

    def end(self, error: PenstockError) -> None:
        """Ends everything; whoever waits is told the error."""
        if self.is_closed:
            return
        self.is_closed = True
        self._error = error
        link, self.link = self.link, None
        if link is not None:
            link.send(frames.frame(Type.GOODBYE, 0))
            link.close()
        self._when_lost(self)
        self.flights.end(error)
        for future in self.joining.values():
            if not future.done():
                future.set_exception(error)
        for question in list(self.questions.values()):
            question.on_error(error)
        for following in self.followings.values():
            if not following.joining.done():
                following.joining.set_exception(error)
        answers = [answer for _, answer in self.leaving.values()]
        self.leaving.clear()
        flushing, self.flushing = list(self.flushing.values()), {}
        for answer in [*answers, *flushing]:
            give(answer, error)

    def _ended(self) -> PenstockError:
        error = self._error
        return closed() if error is None else type(error)(error.text, **error.details)

    def fail(self, error: PenstockError) -> None:
        """The server will never take this client again: everybody is told."""
        attachments = self._every_attachment()
        self.end(error)
        for attachment in attachments:
            attachment.on_closed(error)

    # -- connections -----------------------------------------------------------------------------

    def use(self, link: Link, welcome: Welcome) -> None:
        """A connection works: everything that waits goes out."""
        abilities = msgspec.to_builtins(welcome.abilities, builtin_types=(tuple,))
        self.capabilities = msgspec.convert(
            {"scheme": self.capabilities.scheme, **abilities}, Capabilities
        )
        self.link = link
        self.generation = welcome.generation
        self.wall_base = (welcome.wall, self.time())
        for topic in self._unmapped:
            self._ask_map(topic)
        self._unmapped.clear()
        self.returning = {c for c, each in self.attachments.items() if each.was_joined}
        self.returning |= {n for n, each in self.followings.items() if each.was_joined}
        for attachment in list(self.attachments.values()):
            self._send_attach(attachment, link)
        for following in list(self.followings.values()):
            following.send(link)
        for number, question in list(self.questions.items()):
            question.send(link, number)
        self.resume()

    def on_frame(self, kind: int, flags: int, number: int, payload: memoryview) -> None:
        """A frame came. Raises ProtocolError."""
        handle(self, kind, flags, number, payload)

    def returned(self, number: int) -> None:
        """A consumer is attached again, or never will be."""
        if number in self.returning:
            self.returning.discard(number)
            self.resume()

    def resume(self) -> None:
        """Goes on with everything that waited for consumers to return."""
        link = self.link
        if link is None or self.returning:
            return
        self.flights.send_again(link)
        for number in self.flushing:
            link.send(frames.frame(Type.FLUSH, number))

    def on_lost(self, link: Link, error: PenstockError) -> None:
        """The connection is gone."""
        if link is not self.link:
            return
        self.link = None
        self.leg_channels.clear()
        self.flights.hold()
        unconfirmed: dict[RemoteAttachment, list[Settled]] = {}
        for settled in link.unconfirmed:
            unconfirmed.setdefault(settled.attachment, []).append(settled)
        for attachment in self._every_attachment():
            attachment.lost_connection(unconfirmed.get(attachment, []))
        for following in self.followings.values():
            following.lost_connection()
        self._end_what_cannot_wait()
        log.info("%s; connecting again", error)
        self._when_lost(self)

    def _end_what_cannot_wait(self) -> None:
        for question in list(self.questions.values()):
            if question.times and not asking.is_repeatable(question.request):
                question.on_error(asking.unknown_outcome(question.request))
        for channel, (_, answer) in list(self.leaving.items()):
            attachment = self.attachment(channel)
            if attachment is None or not attachment.has_unsent:
                del self.leaving[channel]
                if attachment is not None:
                    self.forget(attachment)
                self.loop.call_soon(give, answer, None)
            else:
                self.give_up_later(channel)


def _nothing(_answer: Any = None) -> None:
    """Nobody waits for this."""
