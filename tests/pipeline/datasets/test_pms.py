import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock.pipeline.datasets import pms
from penstock.pipeline.datasets.raw import raw_batch
from tests.pipeline.datasets import bodies


def row(body: dict[str, Any]) -> dict[str, Any]:
    (found,) = pms.DATASET.transform(checked(body)).to_pylist()
    return dict(found)


def checked(body: dict[str, Any]) -> pa.RecordBatch:
    raw = raw_batch(
        [bodies.encoded(body)], ids=["m1"],
        headers=[{"source": "site", "received-at": "2020-02-10T08:00:07Z"}],
    )  # fmt: skip
    found = pms.DATASET.validate(raw)
    assert not found.refused, found.refused
    return found.good


def events(body: dict[str, Any], **limits: float) -> list[tuple[str, str, float]]:
    found = pms.DATASET.analyse(checked(body), pms.Limits(**limits)).to_pylist()
    return [(each["rule"], each["path"], each["value"]) for each in found]


def test_the_vector_of_the_contract() -> None:
    found = row(bodies.pms())
    assert found["pack"] == {
        "volts": 51.262, "amps": -0.625, "watts": -32.0388, "vcl": 3.654, "vch": 3.676, "dock": 1,
        "temp_top": 35.0, "temp_mid": 33.0, "temp_bottom": 34.0,
    }  # fmt: skip
    assert [each["dvcl"] for each in found["cell"]] == [
        7,
        12,
        0,
        22,
        4,
        8,
        6,
        5,
        4,
        3,
        2,
        11,
        15,
        7,
    ]
    assert [at for at, each in enumerate(found["cell"], 1) if each["open"]] == [1, 6]
    assert found["fet"] == [{"open": False, "temp": 34.1}, {"open": True, "temp": 32.2}]
    assert found["status"] == {"bus_connect": True, "temp": 48.3}
    assert (found["pms_id"], found["pack_id"], found["sender"]) == ("PMS-01-001", "0241", "site")
    assert found["time_event"] == datetime(2020, 2, 10, 8, 0, 6, 32_000, UTC)
    assert found["time_zone"] == "+07:00"
    assert found["time_processing"] == datetime(2020, 2, 10, 8, 0, 7, tzinfo=UTC)
    assert found["day"].isoformat() == "2020-02-10"


def test_columns_are_those_of_the_contract_in_types_that_spark_takes() -> None:
    assert pms.DATASET.schema.names == [
        "pms_id", "pack_id", "pack", "cell", "fet", "status", "sender", "time_event", "time_zone",
        "time_processing", "day",
    ]  # fmt: skip
    assert pms.DATASET.schema.field("cell").type.value_type.field("dvcl").type == pa.int32()
    text = str(pms.DATASET.schema)
    assert not any(word in text for word in ("large", "fixed", "dictionary", "uint", "not null"))
    assert pms.DATASET.keys == ("pms_id", "pack_id")


def test_each_event_has_its_limit() -> None:
    assert events(bodies.pms()) == [("cell.open", "pack.cell.open", 2.0)]
    shut = bodies.pms(pack__cell__open=[])
    assert events(shut) == []
    assert events(shut, imbalance_mv=21) == [("cell.imbalance", "pack.cell.volts", 22.0)]
    assert events(shut, imbalance_mv=22) == []
    assert events(shut, temp_max=40) == [("temperature.high", "status.temp", 48.3)]
    hot = bodies.pms(pack__cell__open=[], pack__fet__temp=[61.0, 90.5])
    assert events(hot) == [("temperature.high", "pack.fet.temp[1]", 90.5)]
    fast = bodies.pms(pack__cell__open=[], pack__amps=-100.5)
    assert events(fast) == [("current.high", "pack.amps", -100.5)]


def test_the_request_of_the_seed_is_all_valid() -> None:
    path = Path(__file__).parents[1] / "data" / "post-pms.json"
    posted = json.loads(path.read_text(encoding="utf-8"))
    given = [
        bodies.encoded({"pms_id": device["pms_id"], "status": device["status"], **sample})
        for device in posted["datasets"]
        for sample in device["data"]
    ]
    found = pms.DATASET.validate(raw_batch(given))
    assert not found.refused
    assert len(pms.DATASET.transform(found.good)) == len(given) > 4
