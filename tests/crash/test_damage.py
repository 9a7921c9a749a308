"""FLIP: whatever happens to the bytes of a store, it is noticed, and only what they held is lost.

Each case changes one thing in the files of a small store: a bit, a cut, a block of zeros, a group
in the wrong place, an older copy, a missing file. Opening it may end in three ways: nothing is
different; exactly what the changed records told is lost and reported; or a refusal by name.
"""

import multiprocessing
import os
from collections.abc import Callable
from itertools import islice
from typing import Any

import pytest

from penstock.journal import group, recovery
from penstock.journal.index import Index
from penstock.journal.journal import Journal
from penstock.journal.memory import MemoryDisk
from penstock.journal.verify import Verdict, verify
from tests.crash.damage_cases import LONG, SHORT, Case, Density, cases
from tests.crash.damage_store import Stage, build
from tests.crash.damage_sweep import Figures, Sweep
from tests.tally import Tally

ROUNDS_SHORT = 6
ROUNDS_LONG = 24
PARTS = 40
"""The long form comes in so many parts."""
LOOK_CLOSER = 12
"""One case in so many is also consumed, verified and salvaged in the short form."""


@pytest.fixture(scope="module")
def stages() -> list[Stage]:
    return build(ROUNDS_SHORT)


def named(stages: list[Stage], name: str) -> Stage:
    return next(stage for stage in stages if stage.name == name)


def test_the_store_holds_something_of_every_kind(stages: list[Stage]) -> None:
    kinds = {
        type(part).__name__
        for stage in stages
        for each in Sweep(stages, stage).truth.placed
        for part in each.parts
    }
    assert kinds >= {
        "Published", "Copied", "Settled", "Delivered", "Returned", "TopicCreated", "TopicDeleted",
        "TopicAltered", "SubscriptionCreated", "SubscriptionDeleted", "Attached", "Detached",
        "Started",
    }  # fmt: skip


@pytest.mark.parametrize("name", ["begun", "compacted", "killed", "closed"])
def test_the_whole_store_is_found_whole(stages: list[Stage], name: str) -> None:
    assert verify(MemoryDisk.from_image(named(stages, name).image)).verdict is Verdict.OK


def test_every_kind_of_damage_to_a_killed_store_is_noticed(
    stages: list[Stage], tally: Tally
) -> None:
    killed = named(stages, "killed")
    figures = Sweep(stages, killed).run(cases(stages, killed, SHORT), every=LOOK_CLOSER)
    _judge(figures, tally)
    assert figures.cases > 10_000
    assert min(figures.unaffected, figures.reported, figures.refused) > 100


@pytest.mark.parametrize("name", ["snapshot-3", "compacted", "closed"])
def test_every_metadata_file_of_every_stage_may_be_damaged(
    stages: list[Stage], name: str, tally: Tally
) -> None:
    chosen = named(stages, name)
    coarse = Density(bits=1, blank_step=512, cut_step=128, reach=0)
    small = [c for c in cases(stages, chosen, coarse) if not _is_about_segment(c)]
    figures = Sweep(stages, chosen).run(islice(small, 0, None, 3), every=LOOK_CLOSER)
    _judge(figures, tally)


@pytest.mark.prove
@pytest.mark.parametrize("name", ["snapshot-3", "compacted", "closed"])
def test_every_kind_of_damage_to_every_stage_is_noticed(
    stages: list[Stage], name: str, tally: Tally
) -> None:
    chosen = named(stages, name)
    _judge(Sweep(stages, chosen).run(cases(stages, chosen, SHORT), every=LOOK_CLOSER), tally)


@pytest.mark.prove
@pytest.mark.parametrize("part", range(PARTS))
def test_every_bit_of_a_larger_store(part: int, tally: Tally) -> None:
    workers = os.cpu_count() or 1
    jobs = [(number * PARTS + part, workers * PARTS) for number in range(workers)]
    total = Figures()
    with multiprocessing.get_context("spawn").Pool(workers) as pool:
        for figures in pool.imap_unordered(_share, jobs):
            total.add(figures)
    _judge(total, tally)
    assert total.cases > 5_000


def _share(job: tuple[int, int]) -> Figures:
    number, step = job
    stages = build(ROUNDS_LONG)
    chosen = named(stages, "killed")
    mine = islice(cases(stages, chosen, LONG), number, None, step)
    return Sweep(stages, chosen).run(mine, every=4 * LOOK_CLOSER)


def _judge(figures: Figures, tally: Tally) -> None:
    print(f"\n{figures.line()}")  # noqa: T201 - the line is the report
    tally.add("damage", **figures.numbers())
    assert not figures.problems, "\n".join(figures.problems)


def _is_about_segment(case: Case) -> bool:
    return any(name.startswith("segment-") and data for name, data in case.changes.items())


# -- the sweep itself can tell good from bad -------------------------------------------------------


def trust_every_record(patch: pytest.MonkeyPatch) -> None:
    def read(data: Any, at: int, _position: int, _salt: int) -> bytes:
        length = int.from_bytes(data[at + 8 : at + 12], "little")
        return bytes(data[at + 8 : at + 8 + length])

    patch.setattr(group, "read_record", read)


def rescue_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(group, "rescue", lambda *_: [])


def forget_the_watermark(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(recovery._Recovery, "_durable_after", lambda *_: 0)


def never_report(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Journal, "note", lambda *_: None)


def clean_up_after_damage(patch: pytest.MonkeyPatch) -> None:
    original: Callable[..., Any] = recovery._Recovery._finish

    def finish(self: Any) -> None:
        original(self)
        for segment in self.scanned:
            if segment.is_damaged:
                self.journal.disk.unlink(segment.file.name)

    patch.setattr(recovery._Recovery, "_finish", finish)


def mix_up_places(patch: pytest.MonkeyPatch) -> None:
    original = Index.locate

    def locate(self: Index, key: int, start: int, end: int) -> Any:
        return original(self, key, start, end)[1:]

    patch.setattr(Index, "locate", locate)


@pytest.mark.parametrize(
    ("sabotage", "finding"),
    [
        (trust_every_record, "wrong"),
        (rescue_nothing, "something differs although no record is hurt"),
        (forget_the_watermark, "silent"),
        (never_report, "silent"),
        (clean_up_after_damage, "deleted"),
        (mix_up_places, "collateral"),
    ],
)
def test_the_sweep_notices_sabotage(
    stages: list[Stage],
    monkeypatch: pytest.MonkeyPatch,
    sabotage: Callable[[pytest.MonkeyPatch], None],
    finding: str,
) -> None:
    killed = named(stages, "killed")
    sweep = Sweep(stages, killed)
    sabotage(monkeypatch)
    chosen = islice(cases(stages, killed, SHORT), 0, None, 11)
    figures = sweep.run(chosen, every=1 << 30)
    assert any(f": {finding}" in problem for problem in figures.problems), figures.problems
