"""What the tasks of a batch returned, made one: no row twice, every message accounted for."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import pyarrow as pa

from penstock.pipeline.counting import Counts
from penstock.pipeline.datasets.events import EVENTS
from penstock.pipeline.ledger import Range
from penstock.pipeline.refusals import CountsDiffer
from penstock.pipeline.repositories.known import Marks, is_among
from penstock.pipeline.repositories.port import TableStorage
from penstock.pipeline.spark.workers import Outcome, Plan, Priors, marks_of, to_table

Again = Callable[[Outcome, Priors], Outcome]
"""Does a range once more, knowing the rows of the ranges before it."""


def joined(outcomes: Iterable[Outcome], plan: Plan, again: Again) -> list[Outcome]:
    """The outcomes in source order. A range that says what an earlier one said is done again."""
    done: list[Outcome] = []
    priors: dict[str, list[Marks]] = {}
    for outcome in sorted(outcomes, key=lambda each: (each.partition, each.start)):
        found = outcome
        if done and _meets(outcome, priors):
            found = again(outcome, priors)
        for stored in found.stored:
            priors.setdefault(stored.root, []).append(marks_of(plan, stored))
        done.append(found)
    return done


def _meets(outcome: Outcome, priors: Priors) -> bool:
    """True when a row has the device, pack and moment of a row of an earlier range."""
    return any(
        bool(is_among(stored.moments, part.moment).any())
        for stored in outcome.stored
        for part in priors.get(stored.root, ())
    )


def drop_files(outcome: Outcome, tables: Mapping[str, TableStorage]) -> None:
    """Removes the files of an outcome that is not used; no table ever names them."""
    for stored in outcome.stored:
        table = tables[stored.root]
        for file in stored.files:
            (Path(table.root) / table.staging() / file.path).unlink(missing_ok=True)


def check_cover(outcomes: Iterable[Outcome], ranges: Iterable[Range], where: str) -> None:
    """Raises CountsDiffer unless the tasks did exactly the ranges of the ledger."""
    did: list[list[int]] = []
    for each in sorted(outcomes, key=lambda one: (one.partition, one.start)):
        if did and did[-1][0] == each.partition and did[-1][2] == each.start:
            did[-1][2] = each.end
        else:
            did.append([each.partition, each.start, each.end])
    wanted = [list(each) for each in sorted(ranges)]
    if did != wanted:
        raise CountsDiffer(f"{where}: the tasks did the ranges {did}, the ledger has {wanted}")


def counts_of(outcomes: Iterable[Outcome], number: int) -> Counts:
    """The counts of a batch, as table `number` sees it."""
    total = Counts()
    for each in outcomes:
        stored = each.stored[number]
        total.add(Counts(each.read, stored.stored, len(each.quarantined), stored.duplicate))
    return total


def check_counts(outcomes: Sequence[Outcome], number: int, where: str) -> None:
    """Raises CountsDiffer unless every message is accounted for, and every new row in a file."""
    counts_of(outcomes, number).check(where)
    for each in outcomes:
        part = f"{where}, offsets {each.start} to {each.end} of partition {each.partition}"
        counts_of([each], number).check_written(part, each.stored[number].files)


def events_of(outcomes: Iterable[Outcome]) -> pa.Table:
    """The events of a batch. Records of an aborted transaction are offsets without an outcome."""
    found = [to_table(each.events) for each in outcomes if each.events]
    return pa.concat_tables([EVENTS.empty_table(), *found])


def rows_of(outcomes: Iterable[Outcome]) -> pa.Table | None:
    """The new rows of a batch, when they were asked for; None when no message was read."""
    found = [to_table(each.rows) for each in outcomes if each.rows]
    return pa.concat_tables(found) if found else None
