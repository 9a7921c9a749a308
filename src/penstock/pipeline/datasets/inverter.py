"""Inverters: what a charge controller sends, and a grid of one to three phases."""

from collections.abc import Iterable
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.pipeline.datasets import exact, mppt, status, table
from penstock.pipeline.datasets.dataset import Dataset
from penstock.pipeline.datasets.events import Finding, Rule
from penstock.pipeline.datasets.shape import Group, Numbers, Shape, Text, Time

PHASES: Final = 3
ROOT: Final = float(np.sqrt(3.0))
SHAPE: Final = Shape(
    Group(
        inverter_id=Text(),
        status=Group(code=Text(hex_digits=status.CODE_DIGITS)),
        time_local=Time(),
        **mppt.LISTS,
        grid=Group(
            volts=Numbers(1, PHASES, above=0),
            amps=Numbers(1, PHASES),
            pf=Numbers(1, PHASES, low=-1, high=1),
        ),
    ),
    (*mppt.EQUAL, ("grid.volts", "grid.amps", "grid.pf")),
)
GRID: Final = pa.struct([(name, pa.float64()) for name in ("volts", "amps", "pf", "watts")])


class Limits(mppt.Limits, frozen=True, forbid_unknown_fields=True):
    """What is worth an event; `[pipeline.inverter.analyse]` in a pipeline file."""

    grid_amps_max: float = 200.0
    """Amperes of one phase, in either direction."""


GRID_CURRENT: Final = Rule(5, "grid.current.high", "critical")


def rows(good: pa.RecordBatch) -> dict[str, pa.Array]:
    """The own columns of the table."""
    bits = status.bits_of(good.column("status.code"))
    return {
        "inverter_id": good.column("inverter_id"),
        **mppt.power_rows(good),
        "grid": _grid(good),
        "status": table.struct({"bus_connect": status.flag(bits, 0)}),
    }


def _grid(good: pa.RecordBatch) -> pa.Array:
    lists = good.column("grid.volts")
    volts, amps, factors = (
        good.column(f"grid.{name}").flatten() for name in ("volts", "amps", "pf")
    )
    watts = volts.to_numpy() * amps.to_numpy() * factors.to_numpy()
    phases = np.asarray(pc.list_value_length(lists))
    watts = np.where(np.repeat(phases == PHASES, phases), watts * ROOT, watts)
    return table.lists(
        mppt.offsets(lists),
        table.struct(
            {"volts": volts, "amps": amps, "pf": factors, "watts": pa.array(exact.nearest(watts))}
        ),
    )


def find(good: pa.RecordBatch, limits: Limits) -> Iterable[Finding]:
    """Currents of battery, panels, loads and grid."""
    yield from mppt.find_currents(good, limits)
    yield mppt.largest(GRID_CURRENT, good.column("grid.amps"), "grid.amps", limits.grid_amps_max)


DATASET: Final = Dataset(
    name="inverter",
    shape=SHAPE,
    columns=(
        pa.field("inverter_id", pa.string()),
        *mppt.POWER_COLUMNS,
        pa.field("grid", pa.list_(GRID)),
        pa.field("status", pa.struct([("bus_connect", pa.bool_())])),
    ),
    device="inverter_id",
    rows=rows,
    limits=Limits,
    find=find,
)
