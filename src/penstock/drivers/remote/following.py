"""A consumer of a pattern at a server: one attachment for each topic that matches."""

from asyncio import AbstractEventLoop, Future
from collections.abc import Callable
from typing import Any

from penstock.drivers.port import Follower, Sink
from penstock.drivers.remote.attachment import Home, RemoteAttachment
from penstock.drivers.remote.link import Link
from penstock.vocabulary.errors import Closed, PenstockError
from penstock.vocabulary.wishes import Wish
from penstock.wire import frames
from penstock.wire.frames import Type
from penstock.wire.frames_claims import FollowWish, Joined, encode_follow


class RemoteFollowing:
    """One consumer of a pattern, from its FOLLOW on, over as many connections as it takes."""

    def __init__(
        self, home: Home, wish: Wish, follower: Follower, number: int, loop: AbstractEventLoop
    ) -> None:
        self.number = number
        self.is_joined = False
        self.was_joined = False
        self.joining: Future[None] = loop.create_future()
        self.legs: dict[str, RemoteAttachment] = {}
        self.on_left: Callable[[], object] = _nothing
        self._home = home
        self._wish = wish
        self._follower = follower
        self._is_begun = False
        self._waiting: list[RemoteAttachment] = []
        """Legs the follower does not know yet."""
        self._error: PenstockError | None = None

    def send(self, link: Link) -> None:
        """Follows on this connection; names what each leg holds."""
        legs = {
            topic: returning
            for topic, leg in self.legs.items()
            if not leg.is_leaving and (returning := leg.returning()) is not None
        }
        payload = encode_follow(FollowWish(self._wish, legs))
        link.send(frames.frame(Type.FOLLOW, self.number, payload))

    def on_joined(self, joined: Joined, generation: int) -> RemoteAttachment:
        """A topic has a consumer on a channel of this connection."""
        leg = self.legs.get(joined.topic)
        if leg is None or leg.is_leaving:
            wish = self._wish._replace(topic=joined.topic)
            leg = self.legs[joined.topic] = RemoteAttachment(self._home, wish, joined.channel)
            self._waiting.append(leg)
        leg.channel = joined.channel
        leg.attached(joined.attached, generation)
        if self._is_begun:
            self._introduce()
        return leg

    def _introduce(self) -> None:
        waiting, self._waiting = self._waiting, []
        for leg in waiting:
            sink: Sink = self._follower.on_joined(leg.wish.topic, leg)
            leg.begin(sink)

    def on_followed(self) -> None:
        """Every topic that matches now has joined."""
        self.is_joined = self.was_joined = True
        if not self.joining.done():
            self.joining.set_result(None)
        for topic, leg in list(self.legs.items()):
            if not leg.is_joined and not leg.is_leaving:
                del self.legs[topic]
                leg.give_up()
                leg.on_closed(Closed(f"topic {topic!r} is not there any more"))

    def begin(self) -> None:
        """The follower may be told about topics. On the loop."""
        self._is_begun = True
        self._introduce()
        if self._error is not None:
            self._follower.on_closed(self._error)

    def on_closed(self, error: PenstockError) -> None:
        """No more topics will join."""
        if self._is_begun:
            self._follower.on_closed(error)
        else:
            self._error = error

    def lost_connection(self) -> None:
        """The connection is gone."""
        self.is_joined = False

    def leave(self) -> None:
        """No more topics join. Doing so twice is harmless."""
        self.on_left()
        link = self._home.link
        if link is not None and self.is_joined:
            link.send(frames.frame(Type.LEAVE, self.number))
        self.is_joined = False


def _nothing(_answer: Any = None) -> None:
    """Nobody needs to know."""
