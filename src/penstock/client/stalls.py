"""When a subscription counts as stalled: it has a backlog, and nothing moves. Pure.

A consumer that has messages in hand works; one whose subscription has no backlog is idle; one
whose subscription moves, by whoever's work, is fine. Only what is left is a stall.
"""

from collections.abc import Iterable
from typing import Any, Final

import msgspec

from penstock.vocabulary.message import Kind

STALLED_S_DEFAULT: Final = 60.0
LOOKS: Final = 3
"""Looks at a subscription in the time after which it counts as stalled."""
_FINISHED: Final = ("acked", "dead", "expired", "dropped", "upto")
"""What changes when a subscription moves."""
_ADDED: Final = ("waiting", "waiting_min", "leased", "acked", "dead", "expired", "dropped")

OK: Final = "ok"
STALLED: Final = "stalled"
UNREACHABLE: Final = "unreachable"


class Stalled(msgspec.Struct, frozen=True):
    """What happened: a subscription has a backlog and gave nothing for so long."""

    topic: str
    subscription: str
    consumer: str
    waiting: int
    seconds: float

    @property
    def text(self) -> str:
        """For people."""
        return (
            f"subscription {self.subscription!r} of topic {self.topic!r} has at least "
            f"{self.waiting} message(s) and nothing moved for {self.seconds:g} s: consumer "
            f"{self.consumer} subscribes anew"
        )


class Watched(msgspec.Struct, frozen=True):
    """How one subscription of a client is."""

    topic: str
    subscription: str
    consumer: str
    state: str
    """ok, stalled, unreachable."""
    stalls: int
    waiting: int


class Health(msgspec.Struct, frozen=True):
    """How a client's subscriptions are; `is_healthy` when all of them are."""

    is_healthy: bool
    stalls: int
    """How often one was found stalled, since the client was opened."""
    subscriptions: list[Watched]

    def metrics(self) -> str:
        """The same as lines for Prometheus."""
        lines = [
            "# TYPE penstock_client_stalls_total counter",
            f"penstock_client_stalls_total {self.stalls}",
            "# TYPE penstock_client_subscription_stalled gauge",
            "# TYPE penstock_client_subscription_waiting gauge",
        ]
        for each in self.subscriptions:
            names = f'{{topic="{_quoted(each.topic)}",subscription="{_quoted(each.subscription)}"}}'
            is_stalled = int(each.state != OK)
            lines.append(f"penstock_client_subscription_stalled{names} {is_stalled}")
            lines.append(f"penstock_client_subscription_waiting{names} {each.waiting}")
        return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


class Watch:
    """What was seen of one consumer and its subscription."""

    def __init__(self, stalled_s: float, now: float) -> None:
        self.stalled_s = stalled_s
        self.state = OK
        self.stalls = 0
        self.waiting = 0
        self.can_tell: bool | None = None
        """The broker says what waits; None when it was not asked yet."""
        self._since = now
        self._finished: tuple[Any, ...] | None = None

    def busy(self, now: float) -> None:
        """It has messages in hand, or may not have any."""
        self._moved(now)
        self._finished = None

    def cut_off(self, now: float) -> None:
        """The broker cannot be reached: the driver's own affair."""
        self._since = now
        self.state = UNREACHABLE

    def told(
        self, now: float, row: dict[str, Any] | None, consumer: str, *, is_heard: bool = True
    ) -> bool:
        """True when it is stalled, by what the broker says about its subscription.

        `is_heard` is False when only another connection is answered: then what is leased may have
        been sent to nobody.
        """
        self.can_tell = row is not None and _waiting(row) is not None
        waiting = backlog(row, consumer, is_heard=is_heard)
        finished = None if row is None else tuple(row.get(name) for name in _FINISHED)
        if not waiting or finished != self._finished or not 0 < self.waiting <= waiting:
            self._moved(now)
            self.waiting, self._finished = waiting, finished
            return False
        self.waiting = waiting
        if self.state == UNREACHABLE:
            self.state = OK
        if now - self._since < self.stalled_s:
            return False
        self._since = now
        self.state = STALLED
        self.stalls += 1
        return True

    def _moved(self, now: float) -> None:
        self._since = now
        self.state = OK
        self.waiting = 0


def joined(rows: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Rows of one subscription in several topics as one; None when there are none.

    Of topics without a backlog nothing is told: what moves there moves nothing of the others.
    """
    if len(rows) <= 1:
        return rows[0] if rows else None
    behind = [row for row in rows if backlog(row, "", is_heard=False)] or rows[:1]
    return {
        **behind[0],
        **{name: _added(row.get(name) for row in behind) for name in _ADDED},
        "consumers": [name for row in behind for name in row.get("consumers") or ()],
        "upto": tuple(row.get("upto") for row in behind),
    }


def _added(counts: Iterable[int | None]) -> int | None:
    """The sum of what is known; None when nothing is."""
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


def _waiting(row: dict[str, Any]) -> int | None:
    waiting = row.get("waiting")
    return row.get("waiting_min") if waiting is None else waiting


def backlog(row: dict[str, Any] | None, consumer: str, *, is_heard: bool = True) -> int:
    """Messages that this consumer, with nothing in hand, should get; 0 when nobody can tell."""
    found = None if row is None else _waiting(row)
    if row is None or found is None:
        return 0
    waiting, leased = found, int(row.get("leased") or 0)
    if not is_heard:
        return waiting + leased
    has_others = bool(set(row.get("consumers") or ()) - {consumer})
    if row.get("kind") == Kind.KEY_SHARED.value and leased and has_others:
        return 0  # what waits may wait for a key that somebody else has
    if row.get("delayed") is not None and not has_others:
        # Our own broker counts apart what a nack delays: these went to a consumer that has nothing.
        waiting += leased
    return waiting
