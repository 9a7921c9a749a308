"""A Spark session that works, or one clear error: PySpark, Java, jars, Python of the workers."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, Final

from penstock.pipeline.spark import launching
from penstock.pipeline.spark.refusals import JarsMissing, JavaMissing, SessionFailed, SparkMissing

JAVA_LEAST: Final = 17
SPARK_LEAST: Final = (4, 2)
MASTER_DEFAULT: Final = "local[*]"
LOG_LEVEL: Final = "spark.log.level"
"""Who sets it wants to see everything Java prints."""
DELTA: Final = "spark-delta"
KAFKA: Final = "spark-kafka"
FIRST_JAR: Final = {DELTA: "delta-spark_*.jar", KAFKA: "spark-sql-kafka-*.jar"}
TASK_FAILURES_MAX: Final = 4
_LOCAL: Final = re.compile(r"local(?:\[(\*|\d+)\])?")

OPTIONS: Final = {
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    LOG_LEVEL: "OFF",
    "spark.driver.memory": "1g",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "10000",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.streaming.pollingDelay": "50ms",
    "spark.python.daemon.module": "penstock.pipeline.spark.daemon",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # Small commits: with the default of 50 partitions each one costs seconds on a small machine.
    "spark.databricks.delta.snapshotPartitions": "2",
}
"""What a session has unless the pipeline file says otherwise."""
DELTA_OPTIONS: Final = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}
ADDED: Final = {
    "SPARK_LOCAL_DIRS": tempfile.gettempdir(),
    "SPARK_AUTH_SOCKET_TIMEOUT": "15",
    "SPARK_BUFFER_SIZE": "65536",
    "SPARK_PYTHON_RUNTIME": "PYTHON_WORKER",
}
"""What Spark adds to the environment of a source when a query starts. That is one map for all
queries: it must not grow while the tasks of another query are being packed, or those cannot be
unpacked (OptionalDataException). So these names are in it from the beginning, with
values that Spark replaces."""


def check_java() -> str:
    """The Java program Spark will run. Raises JavaMissing."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    where = f"JAVA_HOME = {home}" if home else "the PATH"
    advice = f"install Java {JAVA_LEAST} or newer, or set JAVA_HOME to one"
    if java is None:
        raise JavaMissing(f"Spark needs Java, and there is none on the PATH; {advice}")
    try:
        said = subprocess.run(  # noqa: S603 - the Java that Spark is about to run
            [java, "-version"], capture_output=True, text=True, timeout=60, check=False
        ).stderr
    except (OSError, subprocess.TimeoutExpired) as error:
        raise JavaMissing(f"{java}, from {where}, does not run: {error}; {advice}") from error
    found = re.search(r'version "(?:1\.)?(\d+)', said)
    if found is None or int(found[1]) < JAVA_LEAST:
        version = f"is version {found[1]}" if found else "says no version"
        raise JavaMissing(f"{java}, from {where}, {version}; {advice}")
    return java


def check_spark() -> Any:
    """The module pyspark. Raises SparkMissing."""
    try:
        import pyspark  # noqa: PLC0415 - only this lane needs it
    except ImportError as error:
        raise SparkMissing(
            "PySpark is not installed; install penstock with its extra 'spark', or say "
            'lane = "process" to run without it'
        ) from error
    version = tuple(int(part) for part in pyspark.__version__.split(".")[:2])
    if version < SPARK_LEAST:
        least = ".".join(map(str, SPARK_LEAST))
        raise SparkMissing(f"PySpark {pyspark.__version__} is too old; install {least} or newer")
    return pyspark


def cache() -> Path:
    """Where things are kept that can be got again."""
    given = os.environ.get("PENSTOCK_CACHE")
    return Path(given) if given else Path.home() / ".cache" / "penstock"


def find_jars(name: str) -> list[str]:
    """The jars of that name in the cache. Raises JarsMissing."""
    folder = cache() / "servers" / name / "current"
    if not any(folder.glob(FIRST_JAR[name])):
        raise JarsMissing(
            f"the jars {name} are not in {folder}; get them with `scripts/servers {name}`, or "
            "name others in the pipeline file: [spark], key spark.jars or spark.jars.packages"
        )
    return sorted(str(each) for each in folder.glob("*.jar"))


def check_files(jars: Iterable[str]) -> None:
    """Raises JarsMissing for a jar of this machine that is not there."""
    for jar in jars:
        path = jar.removeprefix("file://")
        is_here = "://" not in path and "*" not in path
        if is_here and not Path(path).is_file():
            raise JarsMissing(f"{jar}, which [spark] names in spark.jars, is not there")


def _brings(jars: Iterable[str], name: str) -> bool:
    """True when somebody's own jars have what ours would."""
    return any(fnmatch(jar.rpartition("/")[2], FIRST_JAR[name]) for jar in jars)


def settings(spark: Mapping[str, Any], jars: Iterable[str] = ()) -> dict[str, str]:
    """Everything the session is built with: `[spark]` of the file over our defaults."""
    given = {key if key == "master" else _full(key): _text(value) for key, value in flat(spark)}
    master = given.pop("master", given.pop("spark.master", MASTER_DEFAULT))
    found = OPTIONS | {"spark.master": with_retries(master)}
    if master.startswith("local"):
        found |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    names = list(jars)
    own = [each.strip() for each in given.pop("spark.jars", "").split(",") if each.strip()]
    check_files(own)
    if "spark.jars.packages" not in given:
        own += [jar for name in names if not _brings(own, name) for jar in find_jars(name)]
    if own:
        found["spark.jars"] = ",".join(own)
    if DELTA in names:
        found |= DELTA_OPTIONS
    return found | given


def flat(table: Mapping[str, Any], above: str = "") -> list[tuple[str, Any]]:
    """Nested tables as dotted keys: TOML reads `spark.ui.port = 1` as tables."""
    rows: list[tuple[str, Any]] = []
    for key, value in table.items():
        name = f"{above}.{key}" if above else key
        rows += flat(value, name) if isinstance(value, Mapping) else [(name, value)]
    return rows


def with_retries(master: str) -> str:
    """A local master that tries a failed task again, as every other one does."""
    match = _LOCAL.fullmatch(master)
    return f"local[{match[1] or 1},{TASK_FAILURES_MAX}]" if match else master


def start(spark: Mapping[str, Any], jars: Iterable[str] = (), name: str = "penstock") -> Any:
    """A session with our source in it.

    Raises SparkMissing, JavaMissing, JarsMissing, SessionFailed.
    """
    check_spark()
    check_java()
    # Without it the workers run some other Python, and fail with an error that does not say so.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    wanted = settings(spark, jars)
    given = {_full(key) for key, _ in flat(spark)}
    if wanted["spark.master"].startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    from pyspark.sql import SparkSession  # noqa: PLC0415

    from penstock.pipeline.spark.source import PenstockSource  # noqa: PLC0415

    builder = SparkSession.builder.appName(name)
    for key, value in wanted.items():
        builder = builder.config(key, value)
    words = None if launching.is_launched() else launching.Words(is_shown=LOG_LEVEL in given)
    try:
        if words is not None:
            with launching.without_zips(cache(), wanted["spark.master"]):
                launching.launch(wanted, words)
        session = builder.getOrCreate()
        register(session, PenstockSource)  # a wrong option of Spark's SQL is seen here first
    except Exception as error:
        reason = launching.reason_of(str(error), words.last() if words is not None else "")
        advice = "look at [spark] of the pipeline file"
        if "spark.jars.packages" in wanted:
            advice = "the jars of spark.jars.packages may be out of reach: name files in spark.jars"
        raise SessionFailed(f"Spark did not start: {reason.rstrip('.')}; {advice}") from error
    if words is not None:
        words.pass_on()
    launching.mute(session)
    return session


def register(spark: Any, source: Any) -> None:
    """Makes a source known to a session, so that several queries may start at the same time."""
    environment = spark.sparkContext.environment
    before = dict(environment)
    environment.update(ADDED | before)
    try:
        spark.dataSource.register(source)
    finally:
        environment.clear()
        environment.update(before)


def _full(key: str) -> str:
    return key if key.startswith("spark.") else f"spark.{key}"


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
