"""What users, consumers, time and crashes do to the broker: one method for each."""

import re
from copy import deepcopy
from functools import partial
from random import Random
from typing import Any, ClassVar

from penstock.batch import Batch, encode_many
from penstock.broker.mailbox import DIRECT, Pending
from penstock.delivery.settle import merge
from penstock.delivery.units import Claims
from penstock.vocabulary.claims import Claim
from penstock.vocabulary.errors import AckRefused
from penstock.vocabulary.message import Message
from penstock.vocabulary.policy import Retry
from penstock.vocabulary.records import Cause, Ranges
from penstock.vocabulary.units import Part, UnitWish
from tests.broker.rig import NAMED, Worker
from tests.model import book
from tests.model.book import DELAYED, ENDED, LEASED, WAITING, Fact, Place, Sub, demand
from tests.model.driver import IDS, KEYS, KINDS, OWNER, Driver, Handout, cast_of, home_of

WORKERS_MAX = 4
PARTITIONS_MAX = 3
QOS_2 = 2


class Operations(Driver):
    """A driver and everything it may do."""

    operations: ClassVar[dict[str, int]] = {
        "publish": 24, "join": 12, "ack": 24, "unit": 6, "nack": 10, "reject": 2, "hand_back": 3,
        "extend": 3, "leave": 4, "vanish": 2, "wait": 14, "seek": 3, "redrive": 2, "purge": 1,
        "alter_topic": 2, "grow": 1, "alter_sub": 2, "subscribe": 2, "unsubscribe": 1, "read": 4,
        "snapshot": 2, "compact": 2, "restart": 2, "crash": 2, "burst": 4,
    }  # fmt: skip

    # -- publishing --------------------------------------------------------------------------------

    def publish(self, rnd: Random) -> None:
        topic, part, facts = self._part(rnd)
        pending = Pending()
        self.rig.broker.publish(
            topic.name, part.partition, part.batch, part.count, NAMED, 0, part.sequence, DIRECT,
            pending,
        )  # fmt: skip
        self.pending.append((topic.name, part.partition, facts, pending.wait))

    def _part(self, rnd: Random) -> tuple[book.Topic, Part, list[Fact]]:
        """A batch for some topic, with the next numbers of its publisher."""
        topic = rnd.choice(list(self.topics.values()))
        partition = rnd.randrange(topic.partitions)
        facts = [self._fact(rnd, topic, partition) for _ in range(rnd.choice((1, 1, 2, 4, 12)))]
        messages = [
            Message(
                body=f.body, key=f.key, id=f.id, priority=f.priority,
                deliver_at=f.deliver_at / 1000 if f.deliver_at else None,
                expires_at=f.expires_at / 1000 if f.expires_at else None,
            )
            for f in facts
        ]  # fmt: skip
        place = (topic.name, partition)
        sequence = self.rig.sequences.get(place, 0)
        self.rig.sequences[place] = sequence + len(facts)
        part = Part(topic.name, partition, encode_many(messages), len(facts), 0, sequence)
        return topic, part, facts

    def unit(self, rnd: Random) -> None:
        """Publishes and acks as one: all of it happens, or nothing."""
        chosen = self._claim(rnd)
        self.is_burst = True  # Its acks make room before its messages are there.
        before = dict(self.rig.sequences)
        parts = [self._part(rnd) for _ in range(rnd.randint(0 if chosen else 1, 2))]
        number = self.rig.sequences.get("unit", 0)
        self.rig.sequences["unit"] = number + 1
        wish = UnitWish(NAMED, 0, number, [part for _, part, _ in parts])
        pending = Pending()
        acks: Claims = [] if chosen is None else [(chosen[2].consumer, [chosen[3]])]
        try:
            self.rig.broker.commit_unit(wish, acks, DIRECT, pending)
        except AckRefused:
            assert chosen is not None
            handout, sub, _, _, places = chosen
            is_mine = all(self._is_mine(sub, handout, place[1]) for place in places)
            demand(not is_mine, f"a unit was refused whose acks are good: {places}")
            self.rig.sequences = before
            return
        if chosen is not None:
            handout, sub, _, _, places = chosen
            for place in self._accepted(handout, sub, places, []):
                sub.ack(place, handout.part.attempt)
        for index, (topic, part, facts) in enumerate(parts):
            answer = partial(_answer_of, pending, index)
            self.pending.append((topic.name, part.partition, facts, answer))

    def _fact(self, rnd: Random, topic: book.Topic, partition: int) -> Fact:
        self.bodies += 1
        fact = Fact(b"m%d" % self.bodies)
        if rnd.random() < 0.6:
            fact.key = choose(rnd, KEYS, partition, topic.partitions)
        if rnd.random() < 0.2:
            is_free = fact.key is not None
            fact.id = rnd.choice(IDS) if is_free else choose(rnd, IDS, partition, topic.partitions)
        if rnd.random() < 0.2:
            fact.priority = rnd.choice((-1, 1, 5))
        if rnd.random() < 0.1:
            fact.deliver_at = self.clock.wall + rnd.choice((500, 3_000, 20_000))
        if rnd.random() < 0.15:
            fact.expires_at = self.clock.wall + rnd.choice((1, 700, 4_000, 40_000))
        return fact

    # -- consumers ---------------------------------------------------------------------------------

    def join(self, rnd: Random) -> None:
        chosen = self.pick(rnd)
        if chosen is not None and len(chosen[1].workers) < WORKERS_MAX:
            self.attach(*chosen, rnd.choice((1, 2, 5, 20)))

    def leave(self, rnd: Random) -> None:
        self._leave(rnd, is_clean=True)

    def vanish(self, rnd: Random) -> None:
        self._leave(rnd, is_clean=False)

    def _leave(self, rnd: Random, *, is_clean: bool) -> None:
        found = [
            (topic, sub, number)
            for topic in self.topics.values()
            for sub in topic.subs.values()
            for number in sub.workers
        ]
        if not found:
            return
        _, sub, number = rnd.choice(found)
        held = sub.held_by(number)
        begun: dict[int, list[tuple[int, int]]] = {}
        started: set[Place] = set()
        for place in held:
            if rnd.random() < 0.4:
                started.add(place)
                rows = begun.setdefault(sub.entries[place].lease, [])
                rows.append((place[1], place[1] + 1))
        ranges: dict[int, Ranges] = {lease: merge(rows) for lease, rows in begun.items()}
        worker = self.workers[number]
        self.rig.broker.detach(worker.consumer, ranges, DIRECT, lambda _: None, is_clean=is_clean)
        del sub.workers[number]
        for place in held:
            entry = sub.entries[place]
            if is_clean:
                back = 0 if place in started else -1
                book.come_back(sub, entry, self.clock, attempt=(back, back))
            elif len(held) == 1:
                delay = book.backoff(sub, [entry.counted])
                book.come_back(sub, entry, self.clock, failed=(1, 1), delay=delay, losses=1)
            else:
                book.come_back(sub, entry, self.clock, losses=1)

    # -- settling ----------------------------------------------------------------------------------

    def _claim(self, rnd: Random) -> tuple[Handout, Sub, Worker, Claim, list[Place]] | None:
        """Some messages of some slice that was handed out once, settled since or not."""
        rows = [h for h in self.handouts if h.sub in self.topics[h.topic].subs]
        if not rows:
            return None
        handout = rows[-1 - min(int(rnd.expovariate(0.15)), len(rows) - 1)]
        many = rnd.choice((0.3, 0.6, 1, 1))
        offsets = [o for o in handout.offsets if rnd.random() < many] or handout.offsets[:1]
        part = handout.part
        sub = self.topics[handout.topic].subs[handout.sub]
        if self.is_burst:  # A second decision about a message waits for the first.
            offsets = [o for o in offsets if self._is_mine(sub, handout, o)]
            if not offsets:
                return None
        places = [(part.partition, offset) for offset in offsets]
        ranges = merge([(offset, offset + 1) for offset in offsets])
        claim = Claim(part.lease_id, part.partition, part.attempt, ranges)
        return handout, sub, self.workers[handout.worker], claim, places

    @staticmethod
    def _is_mine(sub: Sub, handout: Handout, offset: int) -> bool:
        """True when this consumer holds the message in this lease."""
        entry = sub.entries.get((handout.part.partition, offset))
        return entry is not None and entry.state == LEASED and entry.lease == handout.part.lease_id

    def _accepted(
        self, handout: Handout, sub: Sub, places: list[Place], refused: list[Any]
    ) -> list[Place]:
        """What of a claim is accepted; checks that exactly that was which must be."""
        lease, attempt = handout.part.lease_id, handout.part.attempt
        no = {(refusal.partition, refusal.offset) for refusal in refused}
        found: list[Place] = []
        for place in places:
            entry = sub.entries.get(place)
            name = f"claim of {handout.topic}/{sub.name} {place}, lease {lease}: {entry}"
            if entry is not None and entry.state == LEASED and entry.lease == lease:
                demand(place not in no, f"{name} was refused")
                found.append(place)
            elif lease <= sub.voided.get(place[0], 0):
                demand(place in no, f"{name} was accepted after a seek")
            elif sub.rules.qos == QOS_2 and entry is not None and entry.state == book.ACKED:
                is_same = entry.finished_by == attempt
                is_right = not entry.finished_by or is_same == (place not in no)
                demand(is_right, f"{name}: {refused} for attempt {attempt}")
            elif sub.rules.qos == QOS_2 and entry is not None and entry.state in ENDED:
                pass  # Nobody's token finished it: what it is told is of no consequence.
            elif entry is None or entry.state in ENDED:
                demand(place not in no, f"{name} was refused, and is finished")
            elif entry.state not in (WAITING, DELAYED):
                demand(place in no, f"{name} was accepted, and was handed out again")
            elif entry.lease == lease:
                demand(place not in no, f"{name} was refused, and was not handed out again")
                found.append(place)
            elif not entry.attempt[0] <= attempt <= entry.attempt[1] + 1:
                demand(place in no, f"{name} was accepted, and was handed out again")
            elif place not in no:
                found.append(place)
        return found

    def ack(self, rnd: Random) -> None:
        chosen = self._claim(rnd)
        if chosen is None:
            return
        handout, sub, worker, claim, places = chosen
        self._finish(handout, sub, worker, claim, places)

    def _finish(
        self, handout: Handout, sub: Sub, worker: Worker, claim: Claim, places: list[Place]
    ) -> None:
        refused = self.rig.broker.ack(worker.consumer, [claim])
        for place in self._accepted(handout, sub, places, refused):
            sub.ack(place, handout.part.attempt)

    def nack(self, rnd: Random) -> None:
        self._give_back(rnd, Cause.NACKED, rnd.choice((None, None, 0.0, 0.5, 3.0)))

    def reject(self, rnd: Random) -> None:
        self._give_back(rnd, Cause.REJECTED, None)

    def hand_back(self, rnd: Random) -> None:
        self._give_back(rnd, Cause.UNSTARTED, 0.0)

    def _give_back(self, rnd: Random, cause: Cause, delay_s: float | None) -> None:
        chosen = self._claim(rnd)
        if chosen is None:
            return
        handout, sub, worker, claim, places = chosen
        mine = [place for place in places if self._is_mine(sub, handout, place[1])]
        if cause is Cause.UNSTARTED and len(mine) != len(places):
            return  # Whoever hands back unstarted messages still has them.
        refused = self.rig.broker.give_back(worker.consumer, claim, cause, delay_s, "no")
        accepted = self._accepted(handout, sub, places, refused)
        topic = self.topics[handout.topic]
        span = (0, 0)
        if accepted and cause is Cause.NACKED:
            span = book.backoff(sub, [sub.entries[p].counted for p in accepted])
            if delay_s is not None:
                span = (int(delay_s * 1000), int(delay_s * 1000))
        failed = int(cause is Cause.NACKED)
        back = -int(cause is Cause.UNSTARTED)
        is_rejected = cause is Cause.REJECTED
        for place in accepted:
            # A late nack speaks of a failure that was counted when its lease ended.
            new = failed if place in mine else 0
            book.come_back(
                sub, sub.entries[place], self.clock, failed=(new, new), attempt=(back, back),
                delay=span, is_rejected=is_rejected,
            )  # fmt: skip
        if cause is Cause.NACKED and sub.rules.kind == "key_shared":
            for place in book.later_of_keys(topic, sub, handout.worker, accepted):
                book.come_back(sub, sub.entries[place], self.clock, attempt=(-1, -1))

    def extend(self, rnd: Random) -> None:
        chosen = self._claim(rnd)
        if chosen is None:
            return
        handout, sub, worker, _, _ = chosen
        seconds, part = rnd.choice((5, 60)), handout.part
        self.rig.broker.extend(worker.consumer, [(part.lease_id, part.start, None)], seconds)
        for entry in sub.entries.values():
            if entry.state == LEASED and entry.lease == part.lease_id:
                entry.deadline = max(entry.deadline, self.clock.now + seconds * 1000)

    # -- time --------------------------------------------------------------------------------------

    def wait(self, rnd: Random) -> None:
        self.pass_time(rnd.choice((0.2, 0.5, 1, 1, 3, 5, 31, 120)))

    def pass_time(self, seconds: float) -> None:
        """The clock moves on, and the broker does what that demands."""
        self.is_waiting = True
        self.rig.clock.advance(seconds)
        self.clock.now, self.clock.wall = self.rig.clock.now(), self.rig.clock.wall()
        self.rig.broker.tick()
        for topic in self.topics.values():
            for sub in topic.subs.values():
                book.run_out(topic, sub, self.clock)

    # -- moving ------------------------------------------------------------------------------------

    def seek(self, rnd: Random) -> None:
        chosen = self.pick(rnd, "shared", "multicast")
        if chosen is None:
            return
        topic, sub = chosen
        places = {}
        for partition in range(topic.partitions):
            held = [p[1] for p in topic.held if p[0] == partition]
            places[partition] = (min(held, default=topic.next.get(partition, 0)), held)
        how = rnd.choice(("earliest", "latest", "position"))
        target, to = {p: low for p, (low, _) in places.items()}, how
        if how == "latest":
            target = {p: topic.next.get(p, 0) for p in places}
        elif how == "position":
            partition = rnd.randrange(topic.partitions)
            held = places[partition][1]
            if not held:
                return
            offset = rnd.choice(held)
            target, to = {partition: offset}, f"{partition}:{offset}"
        self.rig.broker.seek(topic.name, sub.name, to)
        # What was out is void from the decision on, and comes after it in new leases.
        newest = self.rig.broker.state.next_lease_id
        void = {p: c.voided - 1 for p, c in enumerate(self.cursors(topic.name, sub.name))}
        for partition in target:
            demand(void[partition] < newest, "a seek voids leases that are not made yet")
        book.seek(topic, sub, target, 0, self.clock)
        sub.voided.update({p: void[p] for p in target})

    def redrive(self, rnd: Random) -> None:
        found = [(t, n) for t in self.topics.values() for n in t.subs if t.dead.get(n)]
        if not found:
            return
        topic, name = rnd.choice(found)
        limit = rnd.choice((1, 3, None))
        count = self.rig.broker.redrive(topic.name, name, lambda *_: True, limit, is_dry=False)
        rows = sorted(topic.dead[name], key=lambda row: row[0])
        chosen = rows[:limit]
        demand(count == len(chosen), f"redrive moved {count}, must move {len(chosen)}")
        topic.dead[name] = rows[len(chosen) :]
        for _, fact, partition in chosen:
            fresh = Fact(fact.body, fact.key, fact.id, fact.priority, only_for=name)
            book.publish(topic, partition, fresh, self.clock)
            if fact.id is not None:
                before, _ = topic.ids.get((partition, fact.id), (-book.NEVER, True))
                topic.ids[partition, fact.id] = (before, True)

    def purge(self, rnd: Random) -> None:
        found = [(t, n) for t in self.topics.values() for n in t.subs if t.dead.get(n)]
        if not found:
            return
        topic, name = rnd.choice(found)
        count = self.rig.broker.purge_dead(topic.name, name, lambda *_: True, 2, is_dry=False)
        rows = sorted(topic.dead[name], key=lambda row: row[0])
        demand(count == min(2, len(rows)), f"purge removed {count} of {len(rows)}")
        topic.dead[name] = rows[2:]

    # -- administration ----------------------------------------------------------------------------

    def alter_topic(self, rnd: Random) -> None:
        topic = rnd.choice(list(self.topics.values()))
        what = rnd.choice(("replay_s", "keep_last", "max_age_s"))
        value = {
            "replay_s": rnd.choice((0.0, 5.0, 60.0)),
            "keep_last": rnd.choice((0, 1, 3)),
            "max_age_s": rnd.choice((None, None, 40.0)),
        }[what]
        self.rig.broker.alter_topic(topic.name, {what: value})
        if what == "replay_s":
            topic.replay_ms = int((value or 0) * 1000)
        elif what == "max_age_s":
            topic.max_age_ms = book.NEVER if value is None else int(value * 1000)
        elif value != topic.keep_last:
            topic.keep_last = int(value or 0)
            topic.keep_from = dict(topic.next)
        for fact in topic.facts.values():
            fact.kept_since = self.clock.wall

    def grow(self, rnd: Random) -> None:
        """A topic gets one more partition; every subscription covers it from its beginning."""
        topic = rnd.choice(list(self.topics.values()))
        if topic.partitions == PARTITIONS_MAX:
            return
        ends = {partition: topic.next.get(partition, 0) for partition in range(topic.partitions)}
        topic.growths.append((self.clock.wall, ends))
        topic.partitions += 1
        self.rig.broker.alter_topic(topic.name, {}, topic.partitions)
        for sub in topic.subs.values():
            sub.begin[topic.partitions - 1] = 0

    def alter_sub(self, rnd: Random) -> None:
        chosen = self.pick(rnd)
        if chosen is None:
            return
        topic, sub = chosen
        rules = sub.rules
        rules.max_attempts, rules.lease_ms = rnd.choice((2, 3, 5)), rnd.choice((10_000, 30_000))
        retry = Retry(
            first_s=rules.first_ms / 1000,
            max_s=rules.max_ms / 1000,
            max_attempts=rules.max_attempts,
        )
        changes = {"retry": retry, "lease_s": rules.lease_ms / 1000}
        self.rig.broker.alter_subscription(topic.name, cast_of(sub.name), changes)

    def subscribe(self, rnd: Random) -> None:
        topic = rnd.choice(list(self.topics.values()))
        missing = [name for name in KINDS if name not in topic.subs]
        if missing:
            self.make_sub(topic.name, rnd.choice(missing), rnd.choice(("earliest", "latest")))

    def unsubscribe(self, rnd: Random) -> None:
        chosen = self.pick(rnd)
        if chosen is None:
            return
        topic, sub = chosen
        gone = [each for name, each in topic.subs.items() if cast_of(name) == cast_of(sub.name)]
        if any(each.workers for each in gone):
            return
        self.rig.broker.delete_subscription(topic.name, cast_of(sub.name))
        for each in gone:
            del topic.subs[each.name]
            rows = self.handouts
            self.handouts = [h for h in rows if (h.topic, h.sub) != (topic.name, each.name)]

    # -- readers -----------------------------------------------------------------------------------

    def read(self, rnd: Random) -> None:
        """A reader plans, reads its planned range twice, and commits a part of it."""
        chosen = self.pick(rnd, "reader")
        if chosen is None:
            return
        topic, sub = chosen
        broker = self.rig.broker
        broker.plan_ranges(topic.name, sub.name, OWNER, rnd.choice((None, 1, 5)), None, None)
        self.settle()
        state = broker.describe_reader(topic.name, sub.name)
        for partition, (low, high) in enumerate(zip(state.progress, state.planned, strict=True)):
            if low == high:
                continue
            right = [
                (place[1], topic.facts[place].body)
                for place in sorted(sub.open())
                if place[0] == partition and low <= place[1] < high
            ]
            for _ in range(2):
                frames, upto = broker.read_range(
                    topic.name, sub.name, OWNER, partition, low, high, 1 << 20
                )
                rows = [
                    (offset, Batch(frame.batch).bodies[index])
                    for frame in frames
                    for offset, index in zip(frame.offsets, frame.indexes, strict=True)
                ]
                demand(upto == high and rows == right, f"read {rows}, must be {right}")
            if rnd.random() < 0.7:
                end = rnd.randint(low, high)
                broker.commit_reader(topic.name, sub.name, OWNER, {partition: end})
                for place in sub.open():
                    if place[0] == partition and place[1] < end:
                        sub.end(place, book.ACKED)

    # -- the broker's own life ---------------------------------------------------------------------

    def snapshot(self, _rnd: Random) -> None:
        self.rig.keeper.snapshot()

    def compact(self, _rnd: Random) -> None:
        segment = self.rig.keeper.sparse_segment()
        if segment is not None:
            self.rig.keeper.compact(segment)

    def restart(self, _rnd: Random) -> None:
        for topic in self.topics.values():
            for sub in topic.subs.values():
                for entry in sub.entries.values():
                    if entry.state == LEASED:
                        book.come_back(sub, entry, self.clock, attempt=(-1, -1))
        self.rig = self.rig.restart()
        self._opened()

    def crash(self, _rnd: Random) -> None:
        self.rig = self.rig.crash()
        self._opened()

    def _opened(self) -> None:
        for topic in self.topics.values():
            for sub in topic.subs.values():
                book.lose_all(sub, self.clock)
        self.workers.clear()
        self.handouts.clear()
        self.log.clear()
        self.pending.clear()
        self.pass_time(0)

    def burst(self, rnd: Random) -> None:
        """Several decisions before anything is durable; then all of it, a part, or a crash."""
        before = deepcopy((self.topics, self.rig.sequences))
        self.is_burst = True
        for _ in range(rnd.randint(1, 6)):
            self.is_waiting = False
            getattr(self, rnd.choice(("publish", "unit", "ack", "ack", "nack", "hand_back")))(rnd)
            self.see_deliveries()
        ending = rnd.choice(("settle", "settle", "crash", "commit"))
        if ending == "crash":
            self.topics, sequences = before
            self.crash(rnd)
            self.rig.sequences = sequences
        elif ending == "commit":
            for topic in self.topics.values():
                for sub in topic.subs.values():
                    for entry in sub.entries.values():
                        entry.is_fresh = False
            self.rig.engine.commit_once()
            self.rig.engine.run_jobs()
            self.see_published()
            self.see_deliveries()
            self.crash(rnd)
        else:
            self.settle()
        self.is_burst = False

    # -- the end -----------------------------------------------------------------------------------

    def drain(self, rounds: int = 60) -> None:
        """Faults stop and consumers ack all they get: nothing may be left."""
        for topic in self.topics.values():
            for sub in topic.subs.values():
                if sub.rules.kind != "reader":
                    self.attach(topic, sub, 20)
        for _ in range(rounds):
            self.settle()
            self.check()
            self.clock.step += 1
            for handout in list(self.handouts):
                sub = self.topics[handout.topic].subs[handout.sub]
                part = handout.part
                mine = [
                    (part.partition, offset)
                    for offset in handout.offsets
                    if self._is_mine(sub, handout, offset)
                ]
                if mine:
                    ranges = merge([(offset, offset + 1) for _, offset in mine])
                    claim = Claim(part.lease_id, part.partition, part.attempt, ranges)
                    self._finish(handout, sub, self.workers[handout.worker], claim, mine)
            self.settle()
            self.check()
            self.clock.step += 1
            self.pass_time(5)
            if not any(
                sub.open()
                for topic in self.topics.values()
                for sub in topic.subs.values()
                if sub.rules.kind != "reader"
            ):
                break
        left = [
            (topic.name, sub.name, sub.open())
            for topic in self.topics.values()
            for sub in topic.subs.values()
            if sub.rules.kind != "reader" and sub.open()
        ]
        demand(not left, f"stuck: {left}")


def choose(rnd: Random, texts: tuple[str, ...], partition: int, partitions: int) -> str | None:
    """One of the texts whose place is this partition."""
    found = [text for text in texts if home_of(text, partitions) == partition]
    return rnd.choice(found) if found else None


def _answer_of(pending: Pending, index: int) -> Any:
    return pending.wait()[index]


def run(seed: int, steps: int, chosen: list[int] | None = None) -> Operations:
    """Runs some steps of a seed, all of them unless some are chosen, and drains."""
    driver = Operations(seed)
    try:
        for number in range(steps) if chosen is None else chosen:
            driver.step(number)
        driver.clock.step = steps + 1
        driver.drain()
    except Exception as error:
        error.add_note(f"seed {seed}, steps {' '.join(driver.done[-12:])}")
        error.add_note(f"again: shrink({seed}, {len(driver.done)})")
        raise
    return driver


def fails(seed: int, chosen: list[int]) -> tuple[str, str]:
    """What kind of failure some steps lead to, and its text; empty when they lead to none."""
    try:
        run(seed, chosen[-1] + 1, chosen)
    except Exception as error:  # noqa: BLE001 - any failure is one
        text = f"{type(error).__name__}: {error}"
        return " ".join(re.findall(r"[a-z]{4,}", text)[:5]), text
    return "", ""


def shrink(seed: int, steps: int) -> tuple[list[int], str]:
    """The fewest steps of a seed that fail in the same way, found by leaving out more and more."""
    chosen = list(range(steps))
    kind, _ = fails(seed, chosen)
    size = max(1, steps // 2)
    while size:
        at = 0
        while at < len(chosen):
            fewer = chosen[:at] + chosen[at + size :]
            if fewer and fails(seed, fewer)[0] == kind:
                chosen = fewer
            else:
                at += size
        size //= 2
    return chosen, fails(seed, chosen)[1]
