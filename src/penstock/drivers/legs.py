"""One topic of a consumer over a pattern: attached in any thread, used on the client's loop."""

from contextlib import AbstractContextManager
from typing import Any

from penstock.batch.frame import Slice
from penstock.drivers.port import Attachment, Follower, Following, Sink
from penstock.vocabulary.claims import Refusal, Revoked


class Leg:
    """Stands between a broker and the sink a follower gives for a topic.

    `lock` is held by whoever attaches the leg until `attachment` is set.
    """

    def __init__(self, topic: str, follower: Follower, lock: AbstractContextManager[Any]) -> None:
        self.topic = topic
        self.attachment: Attachment | None = None
        self._follower = follower
        self._lock = lock
        self._sink: Sink | None = None

    def introduce(self, _answer: Any = None) -> None:
        """Tells the follower about the topic. On the client's loop."""
        self._given()

    def _given(self) -> Sink:
        if self._sink is None:
            with self._lock:
                attachment = self.attachment
            assert attachment is not None
            self._sink = self._follower.on_joined(self.topic, attachment)
        return self._sink

    def on_slice(self, part: Slice) -> None:
        """Messages arrived."""
        self._given().on_slice(part)

    def on_refused(self, refusals: list[Refusal]) -> None:
        """The broker did not accept these: the sink gave them, so it is there."""
        assert self._sink is not None
        self._sink.on_refused(refusals)

    def on_closed(self, error: Exception) -> None:
        """Nothing more will come."""
        self._given().on_closed(error)

    def on_revoked(self, news: Revoked) -> None:
        """The broker took messages back."""
        self._given().on_revoked(news)


class Followed:
    """A following that its connection knows until it is left."""

    def __init__(self, following: Following, known: "dict[Following, None]") -> None:
        self._following = following
        self._known = known
        known[self] = None

    def leave(self) -> None:
        """No more topics join. Doing so twice is harmless."""
        self._known.pop(self, None)
        self._following.leave()
