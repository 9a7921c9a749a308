"""Packs of battery cells (PMS): fourteen cells, two switches (FETs), temperatures and a current."""

from collections.abc import Iterable
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa

from penstock.pipeline.datasets import exact, status, table
from penstock.pipeline.datasets.csv_rows import PMS_CSV
from penstock.pipeline.datasets.dataset import Dataset
from penstock.pipeline.datasets.events import Finding, Rule, fired, worst
from penstock.pipeline.datasets.shape import (
    Group,
    Number,
    Numbers,
    Shape,
    Text,
    Time,
    Whole,
    Wholes,
)

CELLS: Final = 14
FETS: Final = 2
DOCKS: Final = 48
VOLTS_MAX: Final = 1_000_000.0
"""Either way, of a cell: `dvcl` is an int32, and holds the millivolts between two such cells."""

SHAPE: Final = Shape(
    Group(
        pms_id=Text(),
        status=Group(code=Text(hex_digits=status.CODE_DIGITS), temp=Number(above=0)),
        time_local=Time(),
        pack=Group(
            id=Text(),
            dock=Whole(low=1, high=DOCKS),
            amps=Number(),
            temp=Numbers(3, above=0),
            cell=Group(
                open=Wholes(low=1, high=CELLS), volts=Numbers(CELLS, above=0, size_max=VOLTS_MAX)
            ),
            fet=Group(open=Wholes(low=1, high=FETS), temp=Numbers(FETS, above=0)),
        ),
    )
)
COLUMNS: Final = (
    pa.field("pms_id", pa.string()),
    pa.field("pack_id", pa.string()),
    pa.field(
        "pack",
        pa.struct(
            [
                *(pa.field(name, pa.float64()) for name in ("volts", "amps", "watts")),
                *(pa.field(name, pa.float64()) for name in ("vcl", "vch")),
                pa.field("dock", pa.int64()),
                *(pa.field(f"temp_{name}", pa.float64()) for name in ("top", "mid", "bottom")),
            ]
        ),
    ),
    pa.field(
        "cell",
        pa.list_(pa.struct([("volts", pa.float64()), ("dvcl", pa.int32()), ("open", pa.bool_())])),
    ),
    pa.field("fet", pa.list_(pa.struct([("open", pa.bool_()), ("temp", pa.float64())]))),
    pa.field("status", pa.struct([("bus_connect", pa.bool_()), ("temp", pa.float64())])),
)


class Limits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is worth an event; `[pipeline.pms.analyse]` in a pipeline file."""

    imbalance_mv: float = 50.0
    """Millivolts between the lowest and the highest cell."""
    temp_max: float = 60.0
    """Degrees of the pack, its switches and the system."""
    amps_max: float = 100.0
    """Amperes in either direction."""


OPEN_CELL: Final = Rule(2, "cell.open", "warning")
IMBALANCE: Final = Rule(3, "cell.imbalance", "warning")
TEMPERATURE: Final = Rule(4, "temperature.high", "critical")
CURRENT: Final = Rule(5, "current.high", "critical")


def rows(good: pa.RecordBatch) -> dict[str, pa.Array]:
    """The own columns of the table."""
    count = len(good)
    cells = exact.Decimals(table.matrix(good.column("pack.cell.volts"), CELLS))
    low, high = cells.ends
    temps = table.matrix(good.column("pack.temp"), 3)
    fet_temps = table.matrix(good.column("pack.fet.temp"), FETS)
    amps = good.column("pack.amps")
    is_open = table.is_in(good.column("pack.cell.open"), CELLS).reshape(-1)
    is_fet_open = table.is_in(good.column("pack.fet.open"), FETS).reshape(-1)
    return {
        "pms_id": good.column("pms_id"),
        "pack_id": good.column("pack.id"),
        "pack": table.struct(
            {
                "volts": pa.array(exact.total(cells)),
                "amps": amps,
                "watts": pa.array(exact.total_times(cells, amps.to_numpy())),
                "vcl": pa.array(low),
                "vch": pa.array(high),
                "dock": good.column("pack.dock"),
                "temp_top": pa.array(np.ascontiguousarray(temps[:, 0])),
                "temp_mid": pa.array(np.ascontiguousarray(temps[:, 1])),
                "temp_bottom": pa.array(np.ascontiguousarray(temps[:, 2])),
            }
        ),
        "cell": table.lists(
            table.even(count, CELLS),
            table.struct(
                {
                    "volts": pa.array(cells.values.reshape(-1)),
                    "dvcl": pa.array(exact.over_least(cells).reshape(-1)),
                    "open": pa.array(is_open),
                }
            ),
        ),
        "fet": table.lists(
            table.even(count, FETS),
            table.struct({"open": pa.array(is_fet_open), "temp": pa.array(fet_temps.reshape(-1))}),
        ),
        "status": table.struct(
            {
                "bus_connect": status.flag(status.bits_of(good.column("status.code")), 0),
                "temp": good.column("status.temp"),
            }
        ),
    }


def find(good: pa.RecordBatch, limits: Limits) -> Iterable[Finding]:
    """Open cells, imbalance, temperature, current."""
    is_open = table.is_in(good.column("pack.cell.open"), CELLS)
    opened = is_open.sum(axis=1)
    yield fired(OPEN_CELL, opened > 0, "pack.cell.open", opened, 0.0)
    cells = table.matrix(good.column("pack.cell.volts"), CELLS)
    low, high = exact.ends(cells)
    spread = (high - low) * 1000
    is_uneven = exact.nearest(spread) > limits.imbalance_mv
    yield fired(IMBALANCE, is_uneven, "pack.cell.volts", exact.nearest(spread), limits.imbalance_mv)
    temps = table.matrix(good.column("pack.temp"), 3)
    fets = table.matrix(good.column("pack.fet.temp"), FETS)
    columns = {"status.temp": good.column("status.temp").to_numpy()}
    columns |= {f"pack.temp[{at}]": temps[:, at] for at in range(3)}
    columns |= {f"pack.fet.temp[{at}]": fets[:, at] for at in range(FETS)}
    yield worst(TEMPERATURE, columns, limits.temp_max)
    amps = good.column("pack.amps").to_numpy()
    yield fired(CURRENT, np.abs(amps) > limits.amps_max, "pack.amps", amps, limits.amps_max)


DATASET: Final = Dataset(
    name="pms",
    shape=SHAPE,
    columns=COLUMNS,
    device="pms_id",
    pack="pack.id",
    pack_column="pack_id",
    rows=rows,
    limits=Limits,
    find=find,
    csv=PMS_CSV,
)
