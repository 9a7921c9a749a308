"""Where a query's messages come from: the port between a pipeline and its broker."""

from collections.abc import Callable
from typing import Any, Protocol

import pyarrow as pa

from penstock.pipeline.datasets.features import Features
from penstock.pipeline.ledger import Range
from penstock.pipeline.spark.workers import Outcome, Plan, Priors
from penstock.pipeline.work import Quarantined

Offsets = dict[int, int]
"""Partition to offset."""
Call = Callable[[Any], Any]
"""Runs a coroutine on the client's loop and waits for it."""


class Feed(Protocol):
    """One topic, read by one pipeline. Calls block; they come from any thread."""

    def open(self) -> None:
        """Finds the topic; fences an older run where the broker can. Raises what opening raises."""
        ...

    def progress(self) -> Offsets:
        """Where a pipeline that has stored nothing yet begins."""
        ...

    def begin(self, ends: Offsets) -> Offsets:
        """The first batch of an epoch starts behind these ends; returns where that is exactly."""
        ...

    def check(self, need: Offsets, upto: Offsets) -> None:
        """Raises SourceDiffers when the topic lacks anything between these offsets."""
        ...

    def stream(self, spark: Any, initial: Offsets) -> Any:
        """The reader of a streaming query, still to be loaded."""
        ...

    def work(self, frame: Any, plan: Plan, ranges: list[Range]) -> list[Outcome]:
        """Has the workers do a batch: what Spark planned, and the same as the ledger has it."""
        ...

    def work_again(self, plan: Plan, done: Outcome, priors: Priors) -> Outcome:
        """Does a range once more, here in the driver, knowing the rows of earlier ranges."""
        ...

    def check_cover(self, outcomes: list[Outcome], ranges: list[Range], where: str) -> None:
        """Raises CountsDiffer unless the tasks did exactly the ranges of the ledger."""
        ...

    def report(self, ends: Offsets) -> None:
        """Tells the broker how far the tables are."""
        ...

    def features(self) -> tuple[int, Features]:
        """The active features and their version."""
        ...

    def publish(
        self, refused: list[Quarantined], events: pa.Table, rows: pa.Table | None,
        ranges: list[Range],
    ) -> None:  # fmt: skip
        """Publishes what the batch of these ranges has to say; durable when it returns."""
        ...

    def close(self) -> None:
        """Lets go of the broker. Doing so twice is harmless."""
        ...
