import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from penstock.pipeline.datasets import inverter, mppt, pms
from penstock.pipeline.datasets.dataset import Dataset
from penstock.pipeline.datasets.events import Finding, Rule
from penstock.pipeline.datasets.raw import raw_batch
from penstock.pipeline.datasets.shape import Group, Number, Shape, Text, Time
from penstock.pipeline.datasets.trying import wrong_with
from penstock.pipeline.refusals import DatasetFailed

BODY = b'{"buoy_id":"b1","time_local":"20240501T120000Z","temp":1.5}'


def rows(good: pa.RecordBatch) -> dict[str, pa.Array]:
    return {"buoy_id": good.column("buoy_id"), "temp": good.column("temp")}


def shape(**fields: Any) -> Shape:
    known: dict[str, Any] = {"buoy_id": Text(), "time_local": Time(), "temp": Number()}
    return Shape(Group(**known | fields))


def finding(number: int) -> Callable[[pa.RecordBatch, Any], Iterable[Finding]]:
    rule = Rule(number, "warm", "warning")
    return lambda _good, _limits: [Finding(rule, np.zeros(0, np.int64), [], [])]


DEVICE = pa.field("buoy_id", pa.string())
BUOY = Dataset(
    name="buoy", shape=shape(), columns=(DEVICE, pa.field("temp", pa.float64())),
    device="buoy_id", rows=rows, find=finding(2),
)  # fmt: skip


@pytest.mark.parametrize("dataset", [BUOY, pms.DATASET, mppt.DATASET, inverter.DATASET])
def test_a_dataset_that_can_be_used_has_nothing_wrong(dataset: Dataset) -> None:
    assert wrong_with(dataset) is None


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"shape": Shape(Group(buoy_id=Text(), temp=Number()))}, "one Time, its key `time_local`"),
        ({"shape": shape(again=Time())}, "one Time"),
        ({"shape": shape(speed=float)}, "speed of the shape is <class 'float'>, which is no field"),
        ({"device": "buoy"}, "`device` is 'buoy', which is no Text"),
        ({"pack": "temp", "pack_column": "temp"}, "`pack` is 'temp', which is no Text"),
        ({"pack": "buoy_id"}, "come together"),
        ({"pack": "buoy_id", "pack_column": "temp"}, "`pack_column` is 'temp', which is no string"),
        ({"columns": ()}, "the first of its columns is the device"),
        ({"columns": BUOY.columns[::-1]}, "the first of its columns is the device"),
        ({"columns": (*BUOY.columns, pa.field("day", pa.string()))}, "'day' is there already"),
        ({"columns": (DEVICE, DEVICE)}, "'buoy_id' is there already"),
        ({"columns": (DEVICE, pa.field("n", pa.list_(pa.uint8())))}, "'n' holds uint8"),
        ({"columns": (DEVICE, pa.field("n", pa.large_string()))}, "'n' holds large_string"),
        ({"columns": (DEVICE, pa.field("n", pa.time64("us")))}, "'n' holds time64"),
        ({"columns": (DEVICE, pa.field("n", pa.timestamp("ns")))}, "'n' holds timestamp"),
        (
            {"columns": (DEVICE, pa.field("n", pa.map_(pa.string(), pa.int64())))},
            "'n' holds map<string, int64>, which a table here cannot hold",
        ),
        (
            {"shape": shape(unit=Group(id=Text())), "device": "unit.id"},
            "`device` is 'unit.id': devices post it as a key of its own",
        ),
        ({"columns": (DEVICE, pa.field("temp", pa.int64()))}, "`rows` .*column temp is double"),
        ({"columns": (*BUOY.columns, pa.field("n", pa.int64()))}, "`rows` .* no column n"),
        ({"rows": lambda _: 1 / 0}, "`rows` of dataset 'buoy' failed with ZeroDivision"),
        ({"find": lambda _, __: 1 / 0}, "`find` of dataset 'buoy' failed with ZeroDivision"),
        ({"find": finding(1)}, "rule 'warm' has the number 1: they are 2 to 1023"),
        ({"find": finding(1024)}, "the number 1024"),
    ],
)
def test_a_mistake_is_said_before_anything_moves(changed: dict[str, Any], said: str) -> None:
    assert re.search(said, wrong_with(replace(BUOY, **changed)) or "")


def test_a_function_that_fails_later_is_named_with_its_dataset() -> None:
    def some(good: pa.RecordBatch) -> dict[str, pa.Array]:
        return {} if len(good) else rows(good)

    failing = replace(BUOY, rows=some)
    assert wrong_with(failing) is None
    with pytest.raises(DatasetFailed, match=r"`rows` of dataset 'buoy' failed .*no column buoy_id"):
        failing.transform(failing.validate(raw_batch([BODY])).good)
