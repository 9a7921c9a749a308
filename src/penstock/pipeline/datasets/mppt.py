"""Solar charge controllers (MPPT): panels, a battery, loads, and a status of eleven parts."""

from collections.abc import Iterable
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.pipeline.datasets import exact, status, table
from penstock.pipeline.datasets.dataset import Dataset
from penstock.pipeline.datasets.events import Finding, Rule, fired
from penstock.pipeline.datasets.shape import Group, Number, Numbers, Shape, Text, Time

Bits = np.ndarray[Any, np.dtype[Any]]

POWER: Final = pa.struct([(name, pa.float64()) for name in ("volts", "amps", "watts")])
SWITCH: Final = ("ok", "short")
CURRENT_NAMES: Final = ("ok", "overcurrent")
INPUT: Final = ("normal", "no-power", "high-volt-input", "input-volt-error")
LOAD: Final = ("ok", "overcurrent", "short", "not-applicable")
CHARGING: Final = ("not-charging", "float", "boost", "equalisation")
SYSTEM: Final = ("ok", "fault")
STANDBY: Final = ("standby", "running")
PARTS: Final = (
    ("input", 1, INPUT),
    ("chgfet", 3, SWITCH),
    ("chgfet_antirev", 4, SWITCH),
    ("fet_antirev", 5, SWITCH),
    ("input_current", 6, CURRENT_NAMES),
    ("load", 7, LOAD),
    ("pv_input", 9, SWITCH),
    ("charging", 10, CHARGING),
    ("system", 12, SYSTEM),
    ("standby", 13, STANDBY),
)
"""Each part of the status: its name, its lowest bit, and the names of its values."""
FAULTS: Final = {
    "input": ("high-volt-input", "input-volt-error"),
    "chgfet": ("short",),
    "chgfet_antirev": ("short",),
    "fet_antirev": ("short",),
    "input_current": ("overcurrent",),
    "load": ("overcurrent", "short"),
    "pv_input": ("short",),
    "system": ("fault",),
}

LISTS: Final = {
    "pv": Group(volts=Numbers(1, 4, low=0), amps=Numbers(1, 4, low=0)),
    "battery": Group(volts=Number(above=0), amps=Number()),
    "load": Group(volts=Numbers(1, 2, low=0), amps=Numbers(1, 2)),
}
"""What a charge controller and an inverter both send."""
EQUAL: Final = (("pv.volts", "pv.amps"), ("load.volts", "load.amps"))
SHAPE: Final = Shape(
    Group(
        mppt_id=Text(),
        status=Group(code=Text(hex_digits=status.CODE_DIGITS)),
        time_local=Time(),
        **LISTS,
    ),
    EQUAL,
)
POWER_COLUMNS: Final = (
    pa.field("pv", pa.list_(POWER)),
    pa.field("battery", POWER),
    pa.field("load", pa.list_(POWER)),
)
STATUS: Final = pa.struct(
    [("bus_connect", pa.bool_()), *((name, pa.string()) for name, _, _ in PARTS)]
)


class Limits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is worth an event; `[pipeline.mppt.analyse]` in a pipeline file."""

    battery_amps_max: float = 200.0
    """Amperes into or out of the battery."""
    pv_amps_max: float = 50.0
    """Amperes of one panel."""
    load_amps_max: float = 50.0
    """Amperes of one load, in either direction."""


BATTERY: Final = Rule(2, "battery.current.high", "critical")
PANEL: Final = Rule(3, "pv.current.high", "critical")
LOADS: Final = Rule(4, "load.current.high", "critical")
FAULT_NUMBER: Final = 16
"""The rule of the first part of the status that may be at fault; the others follow."""


def power_rows(good: pa.RecordBatch) -> dict[str, pa.Array]:
    """Panels, battery and loads."""
    volts, amps = good.column("battery.volts"), good.column("battery.amps")
    watts = exact.product(volts.to_numpy(), amps.to_numpy())
    return {
        "pv": _powers(good, "pv"),
        "battery": table.struct({"volts": volts, "amps": amps, "watts": pa.array(watts)}),
        "load": _powers(good, "load"),
    }


def _powers(good: pa.RecordBatch, name: str) -> pa.Array:
    lists = good.column(f"{name}.volts")
    volts, amps = lists.flatten(), good.column(f"{name}.amps").flatten()
    watts = exact.product(volts.to_numpy(), amps.to_numpy())
    return table.lists(
        offsets(lists), table.struct({"volts": volts, "amps": amps, "watts": pa.array(watts)})
    )


def offsets(lists: pa.Array) -> Bits:
    """Where each list begins among the values of all, and where the last one ends."""
    return np.concatenate([[0], np.cumsum(np.asarray(pc.list_value_length(lists)))])


def rows(good: pa.RecordBatch) -> dict[str, pa.Array]:
    """The own columns of the table."""
    bits = status.bits_of(good.column("status.code"))
    parts = {"bus_connect": status.flag(bits, 0)}
    parts |= {name: status.choice(bits, at, names) for name, at, names in PARTS}
    return {
        "mppt_id": good.column("mppt_id"),
        **power_rows(good),
        "status": table.struct(parts),
    }


def find(good: pa.RecordBatch, limits: Limits) -> Iterable[Finding]:
    """Status faults and currents."""
    bits = status.bits_of(good.column("status.code"))
    for number, (name, wrong) in enumerate(FAULTS.items(), FAULT_NUMBER):
        at, names = next((at, names) for part, at, names in PARTS if part == name)
        found = np.asarray(status.choice(bits, at, names).to_pylist())
        rule = Rule(number, f"status.{name}", "critical")
        yield fired(rule, np.isin(found, wrong), f"status.{name}", bits, None)
    yield from find_currents(good, limits)


def find_currents(good: pa.RecordBatch, limits: Any) -> Iterable[Finding]:
    """Currents of battery, panels and loads."""
    amps = good.column("battery.amps").to_numpy()
    is_high = np.abs(amps) > limits.battery_amps_max
    yield fired(BATTERY, is_high, "battery.amps", amps, limits.battery_amps_max)
    yield largest(PANEL, good.column("pv.amps"), "pv.amps", limits.pv_amps_max)
    yield largest(LOADS, good.column("load.amps"), "load.amps", limits.load_amps_max)


def largest(rule: Rule, lists: pa.Array, path: str, limit: float) -> Finding:
    """A finding about the value farthest from zero in each list, where it is above the limit."""
    ends, values = offsets(lists), lists.flatten().to_numpy()
    starts, sizes = ends[:-1], np.abs(values)
    most = np.maximum.reduceat(sizes, starts) if len(starts) else sizes
    lengths = np.diff(ends)
    places = np.flatnonzero(sizes == np.repeat(most, lengths))
    rows = np.repeat(np.arange(len(starts)), lengths)[places]
    _, first = np.unique(rows, return_index=True)  # of equal ones
    places = places[first]
    hits = np.flatnonzero(most > limit)
    paths = [f"{path}[{at}]" for at in (places - starts)[hits].tolist()]
    return Finding(rule, hits, paths, values[places][hits].tolist(), limit)


DATASET: Final = Dataset(
    name="mppt",
    shape=SHAPE,
    columns=(pa.field("mppt_id", pa.string()), *POWER_COLUMNS, pa.field("status", STATUS)),
    device="mppt_id",
    rows=rows,
    limits=Limits,
    find=find,
)
