"""Java's words: kept while Spark starts, one reason when it does not, passed on afterwards."""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from pyspark import SparkContext

from penstock.pipeline.spark import launching
from tests.pipeline.spark import world

TRACE = """WARNING: Using incubator modules: jdk.incubator.vector
Using Spark's default log4j profile: org/apache/spark/log4j2-defaults.properties
26/11/17 18:02:43 WARN Utils: Set SPARK_LOCAL_IP if you need to bind to another address
Exception in thread "main" org.apache.spark.SparkException: Master must start with local
\tat org.apache.spark.deploy.SparkSubmit.error(SparkSubmit.scala:1068)
"""
CALLED = """An error occurred while calling None.org.apache.spark.sql.classic.SparkSession.
: org.apache.spark.SparkException: outer
\tat org.apache.spark.A.b(A.scala:1)
Caused by: java.lang.IllegalStateException: inner
\tat org.apache.spark.A.c(A.scala:2)
"""


@pytest.mark.parametrize(
    ("error", "said", "reason"),
    [
        ("no port", TRACE, "Master must start with local"),
        ("no port", 'Exception in thread "main" bare', "bare"),
        ("no port", "WARNING: x\nInvalid heap: -Xmxlots\nError: no VM\n", "Invalid heap: -Xmxlots"),
        (CALLED, "WARNING: Using incubator modules: jdk.incubator.vector\n", "inner"),
        (CALLED.partition("Caused")[0], "", "outer"),
        ("no port\nand more", "WARNING: x\n", "no port"),
        ("", "", "no reason given"),
    ],
)
def test_the_reason_is_one_line(error: str, said: str, reason: str) -> None:
    assert launching.reason_of(error, said) == reason


START = """
import sys
from penstock.pipeline.spark import session
from penstock.pipeline.spark.refusals import SessionFailed
try:
    session.start({"master": "lokal", **eval(sys.argv[1])})
except SessionFailed as error:
    print(error.text)
"""


@pytest.mark.parametrize("given", [{}, {"spark.log.level": "INFO"}])
def test_a_java_that_does_not_start_prints_no_trace(tmp_path: Path, given: dict[str, str]) -> None:
    submit = tmp_path / "bin" / "spark-submit"
    submit.parent.mkdir()
    submit.write_text(f"#!/bin/sh\ncat >&2 <<'END'\n{TRACE}END\nexit 1\n", encoding="utf-8")
    submit.chmod(0o755)
    done = subprocess.run(
        [sys.executable, "-c", START, repr(given)],
        env=os.environ | world.ENVIRONMENT | {"SPARK_HOME": str(tmp_path)},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    if given:
        assert "SparkSubmit.scala" in done.stderr, "who sets the level wants to see it"
    else:
        assert done.stderr == ""
        assert "Master must start with local; look at [spark]" in done.stdout


def test_what_java_says_once_spark_is_up_is_passed_on(capfd: pytest.CaptureFixture[str]) -> None:
    words = launching.Words()
    os.write(words.place, b"noise of the start\n")
    while not words._kept:
        pass
    words.pass_on()
    os.write(words.place, b"out of memory\n")
    words.close_place()
    assert words.last() == ""
    assert capfd.readouterr().err == "out of memory\n"


@pytest.mark.parametrize(
    ("script", "how"), [("exit 3", "with exit code 3"), ("kill -9 $$", "by signal 9")]
)
def test_how_java_ended(monkeypatch: pytest.MonkeyPatch, script: str, how: str) -> None:
    with subprocess.Popen(["sh", "-c", script]) as process:
        monkeypatch.setattr(SparkContext, "_gateway", SimpleNamespace(proc=process))
        monkeypatch.setattr(launching, "END_S", 30)
        assert launching.end_of_java() == how


def test_a_java_that_runs_and_one_that_is_not_ours_have_not_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(launching, "END_S", 0.01)
    with subprocess.Popen(["sleep", "60"]) as process:
        monkeypatch.setattr(SparkContext, "_gateway", SimpleNamespace(proc=process))
        assert launching.end_of_java() is None
        process.kill()
    monkeypatch.setattr(SparkContext, "_gateway", None)
    assert launching.end_of_java() is None


def test_java_is_given_what_it_needs_of_sparks_folder_and_no_zips(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SPARK_HOME", raising=False)
    for _ in range(2):  # made once, and found again
        with launching.without_zips(tmp_path, "local[2,4]"):
            home = Path(os.environ["SPARK_HOME"])
            assert home.is_relative_to(tmp_path)
            assert {each.name for each in home.iterdir()} <= {"bin", "conf", "jars"}
            assert (home / "bin" / "spark-submit").is_file()
            assert any((home / "jars").glob("spark-core*.jar"))
        assert "SPARK_HOME" not in os.environ


def test_a_spark_of_ones_own_a_cluster_and_a_cache_that_cannot_be_written_are_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SPARK_HOME", raising=False)
    with launching.without_zips(tmp_path, "spark://host:7077"):
        assert "SPARK_HOME" not in os.environ
    (tmp_path / "spark").write_text("no folder")
    with launching.without_zips(tmp_path, "local[2,4]"):
        assert "SPARK_HOME" not in os.environ
    monkeypatch.setenv("SPARK_HOME", "/opt/spark")
    with launching.without_zips(tmp_path / "other", "local[2,4]"):
        assert os.environ["SPARK_HOME"] == "/opt/spark"
    assert not (tmp_path / "other").exists()
