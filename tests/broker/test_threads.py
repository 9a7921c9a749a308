"""The broker's threads: thin loops that wake when there is work and stop when told to."""

import logging
import threading
from collections.abc import Callable, Iterator
from threading import Event, Thread
from time import monotonic, sleep

import pytest

from penstock.batch import encode_many
from penstock.batch.frame import Slice
from penstock.broker import threads as threads_module
from penstock.broker.broker import Broker, Sink
from penstock.broker.mailbox import DIRECT, Pending
from penstock.broker.threads import Bell, Threads
from penstock.journal.memory import MemoryDisk, Op, Verb
from penstock.vocabulary.errors import StoreFailed
from penstock.vocabulary.limits import ACK_DELAY_S_MAX
from penstock.vocabulary.policy import Retry, SubscriptionPolicy
from penstock.vocabulary.records import Cause
from tests.broker.rig import NAMED, SETTINGS, ManualClock, Rig, claim

PATIENCE_S = 30
"""Far longer than anything here takes; only a defect waits for it."""


@pytest.fixture
def disk() -> MemoryDisk:
    return MemoryDisk(record=True)


@pytest.fixture
def broker(disk: MemoryDisk) -> Iterator[Broker]:
    opened = Broker.open(disk, SETTINGS)
    yield opened
    opened.close()


def publish(broker: Broker, topic: str = "orders", sequence: int = 0) -> Pending:
    pending = Pending()
    broker.publish(topic, 0, encode_many([b"x"]), 1, NAMED, 0, sequence, DIRECT, pending)
    return pending


class Inbox:
    """Slices as they arrive from the broker's threads."""

    def __init__(self) -> None:
        self._slices: list[Slice] = []
        self._changed = threading.Condition()

    def receive(self, part: Slice) -> None:
        with self._changed:
            self._slices.append(part)
            self._changed.notify_all()

    def wait_for(self, count: int) -> list[Slice]:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self._slices) >= count, PATIENCE_S)
            return list(self._slices)


def until(is_so: Callable[[], bool]) -> None:
    """Waits for what the broker's threads do without telling anybody."""
    ends = monotonic() + PATIENCE_S
    while not is_so():
        assert monotonic() < ends
        sleep(0.002)


def alive() -> set[Thread]:
    return {each for each in threading.enumerate() if each.name.startswith("penstock-")}


def names_since(before: set[Thread]) -> set[str]:
    """Of threads that began since; those of brokers that other tests opened do not count."""
    return {each.name for each in alive() - before}


# -- the bell ----------------------------------------------------------------------------------


def test_a_ring_wakes_the_sleeper() -> None:
    bell, woken = Bell(), Event()

    def sleeper() -> None:
        if bell.sleep(PATIENCE_S):
            woken.set()

    thread = Thread(target=sleeper)
    thread.start()
    bell.ring()
    thread.join(PATIENCE_S)
    assert woken.is_set()


def test_a_ring_while_nobody_sleeps_is_kept_once() -> None:
    bell = Bell()
    for _ in range(5):
        bell.ring()
    assert bell.sleep(PATIENCE_S)
    assert not bell.sleep(0)


def test_without_a_ring_the_sleep_ends_by_itself() -> None:
    assert not Bell().sleep(0)


# -- start and stop ----------------------------------------------------------------------------


def test_five_threads_serve_and_all_end_with_the_broker(disk: MemoryDisk) -> None:
    before = alive()
    broker = Broker.open(disk, SETTINGS)
    names = ("commit", "worker", "timer", "keeper", "spares")
    assert names_since(before) == {f"penstock-{name}" for name in names}
    broker.close()
    assert not names_since(before)


def test_without_timers_the_clock_is_the_callers_business(disk: MemoryDisk) -> None:
    before = alive()
    broker = Broker.open(disk, SETTINGS, timers=False)
    started = names_since(before)
    broker.close()
    assert started == {f"penstock-{name}" for name in ("commit", "worker", "keeper", "spares")}


def test_what_was_submitted_before_the_stop_is_durable_after_it(disk: MemoryDisk) -> None:
    broker = Broker.open(disk, SETTINGS)
    waiting = [publish(broker, sequence=number) for number in range(50)]
    broker.close()
    assert [pending.wait().base for pending in waiting] == list(range(50))
    again = Broker.open(disk, SETTINGS, threads=False)
    assert again.stats()["messages_held"] == 50
    again.close()


def test_abandoning_stops_the_threads_too(disk: MemoryDisk) -> None:
    before = alive()
    Broker.open(disk, SETTINGS).abandon()
    assert not names_since(before)


def test_a_call_from_any_thread_waits_until_it_is_durable(broker: Broker) -> None:
    def create(name: str) -> None:
        broker.create_subscription("orders", name, SubscriptionPolicy(), None)

    workers = [Thread(target=create, args=(f"s{n}",)) for n in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(PATIENCE_S)
    assert len(broker.subscriptions()) == 8


# -- commit ------------------------------------------------------------------------------------


def test_a_publish_is_committed_without_anybody_asking(broker: Broker) -> None:
    assert publish(broker).wait().base == 0


def test_publishes_from_many_threads_share_syncs(disk: MemoryDisk, broker: Broker) -> None:
    publish(broker, "other").wait()
    gate = Event()
    held = Event()

    def hold(op: Op) -> None:
        if op.verb is Verb.SYNC and op.file.startswith("segment") and not gate.is_set():
            held.set()
            gate.wait(PATIENCE_S)

    disk.on_operation = hold
    waiting = [publish(broker, sequence=0)]
    assert held.wait(PATIENCE_S)
    before = len(disk.trace)
    waiting += [publish(broker, sequence=number) for number in range(1, 15)]
    gate.set()
    assert [pending.wait().base for pending in waiting] == list(range(15))
    data = [op for op in disk.trace[before:] if op.file.startswith("segment")]
    assert sum(op.verb is Verb.SYNC for op in data) <= 6


def test_an_ack_becomes_durable_without_anybody_asking(disk: MemoryDisk, broker: Broker) -> None:
    inbox = Inbox()
    sink = Sink(DIRECT, inbox.receive, lambda _: None)
    consumer = broker.attach("orders", "billing", None, None, 10, 1 << 20, "w", sink)
    publish(broker)
    (part,) = inbox.wait_for(1)
    durable = Event()

    def watch(op: Op) -> None:
        if op.verb is Verb.SYNC:
            durable.set()

    disk.on_operation = watch
    broker.ack(consumer, [claim(part)])
    assert durable.wait(PATIENCE_S)


def test_acks_wait_for_company_at_most_five_milliseconds(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig()
    threads = Threads(rig.engine, rig.keeper, None)
    time = _quiet_bell(threads, monkeypatch)
    threads._linger()
    assert time.now - 100.0 == pytest.approx(ACK_DELAY_S_MAX)
    assert ACK_DELAY_S_MAX <= 0.005


def test_something_urgent_ends_the_waiting_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig()
    threads = Threads(rig.engine, rig.keeper, None)
    time = _quiet_bell(threads, monkeypatch)
    rig.submit()
    threads._linger()
    assert time.slept == []


class QuietBell:
    """Stands in for the commit bell, whose slots cannot be replaced."""

    def __init__(self) -> None:
        self.now = 100.0
        self.slept: list[float] = []

    def sleep(self, seconds: float) -> bool:
        self.slept.append(seconds)
        self.now += seconds
        return False

    def ring(self) -> None:
        """Nobody sleeps here."""


def _quiet_bell(threads: Threads, monkeypatch: pytest.MonkeyPatch) -> QuietBell:
    bell = QuietBell()
    threads._commit_bell = bell  # type: ignore[assignment]
    monkeypatch.setattr(threads_module, "monotonic", lambda: bell.now)
    return bell


def test_an_idle_broker_writes_down_how_far_it_is_durable(broker: Broker) -> None:
    publish(broker).wait()
    wanted = broker.journal.durable_upto
    until(lambda: broker.journal.block.state.durable_upto >= wanted)  # known once it is synced


# -- worker, timer, keeper ---------------------------------------------------------------------


def test_messages_on_disk_are_read_by_the_worker(disk: MemoryDisk, broker: Broker) -> None:
    broker.create_subscription("orders", "billing", SubscriptionPolicy(), None)
    publish(broker).wait()
    broker.journal._cache.clear()
    inbox = Inbox()
    sink = Sink(DIRECT, inbox.receive, lambda _: None)
    broker.attach("orders", "billing", None, None, 10, 1 << 20, "w", sink)
    assert len(inbox.wait_for(1)) == 1


def test_a_back_off_ends_without_anybody_asking(broker: Broker) -> None:
    inbox = Inbox()
    sink = Sink(DIRECT, inbox.receive, lambda _: None)
    consumer = broker.attach("orders", "billing", None, None, 10, 1 << 20, "w", sink)
    publish(broker)
    (part,) = inbox.wait_for(1)
    broker.give_back(consumer, claim(part), Cause.NACKED, 0.001, "")
    assert [each.attempt for each in inbox.wait_for(2)] == [1, 2]


def test_a_lease_expires_without_anybody_asking(broker: Broker) -> None:
    inbox = Inbox()
    sink = Sink(DIRECT, inbox.receive, lambda _: None)
    policy = SubscriptionPolicy(lease_s=0.01, retry=Retry(max_attempts=None))
    broker.attach("orders", "billing", policy, None, 10, 1 << 20, "w", sink)
    publish(broker)
    assert [each.attempt for each in inbox.wait_for(2)[:2]] == [1, 2]


def test_dead_letters_are_moved_without_anybody_asking(broker: Broker) -> None:
    inbox, dead = Inbox(), Inbox()
    sink = Sink(DIRECT, inbox.receive, lambda _: None)
    consumer = broker.attach("orders", "billing", None, None, 10, 1 << 20, "w", sink)
    publish(broker)
    (part,) = inbox.wait_for(1)
    broker.give_back(consumer, claim(part), Cause.REJECTED, None, "bad")
    name = "orders.dead.billing"
    until(lambda: name in broker.state.names)
    sink = Sink(DIRECT, dead.receive, lambda _: None)
    broker.attach(name, "inspector", None, None, 10, 1 << 20, "i", sink)
    assert len(dead.wait_for(1)) == 1


class RoundBell:
    """Lets a loop go round so often, then asks it to stop."""

    def __init__(self, threads: Threads, count: int, between: Callable[[], object]) -> None:
        self._threads = threads
        self._left = count
        self._between = between

    def sleep(self, _seconds: float) -> bool:
        self._left -= 1
        self._threads._is_stopping = self._left <= 0
        self._between()
        return False


def rounds_of_the_keeper(rig: Rig, count: int) -> None:
    """Runs the keeper's loop so many rounds, in this thread."""
    threads = Threads(rig.engine, rig.keeper, None)
    threads._keeper_bell = RoundBell(threads, count, lambda: None)  # type: ignore[assignment]
    threads._keep()


def rounds_of_spares(rig: Rig, count: int, between: Callable[[], object]) -> None:
    """Runs the loop that keeps segments ready; something may happen between two rounds."""
    threads = Threads(rig.engine, rig.keeper, None)
    threads._spare_bell = RoundBell(threads, count, between)  # type: ignore[assignment]
    threads._spare()


def test_a_segment_is_made_ready_when_the_active_one_fills() -> None:
    rig = Rig()
    rounds_of_spares(rig, 1, lambda: None)
    assert rig.journal.spares.files == []
    rig.publish("orders", bytes(1500))
    rounds_of_spares(rig, 3, lambda: None)
    assert len(rig.journal.spares.files) == 1


def test_two_segments_are_made_ready_while_the_log_goes_fast() -> None:
    rig = Rig()
    rig.publish()
    sizes: list[int] = []

    def publish_much() -> None:
        sizes.append(len(rig.journal.spares.files))
        rig.publish("orders", bytes(3000))

    rounds_of_spares(rig, 4, publish_much)
    assert max(sizes) == 2


def test_no_segment_is_made_ready_after_a_failure() -> None:
    rig = Rig()
    rig.publish("orders", bytes(1500))
    rig.journal.failed = StoreFailed("gone")
    rounds_of_spares(rig, 2, lambda: None)
    assert rig.journal.spares.files == []


def test_the_keeper_takes_snapshots_when_due_and_gives_segments_back() -> None:
    rig = Rig()
    worker = rig.attach()
    for _ in range(30):
        rig.publish("orders", bytes(300))
    for part in worker.take():
        rig.ack(worker, part)
    before = rig.journal.disk_bytes
    for _ in range(3):
        rig.clock.advance(61)
        rig.publish("other")
        rounds_of_the_keeper(rig, 1)
    assert len(rig.journal.snapshots) == 2
    assert rig.journal.disk_bytes < before


def test_the_keeper_compacts_until_the_disk_holds_little_more_than_it_must() -> None:
    rig = Rig()
    worker = rig.attach()
    for number in range(100):
        rig.publish("orders", b"%06d" % number + bytes(300))
    for part in worker.take():
        if part.start % 10:
            rig.ack(worker, part)
    before = rig.journal.disk_bytes
    for _ in range(3):
        rig.clock.advance(61)
        rig.publish("other")
        rounds_of_the_keeper(rig, 1)
    assert rig.journal.disk_bytes < before / 2
    assert len(rig.held()) == 10


def test_a_failed_journal_gives_the_keeper_nothing_to_do() -> None:
    rig = Rig()
    rig.publish("orders", bytes(1500))
    rig.journal.failed = StoreFailed("gone")
    before = len(rig.disk.trace)
    rounds_of_the_keeper(rig, 2)
    assert len(rig.disk.trace) == before


# -- failures inside a thread ------------------------------------------------------------------


@pytest.fixture
def log_lines(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> pytest.LogCaptureFixture:
    """What the threads log, whatever another test did to the library's own logger."""
    monkeypatch.setattr(threads_module, "log", logging.getLogger("test-of-threads"))
    return caplog


def test_a_refusal_inside_a_thread_is_logged_and_the_loop_goes_on(
    log_lines: pytest.LogCaptureFixture,
) -> None:
    rig = Rig()
    threads = Threads(rig.engine, rig.keeper, None)

    def refuse() -> None:
        raise StoreFailed("the disk is gone")

    assert threads._guard(refuse) == 0
    assert "store-failed: the disk is gone" in log_lines.text


def test_a_defect_inside_a_thread_is_logged_with_its_traceback_and_the_loop_goes_on(
    log_lines: pytest.LogCaptureFixture,
) -> None:
    rig = Rig()
    threads = Threads(rig.engine, rig.keeper, None)

    def defect() -> None:
        raise ZeroDivisionError

    assert threads._guard(defect) == 0
    assert "ZeroDivisionError" in log_lines.text
    assert threads._guard(lambda: 7) == 7


def test_a_failed_disk_is_told_to_every_waiter_and_the_broker_can_be_closed(
    disk: MemoryDisk,
) -> None:
    broker = Broker.open(disk, SETTINGS, ManualClock())

    def fail(op: Op) -> None:
        if op.verb is Verb.SYNC and op.file.startswith("segment"):
            raise OSError(5, "gone")

    disk.on_operation = fail
    with pytest.raises(StoreFailed):
        publish(broker).wait()
    disk.on_operation = None
    broker.close()
