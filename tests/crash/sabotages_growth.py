"""Planted bugs in the adding of partitions."""

from typing import Any

from penstock.delivery import dead, growth
from penstock.delivery.state import Cursor
from tests.crash import stages
from tests.crash import workload_changing as changing
from tests.crash.sabotage import Planting, patch, sabotage


@sabotage("M70", "a subscription covers an added partition from its end only",
          stages.crash(changing.growth_meets_publishing))  # fmt: skip
def covered_from_the_end() -> Planting:
    def at_the_end(subscription: Any, partition: Any, _start: int) -> Cursor:
        return Cursor(subscription, partition, partition.reserved)

    return patch(growth, "Cursor", at_the_end)


@sabotage("M71", "a redriven message goes to the partition its dead letter lay in",
          stages.crash(changing.growth_meets_dead_letters))  # fmt: skip
def home_forgotten() -> Planting:
    def all_to_one(_subscription: Any, partition: Any, frames: Any) -> Any:
        return {partition.index: list(frames)}

    return patch(dead, "_by_home", all_to_one)
