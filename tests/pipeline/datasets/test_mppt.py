from typing import Any

import pytest

from penstock.pipeline.datasets import mppt
from penstock.pipeline.datasets.raw import raw_batch
from tests.pipeline.datasets import bodies


def row(body: dict[str, Any]) -> dict[str, Any]:
    found = mppt.DATASET.validate(raw_batch([bodies.encoded(body)]))
    assert not found.refused
    return dict(mppt.DATASET.transform(found.good).to_pylist()[0])


def rules(body: dict[str, Any], **limits: float) -> list[str]:
    found = mppt.DATASET.validate(raw_batch([bodies.encoded(body)], ids=["m"]))
    events = mppt.DATASET.analyse(found.good, mppt.Limits(**limits))
    return list(events.column("rule").to_pylist())


def test_powers_are_volts_times_amps() -> None:
    found = row(bodies.mppt())
    assert found["pv"] == [{"volts": 48.0, "amps": 6.0, "watts": 288.0}] * 2
    assert found["battery"] == {"volts": 55.1, "amps": 0.0, "watts": 0.0}
    assert [each["watts"] for each in found["load"]] == [57.6, -57.6]


NORMAL = {
    "bus_connect": False, "input": "normal", "chgfet": "ok", "chgfet_antirev": "ok",
    "fet_antirev": "ok", "input_current": "ok", "load": "ok", "pv_input": "ok",
    "charging": "not-charging", "system": "ok", "standby": "standby",
}  # fmt: skip


@pytest.mark.parametrize(
    ("code", "parts"),
    [
        ("0000", {}),
        ("0801", {"bus_connect": True, "charging": "float"}),
        ("2401", {"bus_connect": True, "charging": "boost", "standby": "running"}),
        ("0100", {"load": "overcurrent"}),
        ("0002", {"input": "high-volt-input"}),
        ("0004", {"input": "no-power"}),
        (
            "3FFF",
            {
                "bus_connect": True, "input": "input-volt-error", "chgfet": "short",
                "chgfet_antirev": "short", "fet_antirev": "short", "input_current": "overcurrent",
                "load": "not-applicable", "pv_input": "short", "charging": "equalisation",
                "system": "fault", "standby": "running",
            },
        ),
    ],
)  # fmt: skip
def test_the_status_codes_of_the_contract(code: str, parts: dict[str, Any]) -> None:
    assert row(bodies.mppt(status__code=code))["status"] == NORMAL | parts
    assert row(bodies.mppt(status__code=code.lower()))["status"] == NORMAL | parts


def test_columns_are_those_of_the_contract() -> None:
    assert mppt.DATASET.schema.names == [
        "mppt_id", "pv", "battery", "load", "status", "sender", "time_event", "time_zone",
        "time_processing", "day",
    ]  # fmt: skip


def test_faults_of_the_status_and_high_currents_are_events() -> None:
    assert rules(bodies.mppt()) == []
    assert rules(bodies.mppt(status__code="1080")) == ["status.load", "status.system"]
    assert rules(bodies.mppt(status__code="0004")) == []  # a dark panel
    assert len(rules(bodies.mppt(status__code="3FFF"))) == 7
    assert rules(bodies.mppt(battery__amps=-201)) == ["battery.current.high"]
    assert rules(bodies.mppt(), pv_amps_max=5, load_amps_max=1) == [
        "pv.current.high", "load.current.high",
    ]  # fmt: skip
