"""Spark's Python daemon: what it imports before it forks, and that nothing of it runs yet."""

import os
import subprocess
import sys
from typing import Any

import pyspark

LOOK = """
import os, sys
from pathlib import Path
from penstock.pipeline.spark import daemon
daemon.prepare()
tasks = [task for task in Path("/proc/self/task").iterdir() if task.name != str(os.getpid())]
print("threads", *(task.joinpath("comm").read_text().strip() for task in tasks))
print("missing", *(name for name in daemon.NEEDED if name not in sys.modules))
print("pandas", "pandas" in sys.modules)
"""
FORK = """
import os, sys
from penstock.pipeline.spark import daemon
daemon.prepare()
for number in range(10):
    child = os.fork()
    if child == 0:
        import pyarrow as pa, pyarrow.compute as pc
        from penstock.pipeline.arrow import leave_pandas_alone
        from penstock.pipeline.datasets import finding, raw
        leave_pandas_alone()
        found = finding.find("pms").validate(raw.raw_batch([b"{}"] * 1000))
        os._exit(0 if len(found.refused) == 1000 and pc.sum(pa.array([1, 2])).as_py() == 3 else 9)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
print("well")
"""


def said_by(program: str) -> str:
    given = os.environ | {"OMP_NUM_THREADS": "1"}  # as Spark sets it for its Python
    done = subprocess.run(
        [sys.executable, "-c", program], env=given, check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_everything_is_there_and_no_thread_that_a_fork_would_lose() -> None:
    threads, missing, pandas = said_by(LOOK).splitlines()
    assert set(threads.split()[1:]) <= {"jemalloc_bg_thd"}
    assert missing == "missing"
    assert pandas == "pandas False", "a dataset may want it, and says so first"


def test_a_fork_of_it_works() -> None:
    assert said_by(FORK) == "well\n"


def test_workers_are_forked_from_it_with_pyspark_as_it_is_installed(spark: Any) -> None:
    def look(_: int) -> tuple[list[str], str]:
        return sys.orig_argv, sys.modules["pyspark"].__file__ or ""

    ((called, place),) = spark.sparkContext.parallelize([0], 1).map(look).collect()
    assert called[1:] == ["-m", "penstock.pipeline.spark.daemon", "pyspark.worker"]
    assert place == pyspark.__file__
