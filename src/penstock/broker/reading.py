"""The broker's side of readers: open, plan, read, commit, release."""

from collections.abc import Mapping
from typing import Any

import msgspec

from penstock.batch.frame import Frame, frame_of
from penstock.broker.looking import Looking
from penstock.delivery import admin, reader
from penstock.delivery.state import Cursor, Partition, Subscription
from penstock.journal.index import Place
from penstock.journal.sequential import fetch_run
from penstock.vocabulary import names
from penstock.vocabulary.errors import InvalidArgument, PositionNotHeld, RecordDamaged
from penstock.vocabulary.limits import BATCH_COUNT_MAX
from penstock.vocabulary.message import Kind
from penstock.vocabulary.policy import SubscriptionPolicy
from penstock.vocabulary.reading import PlannedRange, ReaderState
from penstock.vocabulary.records import Copied, Lost, Published

POLICY = SubscriptionPolicy(kind=Kind.READER)
TRIES_MAX = 3
"""A record that moved while it was being read is looked for again so often."""


class Reading(Looking):
    """The part of a Broker that serves readers."""

    def open_reader(self, topic_name: str, name: str, owner: str, start: Any) -> ReaderState:
        """Makes `owner` the owner, creating topic and reader when missing; fences the one before.

        Raises ReaderFenced when a newer owner has fenced this one.
        """
        reader.check_owner(owner)
        names.check_subscription(name)
        self.refuse_taken(topic_name, name)
        engine = self.engine
        with engine.lock:
            engine.check_alive()
            topic = (
                admin.find_topic(self.state, topic_name)
                if names.is_dead_topic(topic_name)
                else self._ensure_topic(topic_name)
            )
            known = (topic.subscriptions or {}).get(name)
        if known is None or known.is_removing:
            starts = self._starts(topic, start, "earliest")
            wall = engine.clock.wall()
            self._run(
                lambda: admin.decide_create_subscription(
                    self.state, topic, name, POLICY, starts, wall, is_explicit=False
                )
            )
        self._run(lambda: reader.decide_open(self._reader(topic_name, name), owner))
        return self.describe_reader(topic_name, name)

    def describe_reader(self, topic_name: str, name: str) -> ReaderState:
        """Where a reader is."""
        with self.engine.lock:
            return reader.describe_reader(self._reader(topic_name, name))

    def _reader(self, topic_name: str, name: str) -> Subscription:
        return admin.find_subscription(admin.find_topic(self.state, topic_name), name)

    # -- plan ------------------------------------------------------------------------------------

    def plan_ranges(
        self, topic_name: str, name: str, owner: str, max_messages: int | None,
        max_bytes: int | None, after: Mapping[int, int] | None,
    ) -> list[PlannedRange]:  # fmt: skip
        """What to read next, after the planned range or after these offsets; held from now on.

        At least one message when there is any. Raises ReaderFenced, PositionNotHeld.
        """
        for what, limit in (("max_messages", max_messages), ("max_bytes", max_bytes)):
            if limit is not None and (
                not isinstance(limit, int) or isinstance(limit, bool) or limit < 1
            ):
                raise InvalidArgument(f"{what} must be a whole number from 1 on, not {limit!r}")
        while True:
            with self.engine.lock:
                subscription = self._reader(topic_name, name)
                seen = list(reader.check_reader(subscription, owner).next_planned)
                begins = dict(zip(subscription.cursors, seen, strict=True))
                for index, offset in (after or {}).items():
                    cursor = reader.check_read(subscription, owner, index, offset, offset)
                    begins[cursor] = offset
                waiting = {
                    cursor: cursor.done.missing(start, cursor.partition.next_offset)
                    for cursor, start in begins.items()
                }
            ends = self._ends(begins, waiting, max_messages, max_bytes)
            if self._planned(topic_name, name, owner, seen, ends):
                return [
                    PlannedRange(cursor.partition.index, start, ends[cursor])
                    for cursor, start in begins.items()
                    if ends[cursor] > start
                ]

    def _planned(
        self, topic_name: str, name: str, owner: str, seen: list[int], ends: dict[Cursor, int]
    ) -> bool:
        """Holds the ranges up to these ends; False when another plan came first."""
        is_first = True

        def decide() -> Any:
            nonlocal is_first
            subscription = self._reader(topic_name, name)
            is_first = reader.check_reader(subscription, owner).next_planned == seen
            if not is_first:
                return None
            wanted = {cursor.partition.index: end for cursor, end in ends.items()}
            return reader.decide_plan(subscription, owner, wanted)

        self._run(decide)
        return is_first

    def _ends(
        self, begins: dict[Cursor, int], waiting: dict[Cursor, int], max_messages: int | None,
        max_bytes: int | None,
    ) -> dict[Cursor, int]:  # fmt: skip
        """Shares the limits out evenly; what a partition does not need, the next ones get."""
        ends: dict[Cursor, int] = {}
        shares = sorted(waiting, key=lambda cursor: waiting[cursor])
        has_some = False
        for number, cursor in enumerate(shares):
            left = len(shares) - number
            count = waiting[cursor]
            if max_messages is not None:
                count = min(count, -(-max_messages // left))
            budget = None if max_bytes is None else max_bytes // left
            # One message that is larger than the whole limit still goes, or nothing ever would.
            is_last = left == 1 and not has_some
            ends[cursor], taken, size = self._measure(
                cursor, begins[cursor], count, budget, is_sure=is_last
            )
            has_some = has_some or taken > 0
            max_messages = None if max_messages is None else max_messages - taken
            max_bytes = None if max_bytes is None else max(0, max_bytes - size)
        return ends

    def _measure(
        self, cursor: Cursor, start: int, count: int, budget: int | None, *, is_sure: bool
    ) -> tuple[int, int, int]:
        """(end, messages, bytes) of at most so many messages and bytes from `start` on."""
        with self.engine.lock:
            end = reader.count_upto(cursor, start, count) if count else start
            runs = list(cursor.done.gaps(start, end))
        if budget is None:
            return end, count, 0
        taken = used = 0
        for low, high in runs:
            at = low
            while at < high:
                for upto, each in self._sizes(cursor.partition, at, high):
                    fits = min(upto - at, max(0, budget - used) // each)
                    if not fits and not taken and is_sure:
                        fits = 1
                    taken += fits
                    used += fits * each
                    if at + fits < upto:
                        return (at + fits if taken else start), taken, used
                    at = upto
        return end, taken, used

    def _sizes(self, partition: Partition, at: int, end: int) -> list[tuple[int, int]]:
        """(end, bytes of each message) of the records from `at` on, as many as are known at once.

        What cannot be read any more costs next to nothing.
        """
        places, is_copy = self._run_of(partition, at, end)
        if not is_copy:
            rows = [
                (min(end, place.last + 1), -(-place.length // (place.last - place.first + 1)))
                for place in places
            ]
            return rows or [(at + 1, 1)]
        (found,) = fetch_run(self.journal, places, partition.key)
        frame = _frame(found, at, end) if isinstance(found, Copied) else None
        if frame is None or not isinstance(found, Copied):
            return [(at + 1, 1)]
        return [(frame.offsets[-1] + 1, -(-len(found.batch) // len(found.offsets)))]

    def _run_of(self, partition: Partition, at: int, end: int) -> tuple[list[Place], bool]:
        return self.journal.index.run(partition.key, at, min(end, at + BATCH_COUNT_MAX))

    # -- read ------------------------------------------------------------------------------------

    def read_range(
        self, topic_name: str, name: str, owner: str, partition: int, start: int, end: int,
        bytes_max: int,
    ) -> tuple[list[Frame], int]:  # fmt: skip
        """Frames of start…end, about so many bytes of them, and the offset to go on from.

        Raises ReaderFenced, PositionNotHeld.
        """
        with self.engine.lock:
            subscription = self._reader(topic_name, name)
            cursor = reader.check_read(subscription, owner, partition, start, end)
            runs = list(cursor.done.gaps(start, end))
        frames: list[Frame] = []
        lost: list[tuple[int, int]] = []
        size = 0
        upto = end
        for low, high in runs:
            upto, added = self._read_run(
                cursor.partition, low, high, frames, lost, bytes_max - size
            )
            size += added
            if upto < high or size >= bytes_max:
                break
        else:
            upto = end
        self._recheck(cursor, partition, start, lost)
        return frames, upto

    def _recheck(
        self, cursor: Cursor, partition: int, start: int, lost: list[tuple[int, int]]
    ) -> None:
        """A commit meanwhile may have released what was read; what is still held is lost."""
        with self.engine.lock:
            place = reader.reader_of(cursor.subscription)
            if place.progress[partition] > start or cursor.subscription.is_removing:
                raise PositionNotHeld(
                    f"reader {cursor.subscription.name!r} moved on to "
                    f"{partition}:{place.progress[partition]} while {partition}:{start} was read",
                    lowest=f"{partition}:{place.progress[partition]}",
                )
            gone = tuple(gap for low, high in lost for gap in cursor.done.gaps(low, high))
        if gone and self.journal.failed is None:
            for low, high in gone:
                self.journal.note(
                    f"{cursor.partition.topic.name}: messages {low}–{high - 1} cannot be read "
                    "any more"
                )
            self.engine.call(Lost(cursor.partition.topic.id, partition, gone))

    def _read_run(
        self, partition: Partition, start: int, end: int, frames: list[Frame],
        lost: list[tuple[int, int]], bytes_max: int,
    ) -> tuple[int, int]:  # fmt: skip
        """Reads from `start` until `end` or so many bytes; returns how far and how many bytes."""
        at, size, tries = start, 0, 0
        while at < end and size < bytes_max:
            places, _ = self._run_of(partition, at, end)
            if not places:
                lost.append((at, at + 1))
                at += 1
                continue
            chosen, room = [], bytes_max - size
            for place in places:
                chosen.append(place)
                room -= place.length
                if room <= 0:
                    break
            before = at
            for place, found in zip(
                chosen, fetch_run(self.journal, chosen, partition.key), strict=True
            ):
                if isinstance(found, RecordDamaged):
                    self.journal.note(f"{partition.topic.name}: {found}")
                    place.segment.is_damaged = True
                    lost.append((at, min(place.last + 1, end)))
                    at = lost[-1][1]
                    continue
                frame = None if found is None else _frame(found, at, end)
                if frame is None:
                    break  # Compaction moved it: its new place is looked up.
                frames.append(frame)
                size += len(frame.batch)
                at = frame.offsets[-1] + 1
            tries = 0 if at > before else tries + 1
            if tries > TRIES_MAX:
                lost.append((at, at + 1))
                at, tries = at + 1, 0
        return at, size

    # -- commit and release ----------------------------------------------------------------------

    def commit_reader(
        self, topic_name: str, name: str, owner: str, ends: Mapping[int, int]
    ) -> None:
        """Everything below these ends is finished. Raises ReaderFenced, NotPlanned."""
        self._run(lambda: reader.decide_commit(self._reader(topic_name, name), owner, ends))

    def release_reader(self, topic_name: str, name: str, owner: str, *, is_forced: bool) -> None:
        """Removes the reader. Raises ReaderFenced, SubscriptionInUse."""
        self._run(
            lambda: reader.decide_release(
                self._reader(topic_name, name), owner, is_forced=is_forced
            )
        )


def _frame(found: Published | Copied, at: int, end: int) -> Frame | None:
    """The messages of a record from `at` on that follow without a gap, or None."""
    frame = frame_of(found, at, end)
    if not frame.offsets or frame.offsets[0] != at:
        return None
    count = len(frame.offsets)
    if isinstance(frame.offsets, range) or frame.offsets[-1] == at + count - 1:
        return frame
    count = next(n for n, offset in enumerate(frame.offsets) if offset != at + n)
    return msgspec.structs.replace(
        frame, offsets=frame.offsets[:count], indexes=frame.indexes[:count]
    )
