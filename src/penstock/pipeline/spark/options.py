"""The options of `format("penstock")`, checked before anything is opened."""

import json
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any, Final, NamedTuple

from penstock.vocabulary import names
from penstock.vocabulary.errors import InvalidArgument, Unsupported

ROWS_DEFAULT: Final = 200_000
KNOWN: Final = (
    "url", "topic", "subscription", "owner", "startingOffsets", "maxRowsPerBatch",
    "maxBytesPerBatch", "minTasks", "emit", "dataset", "columns", "progress",
    "mode", "columnNameOfCorruptRecord",
)  # fmt: skip
SPARKS_OWN: Final = frozenset({"path"})
BODIES: Final = "bodies"
RANGES: Final = "ranges"
TYPED: Final = "typed"
MODES: Final = ("PERMISSIVE", "DROPMALFORMED", "FAILFAST")
"""What becomes of a body that does not fit the schema given: as Spark's own JSON reader has it."""
CORRUPT: Final = "_corrupt_record"
BY_SPARK: Final = "spark"
BY_CALLER: Final = "caller"


class Options(NamedTuple):
    """What a query asks for."""

    url: str
    topic: str
    subscription: str | None
    owner: str | None
    start: Any
    """'earliest', 'latest', Unix seconds, or offsets by partition."""
    rows_max: int
    bytes_max: int | None
    tasks_min: int
    """Ranges are cut so that there are about so many tasks; 1 = one for each partition."""
    emit: str
    dataset: str | None
    columns: tuple[str, ...] | None
    reports: bool
    """Whether Spark's commits move the reader's progress; else the caller does it."""
    mode: str | None = None
    """One of MODES; None = not given."""
    corrupt: str = CORRUPT
    """The column for a body that does not fit, where the schema has it."""
    takes_schema: bool = False
    """Whether the caller may give a schema, for the columns to read from JSON bodies."""
    says_start: bool = False
    """Whether `startingOffsets` was given."""


def parse(given: Mapping[str, str]) -> Options:
    """The options of a query. Raises InvalidArgument, which names the option."""
    known = {name.lower(): name for name in KNOWN}
    found: dict[str, str] = {}
    for key, value in given.items():
        if key.lower() in known:
            found[known[key.lower()]] = value
        elif key.lower() not in SPARKS_OWN:
            close = get_close_matches(key.lower(), known, n=1)
            hint = f"did you mean {known[close[0]]!r}?" if close else f"known: {', '.join(KNOWN)}"
            raise InvalidArgument(f"format penstock has no option {key!r}; {hint}")
    for key in ("url", "topic"):
        if not found.get(key):
            raise InvalidArgument(f"format penstock needs the option {key!r}")
    if found["url"].startswith("kafka:"):
        raise Unsupported(
            "format penstock does not read kafka: topics, since Spark does: use format('kafka'), "
            "or `penstock pipeline run`, which does so too"
        )
    names.check_topic(found["topic"], reserved=True)
    if "subscription" in found:
        names.check_subscription(found["subscription"])
    emit = _one_of(found, "emit", (BODIES, RANGES, TYPED), TYPED if "dataset" in found else BODIES)
    if "dataset" in found:
        from penstock.pipeline.datasets import finding  # noqa: PLC0415 - slow, and often not needed

        finding.find(found["dataset"])
        if emit != TYPED:
            raise InvalidArgument(f"option dataset goes with emit=typed, not with emit={emit}")
    columns = (
        tuple(part.strip() for part in found["columns"].split(",")) if "columns" in found else None
    )
    return Options(
        found["url"], found["topic"], found.get("subscription"), found.get("owner"),
        starting(found.get("startingOffsets", "earliest")),
        _number(found, "maxRowsPerBatch", ROWS_DEFAULT) or ROWS_DEFAULT,
        _number(found, "maxBytesPerBatch", None), _number(found, "minTasks", 1) or 1,
        emit, found.get("dataset"), columns,
        _one_of(found, "progress", (BY_SPARK, BY_CALLER), BY_SPARK) == BY_SPARK,
        None if "mode" not in found else _one_of(_upper(found, "mode"), "mode", MODES, MODES[0]),
        found.get("columnNameOfCorruptRecord", CORRUPT),
        "dataset" not in found and found.get("emit", TYPED) == TYPED,
        "startingOffsets" in found,
    )  # fmt: skip


def starting(text: str) -> Any:
    """Where a new query starts. Raises InvalidArgument."""
    if text in {"earliest", "latest"}:
        return text
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if isinstance(found, int | float) and not isinstance(found, bool):
        return found
    if isinstance(found, dict):
        pairs = {key: value for key, value in found.items() if key.isdigit() and _is_offset(value)}
        if len(pairs) == len(found):
            return {int(key): value for key, value in pairs.items()}
    raise InvalidArgument(
        f"option startingOffsets: {text!r} must be 'earliest', 'latest', Unix seconds or offsets "
        'by partition, as {"0": 17}'
    )


def _is_offset(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _upper(found: Mapping[str, str], key: str) -> dict[str, str]:
    return {**found, key: found[key].upper()}


def _number(found: Mapping[str, str], key: str, default: int | None) -> int | None:
    text = found.get(key)
    if text is None:
        return default
    if not text.isdigit() or int(text) < 1:
        raise InvalidArgument(f"option {key} must be a whole number from 1 on, not {text!r}")
    return int(text)


def _one_of(found: Mapping[str, str], key: str, allowed: tuple[str, ...], default: str) -> str:
    value = found.get(key, default)
    if value not in allowed:
        raise InvalidArgument(f"option {key} must be one of {', '.join(allowed)}, not {value!r}")
    return value
