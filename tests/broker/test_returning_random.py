"""Clients that lose connections, slices and acks at random, and a broker that is killed at random.

Each client is what a good one is: it names everything it holds and every ack that was not
confirmed, and after its return it sends those acks again.
"""

import random

import pytest

from penstock.batch import encode_many
from penstock.batch.frame import Slice
from penstock.broker.mailbox import DIRECT, Pending
from penstock.delivery.counts import unexplained
from penstock.delivery.settle import merge
from penstock.vocabulary.claims import Claim, Held, Returning
from penstock.vocabulary.message import Kind, Message
from penstock.vocabulary.policy import Retry, SubscriptionPolicy
from penstock.vocabulary.records import Cause
from tests.broker.return_rig import REATTACH_S
from tests.broker.rig import NAMED, Rig, Worker
from tests.tally import Tally

CLIENTS = 3
KEYS = 7
STEPS = 120


class Client:
    """One consumer, seen from its own side of the network."""

    def __init__(self, number: int) -> None:
        self.name = f"client-{number}"
        self.worker: Worker | None = None
        self.generation = 0
        self.number = 0
        self.held: dict[int, tuple[int, int]] = {}
        """offset → (lease id, attempt) of what arrived and is not settled."""
        self.unconfirmed: dict[int, tuple[int, int]] = {}
        """The same of what was acked, while the broker has not said that it is durable."""

    def named(self) -> list[Held]:
        leases: dict[tuple[int, int], list[tuple[int, int]]] = {}
        for offset, token in {**self.held, **self.unconfirmed}.items():
            leases.setdefault(token, []).append((offset, offset + 1))
        return [Held(lease, 0, attempt, merge(rows)) for (lease, attempt), rows in leases.items()]


class Play:
    """A broker, clients, and what must be true of them."""

    def __init__(self, seed: int, kind: Kind, qos: int) -> None:
        self.random = random.Random(seed)
        self.policy = SubscriptionPolicy(
            kind=kind, qos=qos, lease_s=86_400, retry=Retry(max_attempts=None, first_s=0, max_s=0)
        )
        self.rig = Rig(reattach_s=REATTACH_S)
        self.clients = [Client(number) for number in range(CLIENTS)]
        self.published = 0
        self.confirmed: set[int] = set()
        self.kept = self.returns = self.kills = 0
        self.is_disturbed = False
        """Somebody was given up since all were together: messages may be with two."""

    # -- what happens ----------------------------------------------------------------------------

    def publish(self) -> None:
        count = self.random.randint(1, 6)
        keys = [f"{(self.published + n) * 7 % KEYS}" for n in range(count)]
        messages = [Message(body=b"x", key=key) for key in keys]
        self.rig.broker.publish(
            "orders", 0, encode_many(messages), count, NAMED, 0, self.published, DIRECT, Pending()
        )
        self.rig.settle()
        self.published += count

    def arrive(self, client: Client) -> None:
        """What is on the wire arrives."""
        if client.worker is not None:
            for part in client.worker.take():
                self._take(client, part)

    def _take(self, client: Client, part: Slice) -> None:
        for offset in (o for frame in part.frames for o in frame.offsets):
            assert offset not in self.confirmed, "a confirmed ack is never redelivered"
            assert offset not in client.held, "it is with this consumer already"
            if self.policy.kind is Kind.KEY_SHARED:
                older = [o for o in client.held if o % KEYS == offset % KEYS and o > offset]
                assert not older, "the messages of a key come in order"
            client.held[offset] = (part.lease_id, part.attempt)

    def ack(self, client: Client, *, is_sent: bool = True) -> None:
        some = [o for o in sorted(client.held) if self.random.random() < 0.4]
        for offset in some:
            client.unconfirmed[offset] = client.held.pop(offset)
        if is_sent and client.worker is not None:
            self._send(client, some)

    def _send(self, client: Client, offsets: list[int]) -> None:
        assert client.worker is not None
        tokens = client.unconfirmed
        claims = [Claim(tokens[o][0], 0, tokens[o][1], ((o, o + 1),)) for o in offsets]
        refused = self.rig.broker.ack(client.worker.consumer, claims)
        assert not refused or self.is_disturbed
        for each in refused:
            client.unconfirmed.pop(each.offset, None)

    def nack(self, client: Client) -> None:
        if not client.held or client.worker is None or self.policy.kind is Kind.KEY_SHARED:
            return
        offset = self.random.choice(sorted(client.held))
        lease, attempt = client.held.pop(offset)
        claim = Claim(lease, 0, attempt, ((offset, offset + 1),))
        self.rig.broker.give_back(client.worker.consumer, claim, Cause.NACKED, 0.0, "")
        self.rig.settle()  # a good client has this confirmed before it forgets the message

    def confirm(self) -> None:
        """A flush: everything sent so far is durable."""
        self.rig.settle()
        for client in self.clients:
            if client.worker is not None:
                self.confirmed |= set(client.unconfirmed)
                client.unconfirmed.clear()

    def lose(self, client: Client) -> None:
        """The connection breaks; what was on the wire never arrives."""
        if client.worker is not None:
            if self.random.random() < 0.7:  # else the broker does not know it yet
                self.rig.broker.lose(client.worker.consumer)
            self._forget_connection(client)
            self.rig.settle()

    def _forget_connection(self, client: Client) -> None:
        assert client.worker is not None
        client.number = client.worker.consumer.id
        client.generation = (
            self.rig.broker.generation if not client.generation else client.generation
        )
        client.worker.take()
        client.worker = None

    def come_back(self, client: Client) -> None:
        if client.worker is not None:
            return
        returning = None
        if client.number:
            returning = Returning(client.generation, client.number, client.named())
        client.worker = self.rig.attach(
            policy=self.policy, credit=8, name=client.name, returning=returning, is_settled=False
        )
        client.generation = self.rig.broker.generation
        wanted = {**client.held, **client.unconfirmed}
        kept = {
            offset: (each.lease_id, wanted[offset][1])
            for each in client.worker.consumer.kept
            for low, high in each.ranges
            for offset in range(low, high)
        }
        missing = [o for o in client.held if o not in kept]
        assert not missing or self.is_disturbed, "whoever returns in time keeps all it names"
        self.returns += 1
        self.kept += len(kept)
        client.held = {o: kept[o] for o in client.held if o in kept}
        client.unconfirmed = {o: kept.get(o, t) for o, t in client.unconfirmed.items()}
        self._send(client, sorted(client.unconfirmed))
        self.rig.settle()

    def kill(self) -> None:
        """The broker dies, with or without the newest group, and starts again."""
        self.kills += 1
        for client in self.clients:
            if client.worker is not None:
                self.arrive(client)
                self._forget_connection(client)
        self.rig = self.rig.crash()

    def wait_too_long(self) -> None:
        self.is_disturbed = True
        self.rig.wait(REATTACH_S + 1)

    # -- what must be true -----------------------------------------------------------------------

    def check(self) -> None:
        found = self.rig.counts()
        assert unexplained(found) == 0
        assert found.attached == self.published
        assert found.dropped == found.dead == found.expired == 0
        here = [client for client in self.clients if client.worker is not None]
        if not self.is_disturbed:
            held = [offset for client in self.clients for offset in client.held]
            assert len(held) == len(set(held)), "nothing is with two consumers"
            if self.policy.kind is Kind.KEY_SHARED:
                keys = [key for c in self.clients for key in {o % KEYS for o in c.held}]
                assert len(keys) == len(set(keys)), "no key is with two consumers"
            self._check_attempts()
        for client in here:
            assert client.worker is not None
            leased = {
                offset
                for lease in client.worker.consumer.leases.values()
                for low, high in lease.unfinished()
                for offset in range(low, high)
            }
            assert set(client.held) <= leased

    def _check_attempts(self) -> None:
        """Whoever returns in time loses no attempt."""
        cursor = self.rig.subscription().cursors[0]
        for client in self.clients:
            for offset, (_, attempt) in client.held.items():
                assert cursor.trial(offset).losses == 0
                assert cursor.trial(offset).attempt in (attempt, attempt - 1)

    def end(self) -> None:
        """Everybody comes back, and everything is acked once."""
        for _ in range(200):
            for client in self.clients:
                self.come_back(client)
            self.rig.wait(REATTACH_S + 1)
            for client in self.clients:
                self.arrive(client)
                self.ack(client)
            self.confirm()
            if self.rig.counts().acked == self.published:
                return
        raise AssertionError(f"not all is acked: {self.rig.counts()}")


@pytest.mark.parametrize(
    ("kind", "qos"), [(Kind.SHARED, 1), (Kind.SHARED, 2), (Kind.KEY_SHARED, 1)]
)
@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("is_gentle", [True, False])
def test_nothing_is_lost_or_doubled(
    seed: int, kind: Kind, qos: int, is_gentle: bool, tally: Tally
) -> None:
    play = Play(seed, kind, qos)
    for client in play.clients:
        play.come_back(client)
    play.publish()
    for _ in range(STEPS):
        chance, client = play.random.random(), play.random.choice(play.clients)
        if chance < 0.2:
            play.publish()
        elif chance < 0.4:
            play.arrive(client)
        elif chance < 0.55:
            play.ack(client)
        elif chance < 0.6:
            play.nack(client)
        elif chance < 0.7:
            play.confirm()
        elif chance < 0.78:
            play.ack(client, is_sent=False)
            play.lose(client)
        elif chance < 0.92:
            play.come_back(client)
        elif chance < 0.97:
            play.kill()
        elif not is_gentle:
            play.wait_too_long()
        play.check()
    play.end()
    assert play.returns > CLIENTS
    assert play.kept
    tally.add("returning", returns=play.returns, kept=play.kept, kills=play.kills)
