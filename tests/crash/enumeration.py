"""Crash everywhere: every operation of a workload × every policy → recover → compare → again.

`Enumeration` runs one workload and takes every image a crash could leave before each operation
on the disk. Each image is recovered and checked against the History (depth 1); some recoveries
are themselves crashed at each of their operations and recovered again (depth 2).
"""

import copy
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

import msgspec
from xxhash import xxh3_128

from penstock.broker.broker import Broker
from penstock.journal import superblock
from penstock.journal.memory import ALL_POLICIES, Image, MemoryDisk, Op, Policy, Verb
from penstock.vocabulary.errors import PenstockError
from tests.crash.given import SEED, Hand, chance
from tests.crash.oracle import Facts, History, Violation, match
from tests.crash.probe import probe
from tests.crash.run import Run

Workload = Callable[[Run], None]

QUICK_POLICIES: Final = (
    Policy.DROP_ALL, Policy.KEEP_ALL, Policy.PREFIX, Policy.ONE_MISSING, Policy.TORN_PREFIX,
    Policy.TORN_SUFFIX, Policy.GARBAGE_TAIL, Policy.NAMES_LOST, Policy.CONTENT_LOST,
)  # fmt: skip
"""What the second crash of a pair leaves in the short form."""


class Point(NamedTuple):
    """One moment of a workload and the images a crash there may leave."""

    op: Op | None
    facts: Facts
    images: list[tuple[str, Image]]
    killed: MemoryDisk | None
    """The disk as the next process finds it when only the process dies."""

    @property
    def is_quiet(self) -> bool:
        """True when everything was durable: a crash here changes nothing."""
        return len(self.images) == 1


class Figures(msgspec.Struct):
    """What one enumeration did."""

    trace_ops: int = 0
    crash_points: int = 0
    checks: int = 0
    acked: int = 0
    notes: int = 0
    hashes: set[bytes] = msgspec.field(default_factory=set)
    depth2_hashes: set[bytes] = msgspec.field(default_factory=set)
    damaged_images: int = 0

    def __str__(self) -> str:
        return (
            f"trace_ops={self.trace_ops} crash_points={self.crash_points} "
            f"distinct_images={len(self.hashes)} depth2_images={len(self.depth2_hashes)} "
            f"damaged_images={self.damaged_images} checks={self.checks} confirmed={self.acked}"
        )


class Enumeration:
    """All crashes of one workload."""

    def __init__(
        self, workload: Workload, *, policies: Sequence[Policy] = ALL_POLICIES,
        depth2_policies: Sequence[Policy] = QUICK_POLICIES, depth2_stride: int = 1,
        kill_stride: int = 4, damage_stride: int = 4, seed: int = SEED,
    ) -> None:  # fmt: skip
        self.workload = workload
        self.policies = policies
        self.depth2_policies = depth2_policies
        self.depth2_stride = depth2_stride
        self.kill_stride = kill_stride
        self.damage_stride = damage_stride
        self.seed = seed
        self.figures = Figures()
        self.run = Run()
        self._steps: dict[tuple[bytes, tuple[object, ...]], int] = {}
        """Image and what was told by then → the step it recovers to."""

    @property
    def history(self) -> History:
        return self.run.history

    def __call__(self) -> Figures:
        """Runs and checks everything. Raises Violation with all that is needed to repeat it."""
        for number, point in enumerate(self.points()):
            for label, image in point.images:
                with self._named(f"operation {number} ({point.op}) {label}"):
                    self._check_once(image, point)
            if point.killed is not None:
                with self._named(f"operation {number} ({point.op}) killed"):
                    self._kill_then_cut(point.killed, point.facts)
        self.figures.acked = self.history.confirmed_count
        return self.figures

    # -- the workload ----------------------------------------------------------------------------

    def points(self) -> list[Point]:
        """Runs the workload; the images of every moment of it."""
        found: list[Point] = []
        run = self.run

        def watch(op: Op | None) -> None:
            if run.is_watched:
                self.figures.crash_points += 1
                facts = run.history.facts(run.clock.now(), run.clock.wall())
                images = list(run.disk.crash_images(self.policies, self.seed))
                is_turn = self.kill_stride and len(found) % self.kill_stride == 0
                killed = twin(run.disk) if is_turn else None
                found.append(Point(op, facts, images, killed))

        run.disk.on_operation = watch
        with chance(f"{self.seed}"):
            self.workload(run)
        watch(None)
        run.disk.on_operation = None
        self.figures.trace_ops = len(run.disk.trace)
        return found

    # -- depth 1 ---------------------------------------------------------------------------------

    def _check_once(self, image: Image, point: Point) -> None:
        key = fingerprint(image)
        facts = point.facts
        known = self._steps.get((key, facts.told))
        if known is not None and facts.floor <= known:
            return
        self.figures.hashes.add(key)
        number = len(self._steps)
        is_deep = bool(self.depth2_stride) and number % self.depth2_stride == 0
        self._steps[key, facts.told] = self._check(
            image, facts, is_deep=is_deep, is_quiet=point.is_quiet
        )
        if self.damage_stride and number % self.damage_stride == 0:
            for label, each in damaged(image):
                with self._named(label):
                    self._check_damaged(each, facts)

    def _check(self, image: Image, facts: Facts, *, is_deep: bool, is_quiet: bool) -> int:
        """Recovers twice: the second time must change nothing (S11)."""
        disk = MemoryDisk.from_image(image, record=True)
        deeper: list[tuple[str, Image]] = []
        if is_deep:
            disk.on_operation = lambda op: deeper.extend(
                (f"then operation {op.number} ({op}) {label}", again)
                for label, again in disk.crash_images(self.depth2_policies, self.seed)
            )
        broker = self._recover(disk, facts, "1")
        disk.on_operation = None
        step = match(self.history, facts, broker)
        if is_quiet and broker.journal.report.torn_bytes:
            raise Violation("S10 a torn tail was reported where nothing was torn")
        again = next(iter(disk.crash_images([Policy.DROP_ALL])))[1]
        second = self._same_again(again, facts, step)
        probe(second, self.history, step, facts)
        for label, each in deeper:
            with self._named(label):
                self._check_deeper(each, facts)
        return step

    def _recover(
        self, disk: MemoryDisk, facts: Facts, depth: str, *, is_damaged: bool = False
    ) -> Broker:
        self.figures.checks += 1
        with chance(f"{self.seed}:{depth}"):
            broker = Broker.open(
                disk, self.run.settings, Hand(facts.now, facts.wall), threads=False
            )
        report = broker.journal.report
        is_noted = any("is damaged" in note for note in report.notes)
        if report.damages or (is_noted and not is_damaged):
            raise Violation(f"S10 a power cut was taken for damage: {report}")
        self.figures.notes += bool(report.notes)
        gone = [op for op in disk.trace if op.verb is Verb.UNLINK and not op.file.endswith(".tmp")]
        if gone:
            raise Violation(f"S12 recovery removed files: {gone}")
        return broker

    def _same_again(self, image: Image, facts: Facts, step: int) -> Broker:
        """What a broker once showed is what the next one shows."""
        disk = MemoryDisk.from_image(image, record=True)
        broker = self._recover(disk, facts, "2", is_damaged=True)
        served = facts._replace(floor=step, ceiling=step)
        match(self.history, served, broker)
        if broker.journal.report.torn_bytes:
            raise Violation("S11 the second recovery found a torn tail the first one left")
        return broker

    # -- depth 2 ---------------------------------------------------------------------------------

    def _check_deeper(self, image: Image, facts: Facts) -> None:
        key = fingerprint(image)
        if key in self.figures.depth2_hashes or key in self.figures.hashes:
            return
        self.figures.depth2_hashes.add(key)
        broker = self._recover(MemoryDisk.from_image(image, record=True), facts, "2")
        match(self.history, facts, broker)

    def _check_damaged(self, image: Image, facts: Facts) -> None:
        """The newest snapshot or superblock is unreadable as well: the one before it serves."""
        self.figures.damaged_images += 1
        disk = MemoryDisk.from_image(image, record=True)
        broker = self._recover(disk, facts, "1", is_damaged=True)
        step = match(self.history, facts, broker)
        self._same_again(next(iter(disk.crash_images([Policy.DROP_ALL])))[1], facts, step)

    def _kill_then_cut(self, disk: MemoryDisk, facts: Facts) -> None:
        """The process dies with writes unsynced; the next one serves; then the power goes."""
        deeper: list[tuple[str, Image]] = []
        disk.on_operation = lambda op: deeper.extend(
            (f"then operation {op.number} ({op}) {label}", image)
            for label, image in disk.crash_images(self.depth2_policies, self.seed)
        )
        broker = self._recover(disk, facts, "1")
        disk.on_operation = None
        step = match(self.history, facts, broker)
        for label, image in deeper:
            with self._named(label):
                self._check_deeper(image, facts)
        for label, image in disk.crash_images(self.depth2_policies, self.seed):
            with self._named(f"after serving {label}"):
                self._same_again(image, facts, step)

    def _named(self, where: str) -> "_Named":
        return _Named(f"{self.workload.__name__} seed {self.seed}: {where}")


class _Named:
    """Adds the place to whatever goes wrong inside."""

    def __init__(self, where: str) -> None:
        self._where = where

    def __enter__(self) -> None:
        """Nothing to begin."""

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, Violation):
            raise Violation(f"{self._where}: {error}") from error
        if isinstance(error, PenstockError | LookupError | AssertionError | OSError):
            raise Violation(f"{self._where}: {type(error).__name__}: {error}") from error


def fingerprint(image: Image) -> bytes:
    """One number for the content of all files."""
    digest = xxh3_128()
    for name in sorted(image):
        data = image[name]
        digest.update(f"{name}\n{len(data)}\n".encode())
        digest.update(data)
    return digest.digest()


def damaged(image: Image) -> Iterator[tuple[str, Image]]:
    """The same image with its newest snapshot, or its newest superblock slot, spoilt."""
    snapshots = [name for name in image if name.startswith("snapshot-") and name[-1].isdigit()]
    if snapshots:
        newest = max(snapshots)
        data = image[newest]
        middle = len(data) // 2
        flipped = bytes([*data[:middle], data[middle] ^ 1, *data[middle + 1 :]]) if data else b""
        yield f"{newest} flipped", {**image, newest: flipped}
        yield f"{newest} cut", {**image, newest: data[:middle]}
        yield f"{newest} missing", {n: d for n, d in image.items() if n != newest}
    block = image.get(superblock.NAME, b"")
    slots = [slot.slot_generation if slot else 0 for slot in superblock.decode_slots(block)]
    if all(slots):
        at = slots.index(max(slots)) * superblock.SLOT_BYTES
        spoilt = block[:at] + bytes(512) + block[at + 512 :]
        yield "superblock slot lost", {**image, superblock.NAME: spoilt}


def twin(disk: MemoryDisk) -> MemoryDisk:
    """The same disk for another process: what is pending stays pending, the lock is free."""
    watcher, disk.on_operation = disk.on_operation, None
    trace, disk.trace = disk.trace, []
    try:
        other = copy.deepcopy(disk)
    finally:
        disk.on_operation, disk.trace = watcher, trace
    other.close()
    return other


def enumerate_all(workloads: Iterable[Workload], **options: object) -> Iterator[Figures]:
    """One enumeration after the other."""
    for workload in workloads:
        yield Enumeration(workload, **options)()  # type: ignore[arg-type]
