"""The pipeline file: read strictly, every error with its file, table and key.

[pipeline.pms]
source = "file:./data/monitoring.pms"
dataset = "pms"
lane = "process"
repository = "delta:./warehouse"
trigger = "available-now"
checkpoint = "./checkpoints/pms"
"""

import re
import tomllib
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, get_args, get_type_hints

import msgspec

from penstock.client.urls import check_url, has_readers
from penstock.pipeline.datasets import finding
from penstock.pipeline.datasets.dataset import Dataset
from penstock.pipeline.refusals import BadPipelineFile
from penstock.pipeline.repositories.choose import check_repository, check_table, table_folder
from penstock.pipeline.spark import kafka_url
from penstock.vocabulary import names
from penstock.vocabulary.credentials import HIDDEN, without_credentials
from penstock.vocabulary.errors import PenstockError

ROWS_DEFAULT: Final = 200_000
ROWS_IN_PROCESS: Final = 50_000
"""The same for a lane in this process: what fits into caches is a third faster."""
BYTES_DEFAULT: Final = 256 * 1024 * 1024
ASAP: Final = "asap"
AVAILABLE_NOW: Final = "available-now"
_SECONDS: Final = re.compile(r"(\d+(?:\.\d+)?) ?(?:s|seconds?)")
_MINUTES: Final = re.compile(r"(\d+(?:\.\d+)?) ?(?:m|minutes?)")


_MASTER: Final = re.compile(r"local(-cluster)?(\[[^\]]+\])?|yarn|spark://.+|k8s://.+")
MAY_BE_LEFT_OUT: Final = ("subscription", "table", "checkpoint", "quarantine", "events", "publish")
LEAST: Final = {
    "max_rows_per_batch": 1, "max_bytes_per_batch": 1, "compact_files": 0, "compact_target_mb": 1,
    "compact_after_s": 0,
}  # fmt: skip
"""The least that numbers may be."""


class Table(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[pipeline.NAME]` as it is written."""

    source: str
    dataset: str
    subscription: str | None = None
    repository: str | list[str] = "delta:./warehouse"
    table: str | None = None
    trigger: str = AVAILABLE_NOW
    checkpoint: str | None = None
    lane: Literal["spark", "process"] = "spark"
    writer: Literal["penstock", "spark"] = "penstock"
    quarantine: str | None = None
    events: str | None = None
    publish: str | None = None
    max_rows_per_batch: int = ROWS_DEFAULT
    max_bytes_per_batch: int = BYTES_DEFAULT
    compact_files: int = 50
    """Small files of one day after which they are merged; 0 = never."""
    compact_target_mb: int = 128
    compact_after_s: float = 3600.0
    """Small files of one day are merged, however few, when one is as old as this; 0 = never."""
    analyse: dict[str, Any] = {}


class Pipeline(NamedTuple):
    """One pipeline, checked, with every default filled in."""

    name: str
    url: str
    topic: str
    dataset: Dataset
    subscription: str
    repositories: tuple[str, ...]
    table: str
    trigger: str | float
    """'asap', 'available-now' or seconds between batches."""
    checkpoint: str
    quarantine: str
    events: str
    publish: str | None
    limits: Any
    settings: Table

    @property
    def source(self) -> str:
        """As the file has it, without credentials: it is written down and shown."""
        return without_credentials(self.settings.source).replace(f"{HIDDEN}@", "", 1)

    def folders(self) -> list[str]:
        """Where the tables lie."""
        return [table_folder(each, self.table) for each in self.repositories]


class PipelineFile(NamedTuple):
    """All pipelines of a file, and what it says about Spark."""

    pipelines: dict[str, Pipeline]
    spark: dict[str, Any]


def read_file(path: str) -> PipelineFile:
    """Reads and checks a pipeline file. Raises BadPipelineFile."""
    try:
        tree = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise BadPipelineFile(f"{path} cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadPipelineFile(f"{path} is not TOML: {error}") from error
    for name in tree:
        if name not in {"pipeline", "spark"}:
            raise BadPipelineFile(
                f"{path}: unknown table [{name}]; known: [pipeline.NAME], [spark]"
            )
    tables = tree.get("pipeline")
    if not isinstance(tables, dict) or not tables:
        raise BadPipelineFile(f"{path} has no table [pipeline.NAME]")
    spark = tree.get("spark", {})
    if not isinstance(spark, dict):
        raise BadPipelineFile(f"{path}: spark must be a table")
    _check_spark(path, spark)
    for name, table in tables.items():
        if not isinstance(table, dict):
            raise BadPipelineFile(
                f"{path}, [pipeline]: key {name!r} stands in no pipeline; a pipeline has a name, "
                "as [pipeline.pms]"
            )
    found = {name: _pipeline(path, name, table) for name, table in tables.items()}
    _check_apart(path, list(found.values()))
    return PipelineFile(found, spark)


def _pipeline(path: str, name: str, table: Any) -> Pipeline:
    where = f"{path}, [pipeline.{name}]"
    try:
        names.check_subscription(name)
        given = msgspec.convert(table, Table)
    except msgspec.ValidationError as error:
        raise BadPipelineFile(f"{where}: {_said(error)}") from error
    except PenstockError as error:
        raise BadPipelineFile(f"{where}: {error.text}") from error
    if given.lane == "process" and "max_rows_per_batch" not in table:
        given = msgspec.structs.replace(given, max_rows_per_batch=ROWS_IN_PROCESS)
    _check_values(where, given)
    url, topic = _source(where, given.source, given.lane)
    dataset = _asked(where, "dataset", finding.find, given.dataset)
    repositories = (
        (given.repository,) if isinstance(given.repository, str) else tuple(given.repository)
    )
    if not repositories:
        raise BadPipelineFile(f"{where}, key repository: the list is empty")
    target = given.table or dataset.table
    _asked(where, "table", check_table, target)
    for each in repositories:
        _asked(where, "repository", check_repository, each)
    _check_writer(where, given, repositories)
    found = Pipeline(
        name, url, topic, dataset, given.subscription or dataset.table, repositories, target,
        _trigger(where, given.trigger), given.checkpoint or f"./checkpoints/{name}",
        given.quarantine or f"{topic}.quarantine", given.events or f"{topic}.events",
        given.publish, _limits(where, dataset, given.analyse), given,
    )  # fmt: skip
    _asked(where, "subscription", names.check_subscription, found.subscription)
    taken = {topic: "the source itself"}
    for key in ("quarantine", "events", "publish"):
        if (value := getattr(found, key)) is not None:
            _asked(where, key, names.check_topic, value)
            if value in taken:
                raise BadPipelineFile(f"{where}, key {key}: {value!r} is {taken[value]}")
            taken[value] = f"the topic of {key} already"
    return found


def _check_values(where: str, given: Table) -> None:
    for key, least in LEAST.items():
        value = getattr(given, key)
        if not least <= value < float("inf"):
            raise BadPipelineFile(f"{where}, key {key}: it is {least} or more, not {value}")
    for key in MAY_BE_LEFT_OUT:
        if getattr(given, key) == "":
            raise BadPipelineFile(f"{where}, key {key}: it is empty; leave it out for the default")


def _check_writer(where: str, given: Table, repositories: tuple[str, ...]) -> None:
    if given.writer != "spark":
        return
    if given.lane != "spark":
        raise BadPipelineFile(f"{where}, key writer: Spark writes where lane is 'spark' only")
    for each in repositories:
        if not each.startswith("delta:"):
            raise BadPipelineFile(f"{where}, key writer: Spark writes delta: tables, not {each!r}")


def _check_spark(path: str, table: dict[str, Any]) -> None:
    """Nobody else tells that a key is unknown: Spark takes any name for an option."""
    master = table.get("master", "local")
    if not isinstance(master, str) or not _MASTER.fullmatch(master):
        raise BadPipelineFile(
            f"{path}, [spark], key master: {master!r} must be 'local[*]', 'local[2]', 'yarn', "
            "'spark://HOST:PORT' or 'k8s://HOST'"
        )
    for key in table:
        if key in {"master", "spark"} or key.startswith("spark."):
            continue
        close = get_close_matches(key, ["master"], n=1)
        meant = close[0] if close else f"spark.{key}"
        raise BadPipelineFile(
            f"{path}, [spark]: unknown key {key!r}; did you mean {meant!r}? There are 'master' and "
            "Spark's own options, whose names begin with 'spark.'"
        )


def _source(where: str, text: str, lane: str) -> tuple[str, str]:
    plain, mark, query = text.partition("?")
    url, slash, topic = plain.rpartition("/")
    if not slash or not url or not topic or url.endswith(("/", ":")):
        raise BadPipelineFile(
            f"{where}, key source: {without_credentials(text)!r} must be a broker and a topic, as "
            "file:./data/monitoring.pms"
        )
    _asked(where, "source", names.check_topic, topic)
    url += mark + query
    is_sparks = lane == "spark" and kafka_url.is_kafka(url)  # by Spark's connector, not our client
    _asked(where, "source", kafka_url.parse if is_sparks else check_url, url)
    if not is_sparks and not has_readers(url):
        scheme = url.partition(":")[0]
        raise BadPipelineFile(
            f"{where}, key source: {scheme}: brokers have no readers, which a pipeline needs; copy "
            f"the topic to one that has, with `penstock bridge {scheme}:… file:./data --topic "
            f"{topic}`"
        )
    return url, topic


def _trigger(where: str, text: str) -> str | float:
    if text in {ASAP, AVAILABLE_NOW}:
        return text
    for form, unit in ((_SECONDS, 1.0), (_MINUTES, 60.0)):
        if match := form.fullmatch(text):
            return float(match[1]) * unit or ASAP
    raise BadPipelineFile(
        f"{where}, key trigger: {text!r} must be 'available-now', 'asap' or a time as '5 seconds'"
    )


def _limits(where: str, dataset: Dataset, given: dict[str, Any]) -> Any:
    for key, value in given.items():
        if value != value:  # noqa: PLR0124 - only NaN is not itself
            raise BadPipelineFile(f"{where[:-1]}.analyse]: key {key}: nan is no limit")
    try:
        return msgspec.convert(given, dataset.limits)
    except msgspec.ValidationError as error:
        raise BadPipelineFile(f"{where[:-1]}.analyse]: {_said(error, dataset.limits)}") from error


def _asked(where: str, key: str, ask: Any, value: Any) -> Any:
    try:
        return ask(value)
    except PenstockError as error:
        raise BadPipelineFile(f"{where}, key {key}: {error.text}") from error


def _said(error: msgspec.ValidationError, kind: Any = Table) -> str:
    """What msgspec says, with the key first and a guess at what was meant."""
    text = str(error)
    if unknown := re.search(r"unknown field `([^`]*)`", text):
        close = get_close_matches(unknown[1], kind.__struct_fields__, n=1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        return f"unknown key {unknown[1]!r}{hint}"
    if missing := re.search(r"missing required field `([^`]*)`", text):
        return f"key {missing[1]!r} is missing"
    if other := re.search(r"Invalid enum value '(.*)' - at `\$\.(\w+)`", text):
        known = " or ".join(map(repr, get_args(get_type_hints(kind)[other[2]])))
        return f"key {other[2]}: it must be {known}, not {other[1]!r}"
    what, _, path = text.partition(" - at `$.")
    return f"key {path.rstrip('`')}: {what}" if path else what


def _check_apart(path: str, pipelines: list[Pipeline]) -> None:
    """Two pipelines of a file never share a checkpoint, a table or a reader."""
    seen: dict[str, str] = {}
    readers: dict[tuple[str, str], str] = {}
    for each in pipelines:
        reader = (each.source.partition("?")[0], each.subscription)
        if reader in readers:
            raise BadPipelineFile(
                f"{path}: [pipeline.{readers[reader]}] and [pipeline.{each.name}] both read "
                f"{reader[0]} as {each.subscription!r}: each would get a part. Give one of them "
                "another key subscription"
            )
        readers[reader] = each.name
        for place in (each.checkpoint, *each.folders()):
            key = str(Path(place).resolve())
            if seen.get(key) == each.name:
                raise BadPipelineFile(f"{path}: [pipeline.{each.name}] uses {place} twice")
            if key in seen:
                raise BadPipelineFile(
                    f"{path}: [pipeline.{seen[key]}] and [pipeline.{each.name}] both use {place}"
                )
            seen[key] = each.name
