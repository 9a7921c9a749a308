"""The watchdog: finds subscriptions that stand still although there is work, and wakes them.

A consumer that silently stops after a reconnect gets nothing and is told nothing. So whoever has
nothing in hand is looked after: the broker is asked for the subscription's backlog, over a second
connection when the first does not answer. A stall is logged, told to `on_stalled`, counted and
shown by `health()`; then the consumer leaves its place and takes a new one.
"""

import asyncio
import logging
from asyncio import AbstractEventLoop, Task, TimerHandle
from collections.abc import Awaitable, Callable
from typing import Any, Final

from penstock.client.deliveries import Deliveries
from penstock.client.stalls import (
    LOOKS,
    OK,
    STALLED_S_DEFAULT,
    Health,
    Stalled,
    Watch,
    Watched,
    joined,
)
from penstock.drivers.capabilities import has
from penstock.drivers.port import Driver, ReconnectingDriver
from penstock.vocabulary import requests as q
from penstock.vocabulary.errors import InvalidArgument, PenstockError, Unavailable
from penstock.vocabulary.filters import is_pattern, matches
from penstock.vocabulary.message import Kind
from penstock.vocabulary.names import MEMBER_MARK

log = logging.getLogger("penstock.client")

LOOK_S_MIN: Final = 0.02
ASK_S_MAX: Final = 5.0
ATTACH_S_MAX: Final = 30.0
"""How long taking a new place may take before it is tried again."""

OnStalled = Callable[[Stalled], object]


class Watchdog:
    """Looks after the subscriptions of one client, on the client's loop."""

    def __init__(
        self, open_driver: Callable[[], Awaitable[Driver]], streams: dict[Deliveries, None],
        stalled_s: float | None = STALLED_S_DEFAULT, on_stalled: OnStalled | None = None,
    ) -> None:  # fmt: skip
        check_stalled_s(stalled_s)
        if on_stalled is not None and not callable(on_stalled):
            raise InvalidArgument(f"on_stalled must be a function, not {on_stalled!r:.80}")
        self._open_driver = open_driver
        self._streams = streams
        self._stalled_s = stalled_s
        self._on_stalled = on_stalled
        self._watches: dict[Deliveries, Watch] = {}
        self._past_stalls = 0
        self._loop: AbstractEventLoop | None = None
        self._timer: TimerHandle | None = None
        self._looking: Task[None] | None = None
        self._spare: Driver | None = None
        self._is_closed = False

    def watch(self, stream: Deliveries, loop: AbstractEventLoop, stalled_s: Any) -> None:
        """Looks after a subscription from now on; `stalled_s` False = as the client says."""
        if stalled_s is False:
            stalled_s = self._stalled_s
        check_stalled_s(stalled_s)
        if stalled_s is None or _name(stream) is None:
            return
        self._loop = loop
        self._watches[stream] = Watch(stalled_s, loop.time())
        self._look_later()

    def health(self) -> Health:
        """How the subscriptions are."""
        self._forget()
        rows = [
            Watched(
                each.topic, each.subscription or "", each.consumer, watch.state, watch.stalls,
                watch.waiting,
            )
            for each, watch in self._watches.items()
        ]  # fmt: skip
        stalls = self._past_stalls + sum(row.stalls for row in rows)
        return Health(all(row.state == OK for row in rows), stalls, rows)

    async def stop(self) -> None:
        """Looks no more; what it opened stays until `close`."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)

    async def close(self) -> None:
        """Closes what it opened. Doing so twice is harmless."""
        if self._spare is not None:
            await self._spare.close()

    # -- looking ---------------------------------------------------------------------------------

    def _forget(self) -> None:
        for stream in [each for each in self._watches if each not in self._streams]:
            self._past_stalls += self._watches.pop(stream).stalls

    def _look_later(self) -> None:
        self._forget()
        if self._is_closed or not self._watches or self._loop is None:
            return
        if self._timer is not None:
            self._timer.cancel()
        pause = min(watch.stalled_s for watch in self._watches.values()) / LOOKS
        self._timer = self._loop.call_later(max(LOOK_S_MIN, pause), self._begin)

    def _begin(self) -> None:
        assert self._loop is not None
        self._timer = None
        if self._looking is None or self._looking.done():
            self._looking = self._loop.create_task(self._look(), name="penstock-watchdog")

    async def _look(self) -> None:
        try:
            for stream, watch in list(self._watches.items()):
                if stream in self._streams:
                    await self._look_at(stream, watch)
        except Exception:
            log.exception("the watchdog failed; it looks again later")
        finally:
            self._look_later()

    async def _look_at(self, stream: Deliveries, watch: Watch) -> None:
        assert self._loop is not None
        if not stream.is_waiting:
            watch.busy(self._loop.time())
            return
        try:
            row = await self._row(stream.driver, stream, watch)
        except (TimeoutError, Unavailable):
            await self._look_from_elsewhere(stream, watch)
            return
        except PenstockError:
            watch.cut_off(self._loop.time())
            return
        if stream.is_waiting and watch.told(self._loop.time(), row, stream.consumer):
            self._tell(stream, watch)
            await self._attach_anew(stream, stream.driver)

    async def _look_from_elsewhere(self, stream: Deliveries, watch: Watch) -> None:
        """Nobody answers: the broker is away, or the connection swallows everything."""
        assert self._loop is not None
        try:
            if watch.can_tell is False or not _is_seen_from_elsewhere(stream.driver):
                watch.cut_off(self._loop.time())
                return
            spare = await self._another()
            row = await self._row(spare, stream, watch)
        except (TimeoutError, PenstockError):
            watch.cut_off(self._loop.time())
        else:
            now = self._loop.time()
            if stream.is_waiting and watch.told(now, row, stream.consumer, is_heard=False):
                self._tell(stream, watch)
                await self._heal(stream, spare)
        finally:
            await self._drop_spare()

    async def _row(self, driver: Driver, stream: Deliveries, watch: Watch) -> dict[str, Any] | None:
        """What the broker says about the subscription; None when it says nothing."""
        name = _name(stream)
        ask = driver.ask(q.ListSubscriptions(stream.topic))
        patience_s = ASK_S_MAX if is_pattern(stream.topic) else min(ASK_S_MAX, watch.stalled_s)
        rows = await asyncio.wait_for(ask, patience_s)
        return joined(
            [
                row
                for row in rows
                if row["subscription"] == name and _is_of(row["topic"], stream.topic)
            ]
        )

    def _tell(self, stream: Deliveries, watch: Watch) -> None:
        news = Stalled(
            stream.topic, stream.subscription or "", stream.consumer, watch.waiting,
            watch.stalled_s,
        )  # fmt: skip
        log.warning("%s", news.text)
        if self._on_stalled is not None:
            try:
                self._on_stalled(news)
            except Exception:
                log.exception("on_stalled failed")

    # -- healing ---------------------------------------------------------------------------------

    async def _heal(self, stream: Deliveries, spare: Driver) -> None:
        """Leaves a connection that is silent."""
        if isinstance(stream.driver, ReconnectingDriver):
            stream.driver.reconnect()  # all its consumers return, with what they hold
        else:
            await self._attach_anew(stream, spare)

    async def _attach_anew(self, stream: Deliveries, driver: Driver) -> None:
        try:
            await asyncio.wait_for(stream.attach_anew(driver), ATTACH_S_MAX)
        except (TimeoutError, PenstockError) as error:
            log.warning("topic %s: subscribing anew failed: %s", stream.topic, error or "no answer")

    async def _another(self) -> Driver:
        """A second connection."""
        if self._spare is None:
            opened = asyncio.ensure_future(self._open_driver())
            self._spare = await asyncio.wait_for(opened, ASK_S_MAX)
        return self._spare

    async def _drop_spare(self) -> None:
        """Closes the second connection, if nobody uses it."""
        spare = self._spare
        if spare is not None and all(each.driver is not spare for each in self._streams):
            self._spare = None
            await spare.close()


class Watching:
    """The part of a Client that tells how its subscriptions are."""

    _watchdog: Watchdog

    def health(self) -> Health:
        """How the client's named subscriptions are: ok, stalled or unreachable; how often stalled.

        `health().is_healthy` is for a probe, `health().metrics()` for Prometheus.
        """
        return self._watchdog.health()


def check_stalled_s(stalled_s: Any) -> None:
    """Raises InvalidArgument unless it is a time, or None for no watching."""
    is_number = isinstance(stalled_s, int | float) and not isinstance(stalled_s, bool)
    if stalled_s is not None and not (is_number and stalled_s > 0):
        raise InvalidArgument(f"stalled_s must be seconds above 0, or None, not {stalled_s!r:.80}")


def _is_seen_from_elsewhere(driver: Driver) -> bool:
    """False for a broker that keeps messages only in the session of a connection."""
    return has(driver.capabilities, "kept")


def _is_of(topic: str, wanted: str) -> bool:
    """True for a topic that is asked for, by its name or by a pattern."""
    return topic == wanted or (is_pattern(wanted) and matches(wanted, topic))


def _name(stream: Deliveries) -> str | None:
    """The subscription whose backlog is this consumer's own; None when there is none."""
    name, policy = stream.subscription, stream.wish.policy
    if name is None or policy is None or policy.kind is not Kind.MULTICAST:
        return name
    return f"{name}{MEMBER_MARK}{stream.consumer}" if stream.wish.is_named else None
