"""Starts Spark's Java with its words kept: a failure is one reason, not the trace of a program."""

import logging
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from xxhash import xxh3_64_hexdigest

log = logging.getLogger("penstock.pipeline")

_MAIN: Final = re.compile(r'^Exception in thread "main" (?:[\w.$]+: )?(.+)$', re.MULTILINE)
_CAUSE: Final = re.compile(r"^(?:Caused by)?: [\w.$]+: (.+)$", re.MULTILINE)
"""How a Java error looks once Python has it: its own line begins with the colon."""
_NOISE: Final = re.compile(
    r"WARNING: |Using Spark's default|Setting (?:default|Spark) log level|To adjust logging"
    r"|\d\d/\d\d/\d\d \d\d:\d\d:\d\d (?:TRACE|DEBUG|INFO|WARN) |\s"
)
"""How the lines begin that every start has."""
READ_SIZE: Final = 65536
LAST_WORDS_S: Final = 5.0
"""How long to wait for what a Java that ended has still to say."""

FOR_JAVA: Final = ("bin", "conf", "jars")
"""What Java needs of Spark's folder."""

END_S: Final = 0.5
"""How long to wait for a Java that seems to be ending."""


class Words:
    """What Java prints to its error stream: kept until Spark is up, passed on from then on."""

    def __init__(self, *, is_shown: bool = False) -> None:
        self._kept: list[bytes] = []
        self._is_shown = is_shown
        end, self.place = os.pipe()
        self._thread = threading.Thread(target=self._listen, args=(end,), daemon=True)
        self._thread.start()

    def _listen(self, end: int) -> None:
        with os.fdopen(end, "rb", buffering=0) as pipe:
            while said := pipe.read(READ_SIZE):
                if self._is_shown:
                    sys.stderr.write(said.decode("utf-8", "replace"))
                    sys.stderr.flush()
                else:
                    self._kept.append(said)

    def close_place(self) -> None:
        """Leaves the writing end to Java alone."""
        os.close(self.place)

    def pass_on(self) -> None:
        """Spark is up: what Java says from now on is for the terminal."""
        self._is_shown = True
        self._kept.clear()

    def last(self) -> str:
        """Everything kept. Waits a moment for a Java that ended."""
        self._thread.join(LAST_WORDS_S)
        return b"".join(self._kept).decode("utf-8", "replace")


@contextmanager
def without_zips(cache: Path, master: str) -> Iterator[None]:
    """Has Java take PySpark as it is installed, where all its Python runs on this machine.

    Java puts `python/lib/pyspark.zip` of Spark's folder before everything in the path of its Python
    processes. What is in a zip is compiled anew by each of them: 0.7 s of processor. So Java is
    given a folder with links to all it needs of Spark's, and no Python.
    """
    import pyspark  # noqa: PLC0415 - only this lane needs it

    if "SPARK_HOME" in os.environ or not master.startswith("local"):
        yield
        return
    spark = Path(pyspark.__file__).parent
    home = cache / "spark" / f"{pyspark.__version__}-{xxh3_64_hexdigest(os.fsencode(spark))}"
    try:
        _link(spark, home)
    except OSError as error:
        log.info("Spark's Python is taken from its zip, which is slower: %s", error)
        yield
        return
    os.environ["SPARK_HOME"] = str(home)
    try:
        yield
    finally:
        del os.environ["SPARK_HOME"]


def _link(spark: Path, home: Path) -> None:
    home.mkdir(parents=True, exist_ok=True)
    for name in FOR_JAVA:
        if (spark / name).exists():
            with suppress(FileExistsError):
                (home / name).symlink_to(spark / name)


def launch(wanted: Mapping[str, str], words: Words) -> None:
    """Starts Java for the session to come. Raises what PySpark raises, which says little."""
    from pyspark import SparkConf, SparkContext  # noqa: PLC0415 - only this lane needs it
    from pyspark.java_gateway import launch_gateway  # noqa: PLC0415

    conf = SparkConf()
    for key, value in wanted.items():
        conf.set(key, value)
    try:
        given: dict[str, Any] = {"stderr": words.place}
        gateway = launch_gateway(conf, given)  # type: ignore[no-untyped-call]
    finally:
        words.close_place()
    SparkContext._ensure_initialized(gateway=gateway, conf=conf)  # noqa: SLF001 - no other way in


def is_launched() -> bool:
    """True when this process has its Java already."""
    from pyspark import SparkContext  # noqa: PLC0415

    return SparkContext._gateway is not None  # noqa: SLF001


def end_of_java() -> str | None:
    """How this process's Java ended; None while it runs."""
    from pyspark import SparkContext  # noqa: PLC0415

    process = getattr(SparkContext._gateway, "proc", None)  # noqa: SLF001
    if process is None:
        return None
    try:
        code: int = process.wait(END_S)  # it may be about to: its sockets are closed before that
    except subprocess.TimeoutExpired:
        return None
    return f"by signal {-code}" if code < 0 else f"with exit code {code}"


def mute(session: Any) -> None:
    """Keeps the server PySpark has for counters from printing a trace when Java ends."""
    server = getattr(session.sparkContext, "_accumulatorServer", None)
    if server is not None:
        server.handle_error = lambda *_: None


def reason_of(error: str, said: str = "") -> str:
    """Why Spark did not start, in one line: of what Python raised, and of what Java printed."""
    if main := _MAIN.search(said):
        return main[1].strip()
    if causes := _CAUSE.findall(error):
        return str(causes[-1]).strip()
    lines = [line for line in said.splitlines() if line and not _NOISE.match(line)]
    return (lines or error.strip().splitlines() or ["no reason given"])[0].strip()
