"""A disk that refuses: every operation of a workload fails once, or from then on.

What must hold: the caller is told with a clear error, nothing is confirmed any more, nothing is
half done, reading goes on, and the next opening finds everything that was confirmed.
"""

import errno
import os
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from penstock.batch import encode_one
from penstock.broker.broker import Broker, Sink
from penstock.broker.mailbox import DIRECT
from penstock.journal.memory import ALL_POLICIES, MemoryDisk, Op, Policy, Verb
from penstock.vocabulary.errors import PenstockError, StorageError
from penstock.vocabulary.policy import SubscriptionPolicy, TopicPolicy
from tests.crash.enumeration import Workload, twin
from tests.crash.given import SEED, Hand, chance
from tests.crash.oracle import Violation, look, match
from tests.crash.run import Run

HARMLESS = frozenset({Verb.UNLINK})
"""Operations nothing confirmed depends on: what they remove is no longer needed."""


class Fault(NamedTuple):
    """What fails, and how."""

    number: int
    verb: Verb
    error: int
    is_sticky: bool
    is_dropping: bool
    """A failed sync forgets what was not durable, as kernels do."""

    def __str__(self) -> str:
        how = ("sticky " if self.is_sticky else "") + ("dropping " if self.is_dropping else "")
        return f"{how}{errno.errorcode[self.error]} at operation {self.number} ({self.verb})"


class Figures(msgspec.Struct):
    """What the sweep did."""

    injected_failures: int = 0
    acks_after_failure: int = 0
    refused: int = 0
    reopened: int = 0

    def __str__(self) -> str:
        return " ".join(f"{name}={getattr(self, name)}" for name in self.__struct_fields__)


def faults_of(workload: Workload) -> list[Fault]:
    """Every fault the operations of this workload can meet."""
    run = Run()
    watched: list[Op] = []
    run.disk.on_operation = lambda op: watched.append(op) if run.is_watched else None
    with chance(f"{SEED}"):
        workload(run)
    found: list[Fault] = []
    for op in watched:
        is_sync = op.verb in (Verb.SYNC, Verb.SYNC_NAMES)
        error = errno.EIO if is_sync or op.verb in HARMLESS else errno.ENOSPC
        drops = (False, True) if op.verb is Verb.SYNC else (False,)
        found.extend(
            Fault(op.number, op.verb, error, is_sticky, is_dropping)
            for is_sticky in (False, True)
            for is_dropping in drops
        )
    return found


class Failing(Run):
    """A run whose disk fails; it notices every confirmation after that."""

    def __init__(self, fault: Fault, figures: Figures) -> None:
        super().__init__()
        self.fault = fault
        self.figures = figures
        self.is_failed = False
        self.durable = 0
        self.disk.drop_on_failed_sync = fault.is_dropping
        self.disk.on_operation = self._fail
        confirm = self.history.confirm

        def confirm_unless_failed(step: int) -> None:
            if self.is_failed and step > self.durable and fault.verb not in HARMLESS:
                figures.acks_after_failure += 1
                raise Violation(f"S9 step {step} was confirmed after {fault}")
            confirm(step)

        self.history.confirm = confirm_unless_failed  # type: ignore[method-assign]

    def _fail(self, op: Op) -> None:
        fault = self.fault
        is_now = op.number == fault.number and not self.is_failed
        if is_now:
            self.durable = self._durable_step()
        if is_now or (self.is_failed and fault.is_sticky):
            self.is_failed = True
            raise OSError(fault.error, os.strerror(fault.error), op.file)

    def _durable_step(self) -> int:
        """The newest step that is safe now; its answer may still be on the way."""
        if not hasattr(self, "broker"):
            return 0
        [(_, image), *_] = self.disk.crash_images([Policy.DROP_ALL])
        facts = self.history.facts(self.clock.now(), self.clock.wall())
        disk = MemoryDisk.from_image(image)
        broker = Broker.open(disk, self.settings, Hand(facts.now, facts.wall), threads=False)
        return match(self.history, facts, broker)


def inject(workload: Workload, fault: Fault, figures: Figures) -> None:
    """One run with one fault. Raises Violation."""
    run = Failing(fault, figures)
    with chance(f"{SEED}"):
        try:
            workload(run)
        except StorageError as error:
            # A spare segment that cannot be made is no failure of the log.
            is_spare = error.code == "storage" and not _is_dead(run.broker)
            if error.code != "store-failed" and not is_spare:
                raise Violation(f"the caller got {error.code}: {error}") from error
            figures.refused += 1
        except OSError as error:
            raise Violation(f"the caller got a bare {error!r}") from error
    assert run.is_failed, "the fault did not happen"
    figures.injected_failures += 1
    if hasattr(run, "broker") and not run.broker.engine.is_closed and _is_dead(run.broker):
        _refuses_everything(run, figures)
        _still_reads(run)
    _nothing_lost(run, figures)


def _is_dead(broker: Broker) -> bool:
    return broker.journal.failed is not None


def _refuses_everything(run: Run, figures: Figures) -> None:
    """S9: no command is accepted, and the error says why."""
    broker = run.broker
    topics = [t["topic"] for t in broker.topics() if ".dead." not in t["topic"]]
    topic = topics[0] if topics else "fresh"
    answers: list[Any] = []
    sink = Sink(DIRECT, lambda _: None, lambda _: None)
    commands: list[Callable[[], Any]] = [
        lambda: broker.publish(
            topic, 0, encode_one(b"late"), 1, b"\x01" * 16, 0, 0, DIRECT, answers.append
        ),
        lambda: broker.flush(DIRECT, answers.append),
        lambda: broker.create_topic("another", 1, TopicPolicy()),
        lambda: broker.create_subscription(topic, "another", SubscriptionPolicy(), None),
        lambda: broker.attach(topic, "another", None, None, 10, 1 << 20, "late", sink),
        broker.keeper.snapshot,
        *(
            lambda h=holder: broker.ack(h.consumer, run.claims(h, sorted(h.held)))
            for holder in run.holders
            if holder.held
        ),
    ]
    for command in commands:
        answers.clear()
        try:
            command()
            run.commit()
        except PenstockError as error:
            answers.append(error)
        for answer in answers or [None]:
            code = answer.code if isinstance(answer, PenstockError) else ""
            if code not in {"store-failed", "closed"}:
                raise Violation(f"S9 a command after the failure was answered with {answer!r}")
        figures.refused += 1
    broker.tick()


def _still_reads(run: Run) -> None:
    """Reading goes on, and shows nothing half done."""
    if run.broker.state.written_topics:
        look(run.broker)  # A `written` publish counts before its group does.
        return
    facts = run.history.facts(run.clock.now(), run.clock.wall())
    match(run.history, facts, run.broker, is_live=True)


def _nothing_lost(run: Run, figures: Figures) -> None:
    """Opened again, by another process or after a power cut, everything confirmed is there."""
    run.disk.on_operation = None
    facts = run.history.facts(run.clock.now(), run.clock.wall())
    disks = [twin(run.disk)]
    disks += [MemoryDisk.from_image(image) for _, image in run.disk.crash_images(ALL_POLICIES)]
    for disk in disks:
        figures.reopened += 1
        with chance(f"{SEED}:again"):
            broker = Broker.open(disk, run.settings, run.clock, threads=False)
        match(run.history, facts, broker)
    if hasattr(run, "broker"):
        run.broker.close()
        if run.disk.owner() is not None:
            raise Violation("S14 the store stays locked after its broker was closed")
