"""The desk: half a broker on the client's side, for one consumer of a foreign broker.

It decides what our own broker would decide: how much credit is left, which messages are leased and
until when, what an ack or nack means, when a message comes again and when it is a dead letter. It
never does any of it: every call returns Work, which the attachment carries out. Pure: time comes
in as `now` (monotonic seconds) and `wall` (Unix milliseconds).

    letters ── arrived ──► slices for the client        claims ── ack, give_back ──► orders
                           orders for the broker        time   ── tick ────────────► both
"""

from collections.abc import Iterator
from enum import IntEnum
from heapq import heappop, heappush
from itertools import count
from math import inf
from typing import Final
from zlib import crc32

import msgspec

from penstock.batch import encode_columns
from penstock.batch.frame import Frame, Slice
from penstock.drivers.foreign.carrier import Release, Traits
from penstock.drivers.foreign.envelope import DEAD_MARK, Letter, alike, bytes_of, columns_of
from penstock.vocabulary import names
from penstock.vocabulary.claims import Claim, Refusal, Renewal, Revoked
from penstock.vocabulary.limits import SLICE_COUNT_MAX
from penstock.vocabulary.policy import SubscriptionPolicy
from penstock.vocabulary.records import Cause, Ranges

RENEW_SHARE: Final = 3
"""A lease is renewed at the broker so often in its length."""
LAPSED_LEASES: Final = 10.0
"""So many leases long a lapsed delivery is remembered, for an ack that comes late."""
HANDED_AGAIN: Final = -1.0
"""In place of the end of a lease: the client was given the message once more."""
MEAN_BYTES_FIRST: Final = 1024.0
"""Size of a message while none was seen."""
NOBODY: Final = bytes(16)
NOT_FINISHED: Final = "its consumers did not finish it"


class State(IntEnum):
    """Where a delivery is."""

    OUT = 1
    LAPSED = 2
    """Its lease ended: the broker may have given it to another consumer."""
    DONE = 3


class Held:
    """One delivery."""

    __slots__ = ("lease", "letter", "renewed", "state", "until")

    def __init__(self, letter: Letter, now: float, lease_s: float) -> None:
        self.lease: Lease | None = None
        self.letter = letter
        self.state = State.OUT
        self.until = now + lease_s
        self.renewed = now


class Lease:
    """The deliveries of one slice, by their numbers from `start` on."""

    __slots__ = ("items", "left", "partition", "start")

    def __init__(self, partition: int, start: int, items: list[Held]) -> None:
        self.partition = partition
        self.start = start
        self.items = items
        self.left = len(items)
        """Deliveries that are not done."""
        for held in items:
            held.lease = self

    def claimed(self, claim: Claim) -> Iterator[Held]:
        """What a claim means."""
        for low, high in claim.ranges:
            for at in range(max(low, self.start), min(high, self.start + len(self.items))):
                if not claim.mask or claim.mask >> (at - low) & 1:
                    yield self.items[at - self.start]


class Work(msgspec.Struct):
    """What follows from an event: for the client, and for the broker."""

    slices: list[Slice] = msgspec.field(default_factory=list)
    refusals: list[Refusal] = msgspec.field(default_factory=list)
    renew: list[Letter] = msgspec.field(default_factory=list)
    settle: list[Letter] = msgspec.field(default_factory=list)
    bury: list[Letter] = msgspec.field(default_factory=list)
    release: list[Release] = msgspec.field(default_factory=list)
    revoked: list[Revoked] = msgspec.field(default_factory=list)
    """Kind `key_shared`: for the client."""

    def has_orders(self) -> bool:
        """True when the broker must be told something."""
        return bool(self.renew or self.settle or self.bury or self.release)

    def add(self, other: "Work") -> None:
        """Takes the orders of later work in."""
        self.renew += other.renew
        self.settle += other.settle
        self.bury += other.bury
        self.release += other.release


class Desk:
    """What one consumer holds."""

    def __init__(
        self, topic: str, subscription: str | None, consumer: str, policy: SubscriptionPolicy,
        credit: int, credit_bytes: int, traits: Traits,
    ) -> None:  # fmt: skip
        self.topic = topic
        self.subscription = subscription
        self.consumer = consumer
        self.policy = policy
        self.expired = 0
        """Messages that were not delivered because their time was over."""
        self.skipped = 0
        """Messages that were meant for another subscription only."""
        self.dropped = 0
        """Messages given up without a dead letter: an ephemeral subscription has none."""
        self._credit = credit
        self._credit_bytes = credit_bytes
        self._traits = traits
        self._release_s_max = policy.lease_s if traits.is_release_leased else traits.release_s_max
        self._out = 0
        self._out_bytes = 0
        self._mean_bytes = MEAN_BYTES_FIRST
        self._leases: dict[int, Lease] = {}
        self._lease_ids = count(1)
        self._next_at: dict[int, int] = {}
        self._resting: list[tuple[float, int, Held]] = []
        """Heap of what waits here until it is due: (due, number, delivery)."""
        self._numbers = count()
        self._begin()

    def _begin(self) -> None:
        """What a kind of desk has besides."""

    @property
    def has_dead_letters(self) -> bool:
        """True when a hopeless message has somewhere to go."""
        return self.subscription is not None and not names.is_dead_topic(self.topic)

    @property
    def is_once(self) -> bool:
        """QoS 0: what was fetched is finished."""
        return self.policy.qos == 0

    def room(self) -> tuple[int, int]:
        """How many messages and bytes may be fetched now; (0, 0) when none."""
        count_left = self._credit - self._out
        bytes_left = self._credit_bytes - self._out_bytes
        if count_left <= 0 or (bytes_left <= 0 and self._out):
            return 0, 0
        # Few brokers count bytes, so that bytes become messages of the size seen lately.
        fitting = max(1, int(bytes_left / max(self._mean_bytes, 1.0)))
        return min(count_left, fitting), max(bytes_left, 1)

    # -- in --------------------------------------------------------------------------------------

    def arrived(self, letters: list[Letter], now: float, wall: int) -> Work:
        """Letters were fetched: most are for the client."""
        work = Work()
        mean = bytes_of(letters) / len(letters)
        self._mean_bytes += (mean - self._mean_bytes) / 2
        limit = self._failures_max
        kept: list[Letter] = []
        for letter in letters:
            letter.attempt = letter.attempt or 1
            if letter.target and letter.target != self.subscription:
                self.skipped += 1
                work.settle.append(letter)
            elif letter.expires_at and letter.expires_at <= wall:
                self.expired += 1
                work.settle.append(letter)
            elif letter.deliver_at > wall:
                self._send_back(work, letter, (letter.deliver_at - wall) / 1000, now, is_new=True)
            elif letter.attempt > limit:
                work.bury.append(self._dead(letter, "max_attempts", NOT_FINISHED, wall))
            else:
                kept.append(letter)
        if self.is_once:
            work.settle.clear()  # finished when it was fetched
        self._hand_out(kept, now, work)
        return work

    def _hand_out(self, letters: list[Letter], now: float, work: Work) -> None:
        for partition, attempt, together in alike(letters):
            for low in range(0, len(together), SLICE_COUNT_MAX):
                part = together[low : low + SLICE_COUNT_MAX]
                work.slices.append(self._slice(part, partition, attempt, now))

    def _slice(self, letters: list[Letter], partition: int, attempt: int, now: float) -> Slice:
        start = self._next_at.get(partition, 0)
        end = self._next_at[partition] = start + len(letters)
        lease_id = next(self._lease_ids)
        items = [Held(letter, now, self.policy.lease_s) for letter in letters]
        self._leases[lease_id] = Lease(partition, start, items)
        self._out += len(letters)
        self._out_bytes += bytes_of(letters)
        frame = Frame(
            encode_columns(columns_of(letters)), range(start, end), range(len(letters)), 0, NOBODY,
            0, 0, [(letter.offset, letter.position) for letter in letters],
        )  # fmt: skip
        return Slice(lease_id, partition, start, end, attempt, [frame])

    # -- decisions of the client -----------------------------------------------------------------

    def ack(self, claims: list[Claim]) -> Work:
        """The client finished messages."""
        work = Work()
        for claim in claims:
            lease = self._leases.get(claim.lease_id)
            if lease is None:
                work.refusals += _forgotten(claim)
                continue
            finished: list[Letter] = []
            out, done = State.OUT, State.DONE
            for held in lease.claimed(claim):
                if held.state is out:
                    held.state = done
                    finished.append(held.letter)
                elif self._may_settle(held, lease, work):
                    self._finish(held)
                    work.settle.append(held.letter)
            lease.left -= len(finished)
            self._out -= len(finished)
            self._out_bytes -= bytes_of(finished)
            work.settle += finished
            self._forget_if_done(claim.lease_id, lease)
        if self.is_once:
            work.settle.clear()
        return work

    def meant(self, claims: list[Claim]) -> tuple[list[Letter], list[Refusal]]:
        """The letters that claims speak of, and those that are not held any more."""
        letters: list[Letter] = []
        refusals: list[Refusal] = []
        for claim in claims:
            lease = self._leases.get(claim.lease_id)
            if lease is None:
                refusals += _forgotten(claim)
                continue
            for held in lease.claimed(claim):
                if held.state is State.DONE:
                    refusals.append(_refusal(lease, held, "it was settled or handed out again"))
                else:
                    letters.append(held.letter)
        return letters, refusals

    def give_back(
        self, claim: Claim, cause: Cause, delay_s: float | None, reason: str, now: float, wall: int
    ) -> Work:  # fmt: skip
        """The client sends messages back: nack or reject."""
        work = Work()
        lease = self._leases.get(claim.lease_id)
        if lease is None:
            return Work(refusals=list(_forgotten(claim)))
        for held in lease.claimed(claim):
            if not self._may_settle(held, lease, work):
                continue
            was_lapsed = held.state is State.LAPSED
            self._finish(held)
            letter = held.letter
            if self.is_once:
                continue
            if cause is Cause.REJECTED and self.has_dead_letters:
                work.bury.append(self._dead(letter, "rejected", reason, wall))
            elif cause is Cause.REJECTED and self.subscription is None:
                self.dropped += 1
                work.settle.append(letter)
            elif self._is_exhausted(letter.attempt):
                work.bury.append(self._dead(letter, "max_attempts", reason, wall))
            elif not was_lapsed:  # else it is on its way already
                delay = self._backoff_s(letter) if delay_s is None else delay_s
                self._send_back(work, letter, delay, now)
        self._forget_if_done(claim.lease_id, lease)
        return work

    def extend(self, renewals: list[Renewal], seconds: float, now: float) -> Work:
        """The client needs more time."""
        work = Work()
        for lease_id, start, end in renewals:
            lease = self._leases.get(lease_id)
            if lease is None:
                continue
            low = max(0, start - lease.start)
            high = len(lease.items) if end is None else end - lease.start
            for held in lease.items[low:high]:
                if held.state is State.OUT:
                    held.until = now + seconds
                    self._renew_if_due(held, now, work)
        return work

    def detach(self, begun: dict[int, Ranges], now: float) -> Work:
        """The client leaves: what it holds goes back; what it never began, without an attempt."""
        work = Work()
        for lease_id, lease in self._leases.items():
            ranges = begun.get(lease_id, ())
            for at, held in enumerate(lease.items, lease.start):
                if held.state is State.OUT:
                    is_begun = any(low <= at < high for low, high in ranges)
                    work.release.append(Release(held.letter, 0.0, not is_begun))
        for due, _, held in self._resting:
            if held.state is not State.DONE:
                delay, limit = max(0.0, due - now), self._release_s_max
                work.release.append(
                    Release(held.letter, delay if limit is None else min(delay, limit))
                )
        if self.is_once or not self._traits.has_release:
            work.release.clear()
        self._leases.clear()
        self._resting.clear()
        self._out = self._out_bytes = 0
        return work

    def let_go(self, partitions: set[int]) -> Work:
        """Partitions move to another consumer: what the application has not got, it never gets."""
        work = Work()
        for lease_id, lease in self._leases.items():
            if lease.partition in partitions:
                end = lease.start + len(lease.items)
                work.slices.append(Slice(lease_id, lease.partition, lease.start, end, 0, []))
                for held in lease.items:
                    if held.state is State.OUT:
                        self._return_credit(held.letter)
                        held.state = State.LAPSED
        return work

    # -- time ------------------------------------------------------------------------------------

    def next_due(self) -> float | None:
        """When something that waits here is due; None when nothing waits."""
        return self._resting[0][0] if self._resting else None

    def tick(self, now: float, wall: int) -> Work:
        """Time passed: leases end or are renewed, what rested here goes on."""
        work = Work()
        for lease_id, lease in list(self._leases.items()):
            newest = 0.0
            for held in lease.items:
                newest = max(newest, held.until)
                if held.state is not State.OUT:
                    continue
                if held.until <= now:
                    self._lapse(held, now, wall, work)
                else:
                    self._renew_if_due(held, now, work)
            if newest + LAPSED_LEASES * self.policy.lease_s < now:
                del self._leases[lease_id]
        self._wake(now, work)
        return work

    def _lapse(self, held: Held, now: float, wall: int, work: Work) -> None:
        self._return_credit(held.letter)
        held.state = State.LAPSED
        if self._traits.has_leases or self.is_once:
            return  # the broker gives it to somebody
        if self._is_exhausted(held.letter.attempt):
            _done(held)
            work.bury.append(self._dead(held.letter, "max_attempts", "lease expired", wall))
        else:
            heappush(self._resting, (now, next(self._numbers), held))

    def _renew_if_due(self, held: Held, now: float, work: Work) -> None:
        """Renews a lease at the broker when it is to last longer than the broker knows."""
        if not self._traits.has_leases or self.is_once:
            return
        lease_s = self.policy.lease_s
        is_longer = held.until > held.renewed + lease_s
        if is_longer and now >= held.renewed + lease_s / RENEW_SHARE:
            held.renewed = now
            work.renew.append(held.letter)

    def _wake(self, now: float, work: Work) -> None:
        """What rested here and is due goes to the client again, or to the broker."""
        again: list[Letter] = []
        lease_s, limit = self.policy.lease_s, self._release_s_max
        if self._traits.has_release and limit is not None:
            for due, _, held in self._resting:
                if due - now > limit and now >= held.renewed + lease_s / RENEW_SHARE:
                    held.renewed = now
                    work.renew.append(held.letter)
        ahead = limit or 0.0 if self._traits.has_release else 0.0
        while self._resting and self._resting[0][0] <= now + ahead:
            due, _, held = heappop(self._resting)
            if held.state is State.DONE:
                continue
            _done(held)
            if self._traits.has_release:
                work.release.append(Release(held.letter, max(0.0, due - now)))
            else:
                held.until = HANDED_AGAIN
                again.append(_next_attempt(held.letter))
        self._hand_out(again, now, work)

    # -- what becomes of one message -------------------------------------------------------------

    def _may_settle(self, held: Held, lease: Lease, work: Work) -> bool:
        if held.state is State.DONE:
            if held.until == HANDED_AGAIN:
                work.refusals.append(_refusal(lease, held, "it was handed out again"))
            return False
        return True

    def _send_back(
        self, work: Work, letter: Letter, delay_s: float, now: float, *, is_new: bool = False
    ) -> None:
        """Brings a message back after a delay: by the broker where it can, else from here."""
        limit = self._release_s_max
        if self._traits.has_release and (limit is None or delay_s <= limit):
            work.release.append(Release(letter, delay_s, is_new))
            return
        held = Held(letter, now, self.policy.lease_s)
        if is_new:
            letter.attempt -= 1
        heappush(self._resting, (now + delay_s, next(self._numbers), held))

    @property
    def _failures_max(self) -> float:
        """So many failures make a dead letter."""
        limit = self.policy.retry.max_attempts
        if limit is None or not self.has_dead_letters or self.is_once:
            return inf
        return limit

    def _is_exhausted(self, failures: int) -> bool:
        return failures >= self._failures_max

    def _backoff_s(self, letter: Letter) -> float:
        """First × 2ⁿ up to max, less up to a quarter of jitter that depends on the message."""
        retry = self.policy.retry
        failures = min(letter.attempt - 1, 30)
        full = min(retry.first_s * 2.0**failures, retry.max_s)
        spread = (crc32(letter.position.encode(), failures) & 0xFFFF) / 0x10000
        return full * (1 - spread / 4)

    def _dead(self, letter: Letter, why: str, reason: str, wall: int) -> Letter:
        """The letter as it goes to the dead letters: with its story, and without its times."""
        tried = letter.attempts + letter.attempt
        place = letter.position if letter.offset is None else str(letter.offset)
        story = {
            "why": why,
            "reason": reason,
            "topic": self.topic,
            "subscription": self.subscription or "",
            "partition": str(letter.partition),
            "offset": place,
            "consumer": self.consumer,
            "attempts": str(tried),
            "at": str(wall),
        }
        told = {DEAD_MARK + name: value for name, value in story.items()}
        return msgspec.structs.replace(
            letter, headers={**letter.headers, **told}, attempts=tried, expires_at=0, deliver_at=0,
            target="", dedup=f"dead {self.subscription} {letter.position} {tried}",
        )  # fmt: skip

    def _finish(self, held: Held) -> None:
        if held.state is State.OUT:
            self._return_credit(held.letter)
        _done(held)

    def _return_credit(self, letter: Letter) -> None:
        self._out -= 1
        self._out_bytes -= letter.size

    def _forget_if_done(self, lease_id: int, lease: Lease) -> None:
        if not lease.left:
            self._leases.pop(lease_id, None)


def _done(held: Held) -> None:
    held.state = State.DONE
    if held.lease is not None:
        held.lease.left -= 1


def _next_attempt(letter: Letter) -> Letter:
    return msgspec.structs.replace(letter, attempt=letter.attempt + 1)


def _refusal(lease: Lease, held: Held, why: str) -> Refusal:
    offset = held.letter.offset
    return Refusal(lease.partition, -1 if offset is None else offset, why)


def _forgotten(claim: Claim) -> Iterator[Refusal]:
    for low, high in claim.ranges:
        for at in range(low, high):
            if not claim.mask or claim.mask >> (at - low) & 1:
                yield Refusal(claim.partition, at, "its lease ended long ago")
