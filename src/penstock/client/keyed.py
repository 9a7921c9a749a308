"""A consumer of kind `key_shared`: the messages of a key in order, also after a nack.

A nack makes the broker take back the later messages of the same key, which then come again in
order. So the key stands still here from the nack on; the broker's answer says what it took, and
what of it was not handed out yet is dropped. What the application has already stays valid: its ack
is accepted until the message is handed out again, and is refused afterwards.

    async with client.subscribe("orders", "billing", kind="key_shared") as deliveries:
        async for message in deliveries:        # each customer's orders one after the other
            if await bill(message.json()):
                message.ack()
            else:
                message.nack(delay_s=5)         # this customer waits, all others go on
"""

from asyncio import AbstractEventLoop
from collections.abc import Awaitable, Callable
from typing import cast

from penstock.batch.frame import Slice
from penstock.client.batches import ReceivedBatch
from penstock.client.deliveries import Deliveries, check_size
from penstock.client.received import Hold, ReceivedMessage
from penstock.client.settling import Settling
from penstock.client.shelf import Key, KeyedHold, Shelf
from penstock.drivers.port import Driver
from penstock.vocabulary.claims import Claim, Revoked
from penstock.vocabulary.records import Cause
from penstock.vocabulary.wishes import Wish


class KeyedSettling(Settling):
    """What a consumer of kind `key_shared` holds and decided."""

    def __init__(
        self, topic: str, loop: AbstractEventLoop, credit: int, *, is_push: bool,
        shelf: Shelf | None = None, home: int = 0,
    ) -> None:  # fmt: skip
        super().__init__(topic, loop, credit, renews_handed=is_push)
        self.shelf = Shelf(is_single=is_push) if shelf is None else shelf
        self._home = home
        self._nacks: dict[Claim, list[Key]] = {}
        """Nacks under way, and the keys that stand still for them."""

    def hold(self, part: Slice) -> KeyedHold:
        """Notes that a slice arrived."""
        hold = KeyedHold(self, part, self._home)
        hold.round = self._round
        self.holds[hold.lease_id] = hold
        self.shelf.add(hold)
        return hold

    def void(self, lease_id: int) -> None:
        """What was not handed out of this lease is not handed out any more."""
        hold = self.holds.pop(lease_id, None)
        if isinstance(hold, KeyedHold):
            with self._lock:
                self.shelf.drop(hold, ((hold.start, hold.end),))

    def finish_handed(self) -> None:
        """QoS 0: what the application was given takes no credit any more. On the loop's thread."""
        for hold in list(self.holds.values()):
            offsets = [o for low, high in hold.begun() for o in range(low, high)]
            if offsets:
                self.ack_many(hold, offsets)
        self.send()

    def _return(
        self, hold: Hold, claim: Claim, cause: Cause, delay_s: float | None, reason: str
    ) -> None:
        if cause is not Cause.NACKED:
            super()._return(hold, claim, cause, delay_s, reason)
            return
        keys = _keys(cast("KeyedHold", hold), claim)
        self._nacks[claim] = keys
        self.shelf.stop(keys)
        try:
            super()._return(hold, claim, cause, delay_s, reason)
        except BaseException:
            self._go_on(claim)
            raise

    def on_revoked(self, news: Revoked) -> None:
        """Drops what the broker took back; the keys of the nack it answers go on."""
        for lease_id, ranges in news.parts:
            hold = self.holds.get(lease_id)
            if isinstance(hold, KeyedHold):
                with self._lock:
                    self._forget(hold, self.shelf.drop(hold, ranges))
        if news.claim is not None:
            self._go_on(news.claim)

    def _go_on(self, claim: Claim) -> None:
        keys = self._nacks.pop(claim, None)
        if keys is not None:
            self.shelf.go_on(keys)


def _keys(hold: KeyedHold, claim: Claim) -> list[Key]:
    wanted = {offset for low, high in claim.ranges for offset in range(low, high)}
    pairs = zip(hold.offsets(0, hold.count), hold.hashes(), strict=True)
    return [
        (hold.home, hold.partition, h) for h in {h for offset, h in pairs if h and offset in wanted}
    ]


class DeliveriesByKey(Deliveries):
    """Deliveries that wait on a shelf. In push, one message of a key at a time."""

    def __init__(
        self, driver: Driver, loop: AbstractEventLoop, wish: Wish, *,
        prepare: Callable[[], Awaitable[None]] | None = None, is_push: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(driver, loop, wish, prepare=prepare, is_push=is_push)
        self._shelf = Shelf(is_single=is_push)

    async def close(self) -> None:
        """Flushes acks and detaches; what was not settled is delivered again."""
        self._shelf.clear()
        await super().close()

    async def ready(self, deadline: float | None = None) -> bool:
        """True when `current` has messages; False at the deadline, and once this is closed."""
        if not await self.stocked(deadline):
            return False
        self.current = iter(self._shelf.take, None)
        return True

    def take(self, max_messages: int) -> ReceivedBatch:
        """The messages that are there, up to so many."""
        check_size(max_messages)
        batch = ReceivedBatch(self.settling)
        while len(batch) < max_messages:
            found = self._shelf.take_whole(max_messages - len(batch))
            if found is not None:
                batch.add(*found)
            elif (message := self._shelf.take()) is not None:
                batch.append(message)
            else:
                break
        return batch

    def _find(self) -> bool:
        return self._shelf.has_some()

    def finish(self, message: ReceivedMessage) -> None:
        """In push: the handler is done with this message. On the loop's thread."""
        hold = message._sheet.hold  # noqa: SLF001 - a message is the other half of its hold
        self._shelf.finish(cast("KeyedHold", hold), message.at)
        self._wake(1)


class KeyedDeliveries(DeliveriesByKey):
    """The messages of a `key_shared` subscription of one topic."""

    def __init__(
        self, driver: Driver, loop: AbstractEventLoop, wish: Wish, *,
        prepare: Callable[[], Awaitable[None]] | None = None, is_push: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(driver, loop, wish, prepare=prepare, is_push=is_push)
        self._keyed = KeyedSettling(
            wish.topic, loop, wish.credit, is_push=is_push, shelf=self._shelf
        )
        self._keyed.is_once = self.settling.is_once
        self.settling = self._keyed

    def _find(self) -> bool:
        if self._keyed.is_once:
            self._keyed.finish_handed()
        return super()._find()

    def on_slice(self, part: Slice) -> None:
        """Messages arrived, or a lease is void."""
        if self._is_closed:
            return
        if not part.frames:
            self._keyed.void(part.lease_id)
            return
        self._wake(self._keyed.hold(part).count)
        if self._renewing is None:
            self._renew_later()

    def on_revoked(self, news: Revoked) -> None:
        """The broker took messages back."""
        self._keyed.on_revoked(news)
        self._wake(len(self._waiters))
