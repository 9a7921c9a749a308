"""One consumer's decisions on their way to the broker: acks collected, merged and sent in time.

Acks are noted by the message itself; here they become ranges, every few milliseconds or when half
the credit is used up. Nacks, rejects and extensions go at once. Refusals are kept until `flush()`.
"""

from asyncio import AbstractEventLoop, TimerHandle
from threading import Lock, get_ident
from typing import Final

from penstock.batch.frame import Slice
from penstock.client.received import Hold, ReceivedMessage
from penstock.drivers.port import Attachment
from penstock.vocabulary.claims import Claim, Refusal, Renewal
from penstock.vocabulary.errors import (
    AckRefused,
    AlreadySettled,
    Closed,
    InvalidArgument,
    PenstockError,
)
from penstock.vocabulary.limits import ACK_DELAY_S_MAX, DELAY_S_MAX
from penstock.vocabulary.records import Cause, Ranges

EXTEND_S_MAX: Final = 24 * 3600.0
RENEW_SHARE: Final = 10
"""What waits in the client is renewed this often in the length of a lease."""
ROUNDS_MAX: Final = 10 * RENEW_SHARE
"""Renewals after which a message that was never settled is forgotten."""
LISTED_MAX: Final = 3
"""Refusals named in the text of an error; the list has all."""


class Settling:
    """Everything one consumer holds, and what it decided about it."""

    def __init__(
        self, topic: str, loop: AbstractEventLoop, credit: int, *, renews_handed: bool
    ) -> None:
        self.topic = topic
        self.unsent = 0
        self.unsent_max = max(1, credit // 2)
        self.failure: Exception | None = None
        """Why acks could not be sent."""
        self.holds: dict[int, Hold] = {}
        """Lease id → what is not completely settled."""
        self.attachment: Attachment | None = None
        self.is_once = False
        """QoS 0: finished when handed out, so that what is said later changes nothing."""
        self._loop = loop
        self._thread = get_ident()
        self._round = 0
        self._renews_handed = renews_handed
        self._refused: list[Refusal] = []
        self._dirty: list[Hold] = []
        self._timer: TimerHandle | None = None
        self._is_closed = False
        self._lock = Lock()
        """Guards `done` and `left` of the holds, which nack changes from any thread."""

    # -- in --------------------------------------------------------------------------------------

    def hold(self, part: Slice) -> Hold:
        """Notes that a slice arrived."""
        hold = Hold(self, part)
        hold.round = self._round
        self.holds[hold.lease_id] = hold
        return hold

    def void(self, lease_id: int) -> None:
        """What was not handed out of this lease is not handed out any more."""
        hold = self.holds.pop(lease_id, None)
        if hold is not None:
            hold.take(hold.count)

    def collect(self, hold: Hold) -> None:
        """The hold has acks to send: now, when half the credit waits, or soon. For any thread."""
        if self._is_closed:
            raise Closed(
                f"the subscription to {self.topic!r} was closed; what was not settled before is "
                "delivered again"
            )
        if not hold.is_dirty:
            hold.is_dirty = True
            self._dirty.append(hold)
        is_full = self.unsent >= self.unsent_max
        if get_ident() == self._thread:
            self.send() if is_full else self._send_soon()
        elif is_full or self._timer is None:
            self._call_soon(is_full=is_full)

    def _call_soon(self, *, is_full: bool) -> None:
        if is_full:
            self.unsent = 0  # counted out already: one call is enough
        try:
            self._loop.call_soon_threadsafe(self.send if is_full else self._send_soon)
        except RuntimeError:
            raise Closed("the event loop of this client is closed; the ack is lost") from None

    def _send_soon(self) -> None:
        if self._timer is None and not self._is_closed:
            self._timer = self._loop.call_later(ACK_DELAY_S_MAX, self.send)

    def ack_up_to(self, message: ReceivedMessage) -> None:
        """Acks what was handed out on the message's partition, up to this message."""
        message.settle()
        partition, upto = message.partition, message.at
        for hold in list(self.holds.values()):
            if hold.partition == partition and hold.start <= upto:
                offsets = [o for o in hold.handed_offsets() if o <= upto]
                self.ack_many(hold, offsets)

    def ack_many(self, hold: Hold, offsets: list[int]) -> None:
        """Acks these messages of a hold, except what is settled already."""
        if offsets:
            hold.together = 0 if hold.acked else len(offsets)  # before they can be taken
            hold.acked.extend(offsets)
            self.unsent += len(offsets)
            self.collect(hold)

    # -- out -------------------------------------------------------------------------------------

    def send(self) -> None:
        """Sends the collected acks, merged into ranges. On the loop's thread."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.unsent = 0
        count = len(self._dirty)
        dirty = self._dirty[:count]
        del self._dirty[:count]
        claims: list[Claim] = []
        for hold in dirty:
            hold.is_dirty = False  # before looking: a later ack makes it dirty again
            ranges, mask = self._drain(hold)
            if ranges:
                claims.append(Claim(hold.lease_id, hold.partition, hold.attempt, ranges, mask))
        if claims and self.attachment is not None:
            try:
                self.attachment.ack(claims)
            except PenstockError as error:
                self.failure = error

    def _drain(self, hold: Hold) -> tuple[Ranges, int]:
        """Takes the collected acks of a hold; what was settled otherwise is left out."""
        acked = hold.acked
        count = len(acked)
        taken = acked[:count]
        del acked[:count]
        if not count:
            return (), 0
        taken.sort()
        low, high = taken[0], taken[-1] + 1
        with self._lock:
            bits = ((1 << (high - low)) - 1) << (low - hold.start)
            # A message acked twice, alone and with its batch, must not stand for one in a gap.
            is_plain = hold.together in (-1, count)
            is_run = high - low == count and (is_plain or taken == list(range(low, high)))
            if is_run and not hold.done & bits:
                hold.done |= bits
                self._forget(hold, count)
                return ((low, high),), 0
            # All of them, by one call: then nothing is named twice.
            every = hold.all_bits() if hold.together == count == hold.count else None
            if every is None:
                every = _bits(taken, low, high) << (low - hold.start)
            bits = every & ~hold.done
            hold.done |= bits
            self._forget(hold, bits.bit_count())
        mask = bits >> (low - hold.start)
        return (((low, high),), mask) if mask else ((), 0)

    def _forget(self, hold: Hold, count: int) -> None:
        hold.left -= count
        if hold.left <= 0:
            self.holds.pop(hold.lease_id, None)

    def give_back(
        self, message: ReceivedMessage, cause: Cause, delay_s: float | None, reason: str
    ) -> None:
        """Sends one message back: nack or reject. For any thread."""
        check_delay(delay_s)
        reason = check_reason(reason)
        message.settle()
        hold = message._sheet.hold  # noqa: SLF001 - a message is the other half of its settling
        claim = self._claim(hold, [message.at])
        if claim is None and self.is_once:
            return
        if claim is None:
            raise AlreadySettled(f"message {message.position} was settled before, with others")
        self._return(hold, claim, cause, delay_s, reason)

    def give_back_many(
        self, hold: Hold, offsets: list[int], delay_s: float | None, reason: str
    ) -> None:
        """Nacks these messages of a hold, except what is settled already."""
        claim = self._claim(hold, offsets)
        if claim is not None:
            self._return(hold, claim, Cause.NACKED, delay_s, reason)

    def _return(
        self, _hold: Hold, claim: Claim, cause: Cause, delay_s: float | None, reason: str
    ) -> None:
        self._attached().give_back(claim, cause, delay_s, reason)

    def _claim(self, hold: Hold, offsets: list[int]) -> Claim | None:
        pending = set(hold.acked)
        with self._lock:
            ranges, count = _merge(hold, [o for o in offsets if o not in pending])
            self._forget(hold, count)
        return Claim(hold.lease_id, hold.partition, hold.attempt, ranges) if ranges else None

    def claims_of(self, held: list[tuple[Hold, list[int]]]) -> tuple[Attachment, list[Claim]]:
        """What a unit says about messages it acks; `finish` follows when it is committed.

        Raises Closed.
        """
        attachment = self._attached()
        claims: list[Claim] = []
        for hold, offsets in held:
            claims.append(Claim(hold.lease_id, hold.partition, hold.attempt, _runs(offsets)))
        return attachment, claims

    def finish(self, held: list[tuple[Hold, list[int]]]) -> None:
        """Messages were acked by a unit that is committed."""
        for hold, offsets in held:
            with self._lock:
                bits = _bits(offsets, offsets[0], offsets[-1] + 1) << (offsets[0] - hold.start)
                bits &= ~hold.done
                hold.done |= bits
                self._forget(hold, bits.bit_count())

    def extend(self, message: ReceivedMessage, seconds: float) -> None:
        """Gives one message more time. For any thread."""
        if message.is_settled:
            message.settle()
        if not isinstance(seconds, int | float) or not 0 < seconds <= EXTEND_S_MAX:
            raise InvalidArgument(
                f"extend needs seconds above 0 and up to {EXTEND_S_MAX:.0f}, not {seconds!r}"
            )
        lease_id = message._sheet.hold.lease_id  # noqa: SLF001 - see give_back
        renewal = Renewal(lease_id, message.at, message.at + 1)
        self._attached().extend([renewal], seconds)

    def renew(self) -> None:
        """Renews what is still in the client. For any thread.

        Each renewal lasts until the next one and a whole lease more, so that a message has its
        full lease from the moment it is handed to the application.
        """
        self._round += 1
        renewals: list[Renewal] = []
        for hold in list(self.holds.values()):
            start = hold.first_unsettled if self._renews_handed else hold.first_unhanded
            if start < hold.end:
                renewals.append(Renewal(hold.lease_id, start, None))
            elif self._round - hold.round > ROUNDS_MAX:
                # Handed out long ago and never settled: the broker has delivered it again since.
                self.holds.pop(hold.lease_id, None)
        if renewals and not self._is_closed and self.attachment is not None:
            self.attachment.extend(renewals, self.attachment.lease_s * (1 + 1 / RENEW_SHARE))

    def _attached(self) -> Attachment:
        if self.attachment is None or self._is_closed:
            raise Closed(f"the subscription to {self.topic!r} was closed")
        return self.attachment

    # -- the end ---------------------------------------------------------------------------------

    def on_refused(self, refusals: list[Refusal]) -> None:
        """Keeps what the broker did not accept. For any thread."""
        self._refused.extend(refusals)

    def check_failure(self) -> None:
        """Raises what prevented acks from being sent."""
        if self.failure is not None:
            raise self.failure

    def check_refused(self) -> None:
        """Raises AckRefused with everything refused since the last call."""
        refused, self._refused = self._refused, []
        if not refused:
            return
        listed = [(self.topic, each.partition, each.offset, each.why) for each in refused]
        texts = [f"{each.partition}:{each.offset} ({each.why})" for each in refused[:LISTED_MAX]]
        more = len(refused) - len(texts)
        raise AckRefused(
            f"the broker did not accept {len(refused)} decision(s) on topic {self.topic!r}: "
            + ", ".join(texts)
            + (f" and {more} more" if more else "")
            + "; those that nobody has finished are delivered again",
            refused=listed,
        )

    def begun(self) -> dict[int, Ranges]:
        """Lease id → what the application was given and did not settle."""
        return {hold.lease_id: hold.begun() for hold in list(self.holds.values()) if hold.handed}

    def close(self) -> None:
        """Sends the last acks; nothing can be settled afterwards. On the loop's thread."""
        self.send()
        self._is_closed = True


def check_delay(delay_s: float | None) -> None:
    """Raises InvalidArgument when a nack cannot wait so long."""
    if delay_s is None:
        return
    is_number = isinstance(delay_s, int | float) and not isinstance(delay_s, bool)
    if not is_number or not 0 <= delay_s <= DELAY_S_MAX:
        raise InvalidArgument(
            f"delay_s must be seconds from 0 to {DELAY_S_MAX:.0f}, or None, not {delay_s!r:.80}"
        )


def check_reason(reason: str) -> str:
    """The reason as text that can be stored. Raises InvalidArgument when it is not text."""
    if not isinstance(reason, str):
        raise InvalidArgument(f"reason must be text, not {type(reason).__name__}")
    # The text of an error may hold half a character, such as a file's name that is not UTF-8.
    return reason.encode(errors="backslashreplace").decode()


def _bits(offsets: list[int], low: int, high: int) -> int:
    """A bit for each of these offsets, counted from `low`."""
    digits = bytearray(b"0") * (high - low)
    for offset in offsets:
        digits[high - 1 - offset] = 49  # the digit 1
    return int(digits, 2)


def _runs(offsets: list[int]) -> Ranges:
    """Rising offsets as ranges; one that is named twice stands in two."""
    first, last = offsets[0], offsets[-1]
    if last - first + 1 == len(offsets) == len(set(offsets)):
        return ((first, last + 1),)
    ranges: list[tuple[int, int]] = []
    for offset in offsets:
        if ranges and ranges[-1][1] == offset:
            ranges[-1] = (ranges[-1][0], offset + 1)
        else:
            ranges.append((offset, offset + 1))
    return tuple(ranges)


def by_hold(messages: list[ReceivedMessage]) -> list[tuple[Hold, list[int]]]:
    """Where some messages are: their leases, and the rising offsets in each."""
    found: dict[Hold, list[int]] = {}
    for message in messages:
        hold = message._sheet.hold  # noqa: SLF001 - a message is the other half of its settling
        listed = found.get(hold)
        if listed is None:
            found[hold] = [message.at]
        else:
            listed.append(message.at)
    return [(hold, sorted(offsets)) for hold, offsets in found.items()]


def _merge(hold: Hold, offsets: list[int]) -> tuple[Ranges, int]:
    """Marks these messages settled; returns those that were not, as ranges, and how many."""
    ranges: list[tuple[int, int]] = []
    count = 0
    for offset in offsets:
        bit = 1 << (offset - hold.start)
        if hold.done & bit:
            continue
        hold.done |= bit
        count += 1
        if ranges and ranges[-1][1] == offset:
            ranges[-1] = (ranges[-1][0], offset + 1)
        else:
            ranges.append((offset, offset + 1))
    return tuple(ranges), count
