import math
from typing import Any

import pytest

from penstock.pipeline.datasets import inverter
from penstock.pipeline.datasets.raw import raw_batch
from tests.pipeline.datasets import bodies


def row(body: dict[str, Any]) -> dict[str, Any]:
    found = inverter.DATASET.validate(raw_batch([bodies.encoded(body)]))
    assert not found.refused
    return dict(inverter.DATASET.transform(found.good).to_pylist()[0])


@pytest.mark.parametrize(("phases", "watts"), [(1, 52.992), (2, 52.992), (3, 91.7848)])
def test_grid_power_has_the_root_of_three_with_three_phases(phases: int, watts: float) -> None:
    body = bodies.inverter(
        grid__volts=[48.0] * phases, grid__amps=[1.2] * phases, grid__pf=[0.92] * phases
    )
    assert row(body)["grid"] == [{"volts": 48.0, "amps": 1.2, "pf": 0.92, "watts": watts}] * phases


def test_mixed_phases_in_one_batch_are_told_apart() -> None:
    given = [
        bodies.encoded(
            bodies.inverter(grid__volts=[230.0] * n, grid__amps=[-2.5] * n, grid__pf=[0.5] * n)
        )
        for n in (3, 1, 2, 3)
    ]
    rows = inverter.DATASET.transform(inverter.DATASET.validate(raw_batch(given)).good).to_pylist()
    three = -math.floor(230 * 2.5 * 0.5 * math.sqrt(3) * 10_000 + 0.5) / 10_000
    assert [each["grid"][0]["watts"] for each in rows] == [three, -287.5, -287.5, three]


def test_columns_are_those_of_the_contract() -> None:
    assert inverter.DATASET.schema.names == [
        "inverter_id", "pv", "battery", "load", "grid", "status", "sender", "time_event",
        "time_zone", "time_processing", "day",
    ]  # fmt: skip
    assert row(bodies.inverter())["status"] == {"bus_connect": True}


def test_a_high_current_of_a_phase_is_an_event_with_its_sign_and_place() -> None:
    given = [[1.0, -250.0, 2.0], [1.0], [-300.0, 300.0], [201.0, 0.0, -202.0]]
    whole = [
        bodies.encoded(
            bodies.inverter(
                grid__amps=amps, grid__volts=[230.0] * len(amps), grid__pf=[1.0] * len(amps)
            )
        )
        for amps in given
    ]
    good = inverter.DATASET.validate(raw_batch(whole)).good
    events = inverter.DATASET.analyse(good).to_pylist()
    assert {(event["rule"], event["limit"]) for event in events} == {("grid.current.high", 200.0)}
    assert [(event["path"], event["value"]) for event in events] == [
        ("grid.amps[1]", -250.0),
        ("grid.amps[0]", -300.0),
        ("grid.amps[2]", -202.0),
    ]
