"""A power cut neither stores a given id twice nor forgets one that was confirmed."""

from collections.abc import Iterator

from penstock.broker.mailbox import Pending
from penstock.delivery.counts import unexplained
from penstock.journal.memory import MemoryDisk, Op
from penstock.vocabulary.policy import OnDuplicate, SubscriptionPolicy, TopicPolicy
from tests.broker.rig import Rig
from tests.flow.ids import OTHER, held, publish, submit


class Cuts:
    """What a power cut before each operation of a disk may leave, and what was confirmed then."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.answers: list[tuple[tuple[str, ...], Pending]] = []
        self.found: list[tuple[dict[str, bytes], set[str]]] = []
        rig.disk.on_operation = self._before

    def submit(self, *ids: str) -> None:
        self.answers.append((ids, submit(self.rig, *ids)))

    def _before(self, _op: Op) -> None:
        confirmed = {id for ids, answer in self.answers if answer.is_done for id in ids}
        self.found += [(dict(image), confirmed) for _, image in self.rig.disk.crash_images()]

    def rigs(self) -> Iterator[tuple[Rig, set[str]]]:
        self.rig.disk.on_operation = None
        seen: set[int] = set()
        for image, confirmed in self.found:
            mark = hash((frozenset(image.items()), frozenset(confirmed)))
            if mark not in seen:
                seen.add(mark)
                disk = MemoryDisk.from_image(image, record=True)
                yield Rig(disk, self.rig.clock, self.rig.settings), confirmed


def history(policy: OnDuplicate) -> Cuts:
    """Ids that come once, twice, in flight and around a snapshot."""
    rig = Rig()
    rig.broker.create_topic("orders", 1, TopicPolicy(on_duplicate=policy))
    rig.broker.create_subscription("orders", "billing", SubscriptionPolicy(), "earliest")
    cuts = Cuts(rig)
    for ids in (("a", "b"), ("b", "c")):
        cuts.submit(*ids)
        rig.settle()
    cuts.submit("d")
    rig.keeper.snapshot()
    cuts.submit("d", "a", "e")
    rig.settle()
    cuts.submit("c", "f", "f")
    rig.settle()
    return cuts


def test_after_any_power_cut_each_id_is_there_once() -> None:
    count = 0
    for rig, confirmed in history(OnDuplicate.DROP).rigs():
        ids = held(rig)
        assert len(set(ids)) == len(ids)
        assert confirmed <= set(ids)
        again = publish(rig, *"abcdef", publisher=OTHER)
        assert (again.places or {}).keys() >= {"abcdef".index(str(id)) for id in ids if id} or (
            again.is_duplicate and again.base is not None
        )
        assert sorted(map(str, held(rig))) == list("abcdef")
        count += 1
    assert count > 20


def test_after_any_power_cut_the_newest_of_each_id_waits() -> None:
    count = 0
    for rig, confirmed in history(OnDuplicate.REPLACE).rigs():
        ids = held(rig)
        assert len(set(ids)) == len(ids)
        assert confirmed <= set(ids)
        base = publish(rig, *"abcdef", publisher=OTHER).base
        assert base is not None
        assert held(rig) == list("abcdef")
        counts = rig.counts()
        assert (counts.waiting, unexplained(counts)) == (6, 0)
        count += 1
    assert count > 20
