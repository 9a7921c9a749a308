"""Text from the command line into values: counts, seconds, headers, starts, folders."""

import argparse
import math
import re
from datetime import datetime
from pathlib import Path
from typing import Any, Final

_SECONDS: Final = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_COUNTS: Final = {"": 1, "k": 1_000, "m": 1_000_000, "g": 1_000_000_000}


def positive(text: str) -> int:
    """A whole number from 1 on: 500, 10_000, 10k, 2M."""
    found = re.fullmatch(r"(\d[\d_,]*)([kKmMgG]?)", text)
    value = int(re.sub(r"[_,]", "", found[1])) * _COUNTS[found[2].lower()] if found else 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 on")
    return value


def seconds(text: str) -> float:
    """A length of time: 5, 0.5, 200ms, 2m, 1h, 7d."""
    found = re.fullmatch(r"(\d+(?:\.\d*)?|\.\d+)(us|ms|s|m|h|d)?", text)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a length of time such as 5, 200ms or 1h")
    return float(found[1]) * _SECONDS[found[2] or "s"]


def seconds_or_never(text: str) -> float | None:
    """A length of time, or `forever` for no end."""
    return None if text in {"forever", "none"} else seconds(text)


def attempts(text: str) -> int | None:
    """A whole number from 1 on, or `unlimited`."""
    return None if text in {"unlimited", "none"} else positive(text)


def rate(text: str) -> float:
    """Messages a second, above 0."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of messages a second")
    return value


def header(text: str) -> tuple[str, str]:
    """name=value; the value may contain more '=' and may be empty."""
    name, mark, value = text.partition("=")
    if not mark or not name:
        raise argparse.ArgumentTypeError(f"{text!r} is not a header of the form name=value")
    return name, value


def start(text: str) -> Any:
    """Where a subscription starts: earliest, latest, 0:17, a date and time, or a Unix time."""
    if text in {"earliest", "latest"} or re.fullmatch(r"\d+:\d+", text):
        return text
    try:
        return float(text)
    except ValueError:
        pass
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not earliest, latest, a position such as 0:17, or a time such as "
            "2025-01-31T12:00"
        ) from None


def folder(text: str) -> Path:
    """A folder, as a path or as its file: URL."""
    path = text.removeprefix("file:")
    if not path:
        raise argparse.ArgumentTypeError("name a folder")
    return Path(path)
