"""The half of a Run that publishes: new batches, ids given before, and retries."""

from collections.abc import Sequence
from typing import Any

from penstock.batch import encode_many
from penstock.broker.mailbox import DIRECT
from penstock.delivery.publish import is_generated
from penstock.vocabulary.message import Durability, Message, render_id
from penstock.vocabulary.stored import Stored
from tests.crash.base import Base
from tests.crash.given import ALICE
from tests.crash.model import Item
from tests.crash.oracle import Batched, Violation


class Publishing(Base):
    """Commands of publishers."""

    def publish(
        self, topic: str, *bodies: bytes, partition: int = 0, publisher: bytes = ALICE,
        key: str | Sequence[str | None] | None = None, ids: Sequence[str | None] | None = None,
        is_new_epoch: bool = False, is_committed: bool = True, priority: int | Sequence[int] = 0,
        delay_s: float | None = None, ttl_s: float | None = None,
    ) -> None:  # fmt: skip
        """One batch under the publisher's next sequence."""
        self._propose_topic(topic)
        home = self.history.last.topics[topic]
        epoch, sequence = self._next(topic, partition, publisher, is_new_epoch=is_new_epoch)
        self.sequences[home.born, partition, publisher] = (epoch, sequence + len(bodies))
        count, wall = len(bodies), self.clock.wall()
        given = [*ids] if ids else [None] * count
        keys = [key] * count if key is None or isinstance(key, str) else [*key]
        levels = [priority] * count if isinstance(priority, int) else [*priority]
        due = None if delay_s is None else wall / 1000 + delay_s
        expiry = None if ttl_s is None else wall / 1000 + ttl_s
        rows = list(zip(bodies, keys, given, levels, strict=True))
        data = encode_many(
            [
                Message(body=b, key=k, id=i, priority=p, deliver_at=due, expires_at=expiry)
                for b, k, i, p in rows
            ]
        )
        fresh = [
            Item(
                b, k, i or render_id(publisher, epoch, sequence + n), wall, p,
                int((due or 0) * 1000), int((expiry or 0) * 1000),
            )
            for n, (b, k, i, p) in enumerate(rows)
        ]  # fmt: skip
        places: list[int] = []
        out = self.out(topic) if ids else set()
        step = self._propose(
            lambda m: places.extend(
                m.publish(
                    topic, partition, fresh, given, publisher=publisher, epoch=epoch,
                    last=sequence + count - 1, out=out,
                )
            )
        )  # fmt: skip
        end = home.ends[partition]
        batch = Batched(
            step, topic, home.born, partition, places[0], data, count, publisher, epoch, sequence,
            tuple(places), ids is not None,
        )  # fmt: skip
        self.history.batches.append(batch)
        self._send(batch, is_duplicate=max(places) < end)
        if is_committed:
            self.commit()

    def _next(
        self, topic: str, partition: int, publisher: bytes, *, is_new_epoch: bool
    ) -> tuple[int, int]:
        """Epoch and sequence. A publisher the broker does not know begins a new epoch."""
        home = self.history.last.topics[topic]
        epoch, sequence = self.sequences.get((home.born, partition, publisher), (0, 0))
        is_unknown = is_generated(publisher) and (partition, publisher) not in home.publishers
        if is_new_epoch or (is_unknown and sequence):
            return epoch + 1, 0
        return epoch, sequence

    def retry(self, number: int = -1, *, is_committed: bool = True) -> None:
        """Publishes an earlier batch again, as a client that got no answer does."""
        self._send(self.history.batches[number], is_duplicate=True)
        if is_committed:
            self.commit()

    def _send(self, batch: Batched, *, is_duplicate: bool) -> None:
        def answer(result: Any) -> None:
            if isinstance(result, BaseException):
                self.trouble = result
                return
            assert isinstance(result, Stored)
            check_answer(batch, result, is_duplicate=is_duplicate)
            if result.durability is Durability.WRITTEN:
                self.history.tell(batch.born, batch.partition, max(batch.places) + 1)
            else:
                self.history.confirm(batch.step)

        self.broker.publish(
            batch.topic, batch.partition, batch.data, batch.size, batch.publisher, batch.epoch,
            batch.sequence, DIRECT, answer,
        )  # fmt: skip


def check_answer(batch: Batched, answer: Any, *, is_duplicate: bool) -> None:
    """S3, S7: the answer to a batch names the places of its messages, and whether all were old."""
    if not isinstance(answer, Stored) or answer.is_duplicate != is_duplicate:
        raise Violation(f"S7 {batch[:5]} was answered with {answer}")
    known = dict(answer.places or {})
    if answer.base is not None:
        kept = answer.kept if answer.kept is not None else range(batch.size)
        known.update({index: answer.base + rank for rank, index in enumerate(kept)})
    elif not batch.has_ids:
        raise Violation(f"S7 the place of {batch[:5]} is forgotten: {answer}")
    wrong = {n: place for n, place in known.items() if batch.places[n] != place}
    if wrong:
        raise Violation(f"S3 {batch[:5]} was answered with {answer}, should be {batch.places}")
