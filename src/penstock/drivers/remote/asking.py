"""Questions besides messages: which of them may be asked twice when a connection is lost."""

from asyncio import AbstractEventLoop, Future
from typing import Any

from penstock.drivers.remote.link import Link
from penstock.vocabulary import requests as q
from penstock.vocabulary.errors import PenstockError, Unavailable, UnknownSubscription, UnknownTopic
from penstock.wire import frames
from penstock.wire.frames import MORE, Type
from penstock.wire.frames_asks import Answers, encode_question


class Question:
    """One question under way."""

    def __init__(self, request: q.Request, loop: AbstractEventLoop) -> None:
        self.request = request
        self.payload = encode_question(request)
        self.future: Future[Any] = loop.create_future()
        self.times = 0
        """How often it was sent."""
        self._answers = Answers(request)

    def send(self, link: Link, number: int) -> None:
        """Asks."""
        self.times += 1
        self._answers = Answers(self.request)
        link.send(frames.frame(Type.ASK, number, self.payload))

    def on_answer(self, flags: int, payload: memoryview) -> bool:
        """A part of the answer; True when it was the last one. Raises ProtocolError."""
        self._answers.add(payload)
        if flags & MORE:
            return False
        self._resolve(self._answers.whole())
        return True

    def on_error(self, error: PenstockError) -> None:
        """The question was refused."""
        if self.times > 1 and _was_done(self.request, error):
            self._resolve(None)
        elif not self.future.done():
            self.future.set_exception(error)

    def _resolve(self, answer: Any) -> None:
        if not self.future.done():
            self.future.set_result(answer)


def is_repeatable(request: q.Request) -> bool:
    """True when asking twice has the same effect as asking once."""
    if isinstance(request, q.Redrive | q.PurgeDead):
        return request.is_dry
    # Without a place to go on from, a second plan would be another one, behind the first.
    return not (isinstance(request, q.PlanRanges) and request.after is None)


def unknown_outcome(request: q.Request) -> Unavailable:
    """What whoever asked is told when it cannot be asked again."""
    advice = {
        q.PlanRanges: "look at planned() before you plan again",
        q.Redrive: "look at the dead letters before you redrive again",
        q.PurgeDead: "look at the dead letters before you purge again",
    }.get(type(request), "look before you ask again")
    return Unavailable(
        f"the connection was lost while {type(request).__name__} was under way, so whether it was "
        f"done is not known; {advice}"
    )


def _was_done(request: q.Request, error: PenstockError) -> bool:
    """True when a repeated question is refused because it was done the first time."""
    if isinstance(request, q.DeleteTopic):
        return isinstance(error, UnknownTopic)
    if isinstance(request, q.DeleteSubscription | q.ReleaseReader):
        return isinstance(error, UnknownSubscription | UnknownTopic)
    return False
