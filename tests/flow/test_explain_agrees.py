"""Whatever happened: every message has a reason, which agrees with the counts and is not idle."""

from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

from penstock.batch.frame import Slice
from penstock.delivery.counts import count, unexplained
from penstock.vocabulary.message import Kind, Message
from penstock.vocabulary.policy import Retry, SubscriptionPolicy
from penstock.vocabulary.records import Cause
from tests.broker.rig import Worker
from tests.flow.stuck import Scene

AWAY = {"leased": "leased", "backing-off": "delayed", "delayed": "delayed"}
DONE = {"acked", "dead-lettered", "dropped", "expired", "finished"}
FLEETING = {"ready", "settling", "attaching", "unsynced", "expiring"}
"""Reasons of things that are about to happen: with a broker at rest there are none."""
STEPS = (
    "publish",
    "publish",
    "publish",
    "attach",
    "ack",
    "nack",
    "reject",
    "leave",
    "wait",
    "grow",
    "seek",
)


class Play:
    """Random steps on one subscription."""

    def __init__(self, kind: Kind) -> None:
        self.scene = Scene(2)
        self.rig = self.scene.rig
        self.policy = SubscriptionPolicy(kind=kind, retry=Retry(first_s=5, max_s=5))
        self.scene.subscribe(self.policy)
        self.workers: list[Worker] = []

    def held(self) -> list[tuple[Worker, Slice, int]]:
        """Every message that is out, one by one."""
        return [
            (worker, part, offset)
            for worker in self.workers
            for part in worker.slices
            for frame in part.frames
            for offset in frame.offsets
        ]

    def step(self, name: str, pick: int) -> None:
        if name == "publish":
            self.publish(pick)
        elif name == "attach":
            at = len(self.workers)
            worker = self.rig.attach(policy=self.policy, credit=pick % 4 + 1, name=f"w{at}-{pick}")
            self.workers.append(worker)
        elif name == "leave" and self.workers:
            self.rig.detach(self.workers.pop(pick % len(self.workers)), is_clean=bool(pick % 2))
        elif name == "wait":
            self.rig.wait(pick)
        elif name == "grow" and pick % 4 == 0:
            self.rig.broker.alter_topic("orders", {}, len(self.partitions) + 1)
        elif name == "seek" and pick % 4 == 0:
            self.rig.broker.seek("orders", "billing", ("earliest", "latest")[pick % 8 == 0])
            self.rig.settle()
        elif self.held():
            self.settle(name, pick)

    def settle(self, name: str, pick: int) -> None:
        out = self.held()
        worker, part, offset = out[pick % len(out)]
        if name == "ack":
            self.rig.ack(worker, part, (offset, offset + 1))
        elif name == "nack":
            self.rig.give_back(worker, part, (offset, offset + 1), delay_s=pick)
        elif name == "reject":
            self.rig.give_back(worker, part, (offset, offset + 1), cause=Cause.REJECTED)
            while self.rig.keeper.move_doomed():
                self.rig.settle()

    @property
    def partitions(self) -> list[int]:
        return [p.next_offset for p in self.rig.broker.state.names["orders"].partitions]

    def publish(self, pick: int) -> None:
        now = self.scene.now
        key = (None, "a", "b")[pick % 3]
        message = Message(
            body=b"x",
            key=key,
            priority=(0, 0, 0, 5)[pick % 4],
            deliver_at=now + pick if pick % 7 == 0 else None,
            expires_at=now + pick + 1 if pick % 5 == 0 else None,
        )
        home = 0 if key is None else (1 if key == "b" else 0)
        self.scene.publish(message, partition=(len(self.partitions) - 1) * home)

    def check(self) -> None:
        told = {"leased": 0, "delayed": 0, "waiting": 0, "done": 0}
        for partition, end in enumerate(self.partitions):
            for offset in range(end):
                found = self.scene.explain(f"{partition}:{offset}")
                reason = found["reason"]
                assert reason not in FLEETING, found
                told["done" if reason in DONE else AWAY.get(reason, "waiting")] += 1
                self.check_reason(found)
        counts = count(self.rig.subscription(), self.rig.clock.wall())
        assert told == {
            "leased": counts.leased,
            "delayed": counts.delayed,
            "waiting": counts.waiting,
            "done": counts.acked + counts.dead + counts.expired + counts.dropped,
        }
        assert unexplained(counts) == 0

    def check_reason(self, found: dict[str, object]) -> None:
        head = found.get("head")
        if isinstance(head, dict):
            assert head["reason"] not in DONE | FLEETING, found
            assert head["position"] != found["position"]
        if found["reason"] == "no-credit":
            assert any(c.free <= 0 for c in self.rig.subscription().consumers or ())
        if found["reason"] in {"behind-key", "revoked", "key-held", "behind-growth"}:
            assert self.policy.kind is Kind.KEY_SHARED


@examples(max_examples=60)
@given(
    st.sampled_from([Kind.SHARED, Kind.KEY_SHARED]),
    st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 40)), max_size=30),
)
def test_every_message_has_a_reason_that_is_true(kind: Kind, steps: list[tuple[str, int]]) -> None:
    play = Play(kind)
    for name, pick in steps:
        play.step(name, pick)
    # Time is looked at once a second at the latest: let it pass once more.
    play.rig.wait(0)
    play.check()
