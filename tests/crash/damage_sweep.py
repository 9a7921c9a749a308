"""Opens, reads, verifies and salvages one damaged store after another, and keeps the score."""

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from penstock.broker.broker import Broker
from penstock.broker.salvage import salvage
from penstock.journal.memory import MemoryDisk
from penstock.journal.verify import Verdict, verify
from penstock.vocabulary.errors import StorageError
from tests.crash.damage_cases import HEADER_BYTES, Case
from tests.crash.damage_store import SETTINGS, Bench, Files, Stage, StillClock
from tests.crash.damage_truth import Picture, Placed, Truth, contents, picture, unexplained

PROBLEMS_SHOWN = 20
CONSUME_EVERY = 4
"""Of the stores that miss a message only when it is read, one in so many is read by consumers."""


class Figures(msgspec.Struct):
    """The score of a sweep."""

    cases: int = 0
    unaffected: int = 0
    reported: int = 0
    """Something is lost, and said to be."""
    refused: int = 0
    undetected: int = 0
    served_wrong: int = 0
    collateral_lost: int = 0
    files_deleted: int = 0
    salvaged: int = 0
    verified: int = 0
    problems: list[str] = []

    def line(self) -> str:
        """The line of the report."""
        noticed = self.reported + self.refused
        detected = 100 * noticed // max(1, noticed + self.undetected)
        return (
            f"damage cases={self.cases} unaffected={self.unaffected} reported={self.reported} "
            f"refused={self.refused} detected={detected}% served_wrong={self.served_wrong} "
            f"collateral_lost={self.collateral_lost} files_deleted={self.files_deleted} "
            f"salvaged={self.salvaged} verified={self.verified} problems={len(self.problems)}"
        )

    def numbers(self) -> dict[str, int]:
        """What can be summed over several sweeps."""
        names = [name for name in self.__struct_fields__ if name != "problems"]
        return {name: getattr(self, name) for name in names}

    def add(self, other: "Figures") -> None:
        """Takes another score in."""
        for name in self.__struct_fields__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


class Sweep:
    """All cases of one stage of a store."""

    def __init__(self, stages: list[Stage], chosen: Stage) -> None:
        self.image = chosen.image
        self.truth = Truth(stages, chosen, picture(_open(MemoryDisk.from_image(chosen.image))))
        self.figures = Figures()

    def run(self, cases: Iterable[Case], *, every: int) -> Figures:
        """Opens and reads all; consumes, verifies and salvages one in `every`."""
        for number, case in enumerate(cases):
            self.figures.cases += 1
            is_chosen = number % every == 0
            for problem in self._case(case, is_chosen=is_chosen):
                self._count(problem)
                self.figures.problems.append(f"{case.label}: {problem}")
            if len(self.figures.problems) >= PROBLEMS_SHOWN:
                break
        return self.figures

    def _count(self, problem: str) -> None:
        self.figures.served_wrong += problem.startswith("wrong")
        self.figures.collateral_lost += problem.startswith("collateral")
        self.figures.files_deleted += problem.startswith("deleted")
        self.figures.undetected += problem.startswith("silent")

    def _case(self, case: Case, *, is_chosen: bool) -> Iterator[str]:
        broken = case.applied(self.image)
        hurt = self.truth.hurt(case)
        disk = MemoryDisk.from_image(broken)
        now: Picture | None = None
        is_reported = True
        try:
            broker = _open(disk)
        except StorageError as error:
            self.figures.refused += 1
            yield from self._refusal(case, hurt, error, disk.image() == broken)
        except Exception as error:  # noqa: BLE001 - any other exception is the finding
            yield f"open raised {error!r}"
            return
        else:
            try:
                now = picture(broker)
                is_reported = broker.health()["status"] != "ok"
                yield from self._opened(broker, now, hurt, is_reported=is_reported)
                if is_chosen or (now.missing and self.figures.cases % CONSUME_EVERY == 0):
                    yield from self._consume(broker, now)
            except Exception as error:  # noqa: BLE001 - a reader never meets an exception
                yield f"wrong: reading raised {error!r}"
            gone = broken.keys() - set(disk.names())
            if gone:
                yield f"deleted {gone}"
        if is_chosen:
            yield from self._verify(broken, now, is_reported=is_reported)
            yield from self._salvage(broken, hurt)

    def _refusal(
        self, case: Case, hurt: list[Placed], error: StorageError, is_unchanged: bool
    ) -> Iterator[str]:
        if "salvage" not in str(error):
            yield f"the refusal names no way out: {error}"
        if not is_unchanged:
            yield "the refusal changed the folder"
        kinds = {type(part).__name__ for each in hurt for part in each.parts}
        is_nameless = any(
            name == "superblock"
            or data is None
            or data[:HEADER_BYTES] != self.image[name][:HEADER_BYTES]
            for name, data in case.changes.items()
            if not name.startswith("snapshot-")
        )
        if not is_nameless and not kinds & {"TopicCreated", "SubscriptionCreated"}:
            yield f"refused without need: {error}"

    def _opened(
        self, broker: Broker, now: Picture, hurt: list[Placed], *, is_reported: bool
    ) -> Iterator[str]:
        if now == self.truth.whole:
            self.figures.unaffected += 1
        elif is_reported:
            self.figures.reported += 1
        else:
            yield "silent: something differs and nothing is reported"
        yield from self.truth.problems(now, hurt)
        count = unexplained(broker)
        if count:
            yield f"{count} messages are unexplained"

    def _consume(self, broker: Broker, before: Picture) -> Iterator[str]:
        """Hands everything out: what cannot be read is counted as dropped, the rest is right."""
        bench = Bench(broker.journal.disk, broker)  # type: ignore[arg-type]
        for subscription in list(broker.state.subscriptions.values()):
            bench.attach(subscription.topic.name, subscription.name)
        bench.clock.ms += 1_000_000
        broker.tick()
        bench.pump()
        for consumer, each in bench.slices:
            topic_id = consumer.subscription.topic.id
            for frame in each.frames:
                for spot, content in contents(frame, topic_id, each.partition):
                    if self.truth.ever.get(spot) != content:
                        yield f"wrong: {spot} was handed out as {content}"
        for topic_id, index, offset in before.missing:
            partition = broker.state.topics[topic_id].partitions[index]
            is_asked = bool(partition.topic.subscriptions)
            if is_asked and (partition.lost is None or offset not in partition.lost):
                yield f"({topic_id}, {index}, {offset}) is unreadable and was not reported lost"
        if unexplained(broker):
            yield "messages are unexplained after reading"
        broker.abandon()
        again = picture(_open(broker.journal.disk))
        if again.messages != before.messages:
            yield "a second opening shows other messages"

    def _verify(self, broken: Files, now: Picture | None, *, is_reported: bool) -> Iterator[str]:
        self.figures.verified += 1
        disk = MemoryDisk.from_image(broken)
        report = verify(disk)
        if disk.image() != broken:
            yield "verify wrote"
        is_hurt = now is None or now != self.truth.whole
        if is_hurt and report.verdict is not Verdict.DAMAGED:
            yield f"verify says {report.verdict} of a damaged store"
        if is_reported and report.verdict is Verdict.OK:
            yield "verify says ok and the broker does not"

    def _salvage(self, broken: Files, hurt: list[Placed]) -> Iterator[str]:
        self.figures.salvaged += 1
        source, target = MemoryDisk.from_image(broken), MemoryDisk()
        try:
            salvage(source, target, SETTINGS, StillClock())
        except Exception as error:  # noqa: BLE001 - salvage has no excuse
            yield f"salvage raised {error!r}"
            return
        if source.image() != broken:
            yield "salvage changed its source"
        broker = _open(target)
        found = picture(broker)
        for spot in self.truth.intact(hurt):
            if found.messages.get(spot) != self.truth.whole.messages[spot]:
                got = found.messages.get(spot)
                yield (
                    f"collateral: salvage lost {spot}" if got is None else f"wrong: salvaged {spot}"
                )
        yield from self.truth.resurrected(found, hurt)
        if unexplained(broker) or found.missing:
            yield "the salvaged store does not add up"


def _open(disk: Any) -> Broker:
    return Broker.open(disk, SETTINGS, StillClock(), threads=False)
