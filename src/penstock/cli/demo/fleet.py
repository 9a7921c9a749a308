"""The simulated fleet: what devices of the three types would post on one summer day.

The same number gives the same readings, so that what was posted can be told again afterwards.
Now and then a device sends nonsense, as devices do: that is to be kept too, with its reason.
"""

import json
import math
import random
from collections import Counter
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

DAY: Final = "20240621"
ZONE: Final = "+0700"
ROUNDS: Final = 288
"""Every device sends one reading in five minutes."""
MINUTES: Final = 5
PMS, PACKS, MPPTS, INVERTERS = 6, 2, 8, 4
WRONG: Final = 0.01
"""The share of readings that no battery could have made."""
CELLS: Final = 14

Key = tuple[str, str, str]
"""Device, pack (empty where there is none) and local time: whose reading it is."""


class Post(NamedTuple):
    """One request of a device, and the readings in it."""

    dataset: str
    body: bytes
    keys: Counter[Key]
    wrong: Counter[Key]
    """Those of `keys` that are no right readings."""
    content_type: str = "application/json"

    @property
    def readings(self) -> int:
        """Readings in the request."""
        return self.keys.total()


def posts(rounds: int = ROUNDS, seed: int = 7) -> Iterator[Post]:
    """The requests of the whole fleet, in the order of the day."""
    for number in range(rounds):
        draw = random.Random(f"{seed}/{number}")  # noqa: S311 - a simulation
        minute = number * MINUTES % (24 * 60)
        second = number * MINUTES // (24 * 60)  # a longer day goes on between the minutes
        time = f"{DAY}T{minute // 60:02}{minute % 60:02}{second:02}{ZONE}"
        sun = max(0.0, math.sin(math.pi * (minute / 60 - 6) / 12))
        yield _post("pms", "pms_id", [_pms(draw, at, time, sun) for at in range(PMS)])
        yield _post("mppt", "mppt_id", [_mppt(draw, at, time, sun) for at in range(MPPTS)])
        yield _post(
            "inverter", "inverter_id", [_inverter(draw, at, time, sun) for at in range(INVERTERS)]
        )


def _post(dataset: str, name: str, devices: list[tuple[dict[str, Any], list[bool]]]) -> Post:
    keys: Counter[Key] = Counter()
    wrong: Counter[Key] = Counter()
    for device, is_wrong in devices:
        for sample, is_bad in zip(device["data"], is_wrong, strict=True):
            key = (device[name], sample.get("pack", {}).get("id", ""), sample["time_local"])
            keys[key] += 1
            if is_bad:
                wrong[key] += 1
    body = json.dumps({"datasets": [device for device, _ in devices]}, separators=(",", ":"))
    return Post(dataset, body.encode(), keys, wrong)


def _pms(
    draw: random.Random, device: int, time: str, sun: float
) -> tuple[dict[str, Any], list[bool]]:
    samples, is_wrong = [], []
    for pack in range(PACKS):
        is_bad = draw.random() < WRONG
        level = 3.45 + 0.4 * sun + draw.uniform(-0.01, 0.01)
        volts = [round(level + draw.uniform(-0.008, 0.008), 3) for _ in range(CELLS)]
        if is_bad:
            volts[draw.randrange(CELLS)] = 0
        samples.append(
            {
                "time_local": time,
                "pack": {
                    "id": f"{device * PACKS + pack:04}",
                    "dock": pack + 1,
                    "amps": round(40 * sun - 12 + draw.uniform(-1, 1), 3),
                    "temp": [round(28 + 9 * sun + draw.uniform(-1, 1), 1) for _ in range(3)],
                    "cell": {"open": [], "volts": volts},
                    "fet": {"open": [], "temp": [round(30 + 9 * sun, 1), round(29 + 9 * sun, 1)]},
                },
            }
        )
        is_wrong.append(is_bad)
    status = {"code": "0001", "temp": round(30 + 12 * sun, 1)}
    return {"pms_id": f"PMS-{device:02}", "status": status, "data": samples}, is_wrong


def _mppt(
    draw: random.Random, device: int, time: str, sun: float
) -> tuple[dict[str, Any], list[bool]]:
    sample, is_bad = _panels(draw, time, sun)
    code = "2801" if sun else "0201"
    one = {"mppt_id": f"MPPT-{device:02}", "status": {"code": code}, "data": [sample]}
    return one, [is_bad]


def _inverter(
    draw: random.Random, device: int, time: str, sun: float
) -> tuple[dict[str, Any], list[bool]]:
    sample, is_bad = _panels(draw, time, sun)
    sample["grid"] = {
        "volts": [round(230 + draw.uniform(-3, 3), 1) for _ in range(3)],
        "amps": [round(6 * sun + draw.uniform(0, 0.3), 2) for _ in range(3)],
        "pf": [0.97] * 3,
    }
    one = {"inverter_id": f"SPI-{device:02}", "status": {"code": "0001"}, "data": [sample]}
    return one, [is_bad]


def _panels(draw: random.Random, time: str, sun: float) -> tuple[dict[str, Any], bool]:
    clouds = draw.uniform(0.85, 1.0)
    sample = {
        "time_local": time,
        "pv": {
            "volts": [round(48 * min(1.0, 3 * sun), 2)] * 2,
            "amps": [round(9 * sun * clouds, 2), round(8.7 * sun * clouds, 2)],
        },
        "battery": {"volts": round(50 + 4 * sun, 2), "amps": round(30 * sun - 8, 2)},
        "load": {"volts": [48.0], "amps": [round(draw.uniform(2, 4), 2)]},
    }
    is_bad = draw.random() < WRONG
    if is_bad:
        sample["battery"] = {"volts": "high", "amps": 0}
    return sample, is_bad
