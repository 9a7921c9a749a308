"""Bodies for the tests: right ones, and ways to spoil them."""

import json
import random
from copy import deepcopy
from typing import Any

CELLS = [
    *(3.661, 3.666, 3.654, 3.676, 3.658, 3.662, 3.66),
    *(3.659, 3.658, 3.657, 3.656, 3.665, 3.669, 3.661),
]


def pms(**changes: Any) -> dict[str, Any]:
    body: dict[str, Any] = {
        "pms_id": "PMS-01-001",
        "status": {"code": "0001", "temp": 48.3},
        "time_local": "20200210T150006.032+0700",
        "pack": {
            "id": "0241",
            "dock": 1,
            "amps": -0.625,
            "temp": [35.0, 33.0, 34.0],
            "cell": {"open": [1, 6], "volts": list(CELLS)},
            "fet": {"open": [2], "temp": [34.1, 32.2]},
        },
    }
    return changed(body, changes)


def mppt(**changes: Any) -> dict[str, Any]:
    body: dict[str, Any] = {
        "mppt_id": "IT6415AD-01-012",
        "status": {"code": "0801"},
        "time_local": "20200209T150006.032+0700",
        "pv": {"volts": [48.0, 48.0], "amps": [6.0, 6.0]},
        "battery": {"volts": 55.1, "amps": 0.0},
        "load": {"volts": [48.0, 48.0], "amps": [1.2, -1.2]},
    }
    return changed(body, changes)


def inverter(**changes: Any) -> dict[str, Any]:
    body = mppt()
    del body["mppt_id"]
    body = {"inverter_id": "SPI-B2-01-001", **body}
    body["status"]["code"] = "0001"
    body["grid"] = {"volts": [48.0] * 3, "amps": [1.2] * 3, "pf": [0.92] * 3}
    return changed(body, changes)


def changed(body: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """Paths are written with two underscores: pack__cell__volts."""
    for path, value in changes.items():
        *groups, name = path.split("__")
        target = body
        for group in groups:
            target = target[group]
        target[name] = value
    return body


def encoded(body: Any) -> bytes:
    return json.dumps(body, separators=(",", ":")).encode()


def drawn_pms(draw: random.Random) -> dict[str, Any]:
    """A right PMS body with drawn values."""
    return pms(
        pms_id=f"PMS-{draw.randrange(5):02}",
        pack__id=f"{draw.randrange(9):04}",
        pack__dock=draw.randint(1, 48),
        pack__amps=round(draw.uniform(-120, 120), draw.randint(0, 4)),
        pack__cell__volts=[round(draw.uniform(2.5, 4.2), draw.randint(1, 4)) for _ in range(14)],
        pack__cell__open=draw.sample(range(1, 15), draw.choice([0, 0, 0, 1, 3])),
        time_local=f"2020021{draw.randrange(9)}T1500{draw.randrange(60):02}.{draw.randrange(999):03}"
        + draw.choice(["Z", "+0700", "-0330"]),
    )


VALUES: list[Any] = [
    *(None, True, False, "", "1.5", "x", 0, -1, 1, 1.0, 1.5, 49, 15, 1e6, 1e7, 1e300, 10**30, -0.0),
    *([], [1], [1, 1], ["1"], [None], [[1]], {}, {"a": 1}, [0.5] * 14, [1, 2, 3], "0001", "00g1"),
    *("20200210T150006", "20200230T150006Z", "20200210T150006+1500", "2020-02-10T15:00:06Z"),
    *("20200210T150006.1234567Z", "20200210T240000Z", "20200210T150006.5-1200", 'tr:ue,fal"se'),
]


def spoiled(draw: random.Random, body: dict[str, Any]) -> bytes:
    """A body changed in one or a few ways; now and then it stays right."""
    for _ in range(draw.choice([0, 1, 1, 1, 2])):
        groups = [body]
        for group in groups:
            groups.extend(each for each in group.values() if isinstance(each, dict))
        group = draw.choice(groups)
        if not group:
            continue
        name = draw.choice(list(group))
        match draw.randrange(5):
            case 0:
                group[name] = deepcopy(draw.choice(VALUES))
            case 1:
                del group[name]
            case 2:
                group[draw.choice(["x", "Pms_id", name + "s", ""])] = deepcopy(draw.choice(VALUES))
            case 3 if isinstance(group[name], list) and group[name]:
                group[name][draw.randrange(len(group[name]))] = deepcopy(draw.choice(VALUES))
            case _ if isinstance(group[name], list):
                group[name] = group[name][:-1] if draw.random() < 0.5 else [*group[name], 1]
            case _:
                group[name] = deepcopy(draw.choice(VALUES))
    if draw.random() < 0.3:
        data = json.dumps(body, ensure_ascii=draw.random() < 0.5).encode()
    else:
        data = encoded(body)
    return scratched(draw, data) if draw.random() < 0.4 else data


def scratched(draw: random.Random, data: bytes) -> bytes:
    """The same with bytes changed, doubled keys, or words no JSON number knows."""
    at = draw.randrange(len(data) + 1)
    match draw.randrange(8):
        case 0:
            return data[:at]
        case 1:
            return data[:at] + bytes([draw.randrange(256)]) + data[at + 1 :]
        case 2:
            return data[:at] + draw.choice([b",", b'"', b":", b"}", b"]", b" ", b"\n"]) + data[at:]
        case 3:
            return data.replace(b'"temp":', b'"temp":1,"temp":', 1)
        case 4:
            number = draw.choice(
                [b"NaN", b"-Infinity", b"1e999", b"01", b".5", b"1.", b"+1", b"-0"]
            )
            return data.replace(b"48.3", number, 1).replace(b"-0.625", number, 1)
        case 5:
            return data.replace(b"}", b",}", 1)
        case 6:
            return data + draw.choice([b" ", b"{}", b"x", b"\x00", b"\xff"])
        case _:
            return b"\xef\xbb\xbf" + data
