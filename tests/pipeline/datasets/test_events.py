import numpy as np

from penstock.pipeline.datasets import events, pms
from penstock.pipeline.datasets.raw import raw_batch
from tests.pipeline.datasets import bodies


def test_events_come_in_the_order_of_rows_and_rules_and_say_where_from() -> None:
    body = bodies.encoded(bodies.pms())
    good = pms.DATASET.validate(
        raw_batch([body, body], ids=["a", "b"], partition=2, offsets=[10, 11])
    ).good
    first, second = events.Rule(7, "seven", "info"), events.Rule(8, "eight", "critical")
    both = np.array([True, True])
    found = events.as_events(
        good, "pms_id", "pack.id",
        [
            events.fired(second, both, "p", np.array([1, 2]), None),
            events.fired(first, both, "q", np.array([3.5, 4.5]), 3.0),
        ],
    )  # fmt: skip
    assert found.schema == events.EVENTS
    assert found.column("id").to_pylist() == ["a/seven", "a/eight", "b/seven", "b/eight"]
    assert found.column("value").to_pylist() == [3.5, 1.0, 4.5, 2.0]
    assert found.column("_offset").to_pylist() == [10, 10, 11, 11]
    assert found.column("device").to_pylist() == ["PMS-01-001"] * 4


def test_no_findings_are_no_events() -> None:
    good = pms.DATASET.validate(raw_batch([bodies.encoded(bodies.pms())])).good
    assert len(events.as_events(good, "pms_id", None, [])) == 0


def test_the_worst_value_of_a_row_is_told() -> None:
    rule = events.Rule(2, "hot", "critical")
    columns = {"a": np.array([1.0, 70.0]), "b": np.array([80.0, 5.0])}
    found = events.worst(rule, columns, 60.0)
    assert (found.paths, found.values) == (["b", "a"], [80.0, 70.0])
