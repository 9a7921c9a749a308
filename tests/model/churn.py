"""Many keyed messages while consumers come and go: order and ownership of every key are watched."""

from dataclasses import dataclass, field
from random import Random

from penstock.batch.encode import Columns, encode_columns
from penstock.broker.mailbox import DIRECT, Pending
from penstock.delivery.settle import merge
from penstock.journal.memory import MemoryDisk
from penstock.journal.settings import JournalSettings
from penstock.vocabulary.claims import Claim
from penstock.vocabulary.message import Kind
from penstock.vocabulary.policy import Retry, SubscriptionPolicy, TopicPolicy
from penstock.vocabulary.records import Cause
from tests.broker.rig import NAMED, Rig, Worker

PARTITIONS = 4
WORKERS_MAX = 8
SETTINGS = JournalSettings(
    segment_bytes_min=1 << 20, segment_bytes_max=1 << 22, reserve_bytes=0, is_zeroing=False
)
POLICY = SubscriptionPolicy(
    kind=Kind.KEY_SHARED, lease_s=600, retry=Retry(first_s=0.05, max_s=0.2, max_attempts=None)
)

Place = tuple[int, int]


@dataclass
class Key:
    """The messages of one key that are not acked, by their number, and who has them."""

    open: list[Place] = field(default_factory=list)
    out: dict[Place, int] = field(default_factory=dict)


class Churn:
    """A topic with one `key_shared` subscription, and what is known of each key."""

    def __init__(self, keys: int, seed: int) -> None:
        self.rnd = Random(seed)
        self.rig = Rig(MemoryDisk(record=False), settings=SETTINGS)
        self.rig.broker.create_topic("orders", PARTITIONS, TopicPolicy())
        self.rig.broker.create_subscription("orders", "billing", POLICY, "earliest")
        self.names = [b"key-%d" % number for number in range(keys)]
        self.keys = [Key() for _ in range(keys)]
        self.places: list[list[int]] = [[] for _ in range(PARTITIONS)]
        """The key of each offset, by partition."""
        self.workers: dict[int, Worker] = {}
        self.held: dict[int, dict[int, tuple[int, int, list[int]]]] = {}
        """consumer → lease → (partition, attempt, offsets)."""
        self.moves = self.order_violations = self.double_owner = 0

    def publish(self, count: int) -> None:
        """Stores a batch in one partition."""
        partition = self.rnd.randrange(PARTITIONS)
        of_partition = range(partition, len(self.names), PARTITIONS)
        chosen = [self.rnd.choice(of_partition) for _ in range(count)]
        columns = Columns(bodies=[b""] * count, keys=[self.names[number] for number in chosen])
        places = self.places[partition]
        self.rig.broker.publish(
            "orders", partition, encode_columns(columns), count, NAMED, 0, len(places), DIRECT,
            Pending(),
        )  # fmt: skip
        for offset, number in enumerate(chosen, len(places)):
            self.keys[number].open.append((partition, offset))
        places.extend(chosen)

    def join(self) -> None:
        """A consumer comes."""
        self.moves += 1
        worker = self.rig.attach(
            "orders", "billing", credit=self.rnd.choice((20, 200, 1000)), is_settled=False
        )
        self.workers[worker.consumer.id] = worker
        self.held[worker.consumer.id] = {}

    def leave(self) -> None:
        """A consumer goes, now and then without a word."""
        self.moves += 1
        number = self.rnd.choice(list(self.workers))
        worker = self.workers.pop(number)
        is_clean = self.rnd.random() < 0.97
        self.rig.broker.detach(worker.consumer, {}, DIRECT, lambda _: None, is_clean=is_clean)
        for partition, _, offsets in self.held.pop(number).values():
            for offset in offsets:
                self._key(partition, offset).out.pop((partition, offset))

    def _key(self, partition: int, offset: int) -> Key:
        return self.keys[self.places[partition][offset]]

    def settle(self) -> None:
        """Lets time pass and looks."""
        self.rig.wait(0.1)
        self.see()

    def see(self) -> None:
        """Looks at whatever was delivered, in the order it was decided."""
        log = [
            (part.lease_id, number, part)
            for number, worker in self.workers.items()
            for part in worker.take()
        ]
        for lease, number, part in sorted(log, key=lambda row: row[0]):
            offsets = [offset for frame in part.frames for offset in frame.offsets]
            self.held[number][lease] = (part.partition, part.attempt, offsets)
            for offset in offsets:
                self._look(number, part.partition, offset)

    def _look(self, number: int, partition: int, offset: int) -> None:
        key, place = self._key(partition, offset), (partition, offset)
        if any(owner != number for owner in key.out.values()):
            self.double_owner += 1
        is_first = True
        for other in key.open:
            if other == place:
                break
            is_first = is_first and other in key.out
        else:
            is_first = False  # It is finished, or was never published.
        if not is_first or place in key.out:
            self.order_violations += 1
        key.out[place] = number

    def work(self, share: float) -> None:
        """Consumers finish some of what they hold; now and then one fails."""
        for number, leases in list(self.held.items()):
            claims: list[Claim] = []
            for lease, (partition, attempt, offsets) in list(leases.items()):
                if self.rnd.random() > share:
                    continue
                done = offsets if self.rnd.random() < 0.8 else offsets[::2]
                claims.append(Claim(lease, partition, attempt, merge([(o, o + 1) for o in done])))
                for offset in done:
                    self._finish(partition, offset)
                left = [] if done is offsets else offsets[1::2]
                leases[lease] = (partition, attempt, left)
                if not left:
                    del leases[lease]
            refused = self.rig.broker.ack(self.workers[number].consumer, claims)
            assert not refused, refused[:3]
            self.see()
            if leases and self.rnd.random() < share / 4:
                self._fail(number, self.rnd.choice(list(leases)))

    def _finish(self, partition: int, offset: int) -> None:
        key = self._key(partition, offset)
        key.open.remove((partition, offset))
        del key.out[partition, offset]

    def _fail(self, number: int, lease: int) -> None:
        """One message comes back, and with it what follows of its key."""
        partition, attempt, offsets = self.held[number][lease]
        first = self.rnd.choice(offsets)
        claim = Claim(lease, partition, attempt, ((first, first + 1),))
        refused = self.rig.broker.give_back(
            self.workers[number].consumer, claim, Cause.NACKED, None, ""
        )
        assert not refused, refused
        number_of_key = self.places[partition][first]
        for other, (index, tried, held) in list(self.held[number].items()):
            kept = [
                offset
                for offset in held
                if index != partition
                or offset < first
                or self.places[index][offset] != number_of_key
            ]
            for offset in held:
                if offset not in kept:
                    del self.keys[number_of_key].out[index, offset]
            self.held[number][other] = (index, tried, kept)
            if not kept:
                del self.held[number][other]

    def drain(self, rounds: int = 100) -> int:
        """Everybody works until nothing is left; returns what is stuck."""
        if not self.workers:
            self.join()
            self.moves -= 1
        for _ in range(rounds):
            self.settle()
            if not any(key.open for key in self.keys):
                break
            self.work(1.1)
        return sum(len(key.open) for key in self.keys)


def churn(messages: int, moves: int, seed: int) -> Churn:
    """Publishes all messages while consumers move; the caller drains."""
    run = Churn(max(100, messages // 50), seed)
    while run.moves < moves:
        run.publish(messages // moves)
        count = len(run.workers)
        is_joining = count < 2 or (count < WORKERS_MAX and run.rnd.random() < 0.5)
        if is_joining:
            run.join()
        else:
            run.leave()
        run.settle()
        run.work(0.7)
    return run
