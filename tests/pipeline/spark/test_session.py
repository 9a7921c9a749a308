"""Java, jars and settings: one clear error each before Spark starts."""

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from penstock.pipeline.spark import launching, session
from penstock.pipeline.spark.refusals import JarsMissing, JavaMissing, SessionFailed


def _java(folder: Path, said: str) -> Path:
    place = folder / "bin" / "java"
    place.parent.mkdir(parents=True)
    place.write_text(f"#!/bin/sh\necho '{said}' >&2\n", encoding="utf-8")
    place.chmod(0o755)
    return folder


@pytest.mark.parametrize("said", ['openjdk version "17.0.15"', 'java version "21" 2023-09-19'])
def test_a_java_of_17_and_newer_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(_java(tmp_path, said)))
    assert session.check_java() == str(tmp_path / "bin" / "java")


def test_an_old_java_is_refused_with_its_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(_java(tmp_path, 'java version "1.8.0_392"')))
    with pytest.raises(JavaMissing, match=r"is version 8; install Java 17"):
        session.check_java()


def test_no_java_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(JavaMissing, match="none on the PATH; install Java 17"):
        session.check_java()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    with pytest.raises(JavaMissing, match="does not run"):
        session.check_java()


def test_jars_are_named_with_the_command_that_gets_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path))
    with pytest.raises(JarsMissing, match=r"spark-kafka are not in .*scripts/servers spark-kafka"):
        session.find_jars(session.KAFKA)
    folder = tmp_path / "servers" / "spark-kafka" / "current"
    folder.mkdir(parents=True)
    for name in ("spark-sql-kafka-0-10_2.13-4.2.0.jar", "a.jar"):
        (folder / name).touch()
    assert len(session.find_jars(session.KAFKA)) == 2


def test_the_file_wins_over_our_defaults() -> None:
    found = session.settings(
        {"master": "local[2]", "spark": {"driver": {"memory": "2g"}}, "ui": {"enabled": True}}
    )
    assert found["spark.driver.memory"] == "2g"
    assert found["spark.ui.enabled"] == "true"
    assert found["spark.sql.session.timeZone"] == "UTC"


def test_own_jars_are_added_to_those_of_the_cache_or_replace_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path))
    mine, delta = tmp_path / "mine.jar", tmp_path / "delta-spark_2.13-9.jar"
    with pytest.raises(JarsMissing, match=r"mine\.jar, which \[spark\] names in spark\.jars"):
        session.settings({"jars": str(mine)}, [session.DELTA])
    mine.touch()
    delta.touch()
    with pytest.raises(JarsMissing, match="the jars spark-delta are not in"):
        session.settings({"jars": str(mine)}, [session.DELTA])
    found = session.settings({"jars": f"{mine}, {delta}"}, [session.DELTA])
    assert found["spark.jars"] == f"{mine},{delta}"
    assert re.match("io.delta", found["spark.sql.extensions"])
    cached = tmp_path / "servers" / session.DELTA / "current"
    cached.mkdir(parents=True)
    (cached / "delta-spark_2.13-4.jar").touch()
    found = session.settings({"jars": str(mine)}, [session.DELTA])
    assert found["spark.jars"] == f"{mine},{cached / 'delta-spark_2.13-4.jar'}"


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ("local", "local[1,4]"),
        ("local[*]", "local[*,4]"),
        ("local[2,1]", "local[2,1]"),
        ("spark://h:7077", "spark://h:7077"),
        ("yarn", "yarn"),
        ("k8s://https://h", "k8s://https://h"),
    ],
)
def test_a_local_master_tries_tasks_again_and_others_pass_through(given: str, wanted: str) -> None:
    assert session.settings({"master": given})["spark.master"] == wanted


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"master": "local[1]"}, r"Spark did not start: no port; look at \[spark\]"),
        ({"spark.jars.packages": "no.such:jar:1"}, "packages may be out of reach"),
    ],
)
def test_a_session_that_does_not_start_is_one_error(
    monkeypatch: pytest.MonkeyPatch, given: dict[str, str], said: str
) -> None:
    def fail(_builder: SparkSession.Builder) -> None:
        raise RuntimeError("no port\nand much more")

    monkeypatch.setattr(SparkSession.Builder, "getOrCreate", fail)
    monkeypatch.setattr(launching, "is_launched", lambda: True)
    with pytest.raises(SessionFailed, match=said):
        session.start(given)


def test_a_source_is_registered_with_what_spark_would_add_while_others_start() -> None:
    environment = {"MINE": "1", "SPARK_BUFFER_SIZE": "4096"}
    seen: list[tuple[Any, dict[str, str]]] = []
    spark = SimpleNamespace(
        sparkContext=SimpleNamespace(environment=environment),
        dataSource=SimpleNamespace(
            register=lambda source: seen.append((source, dict(environment)))
        ),
    )
    session.register(spark, "source")
    ((source, during),) = seen
    assert source == "source"
    assert during == {**session.ADDED, "MINE": "1", "SPARK_BUFFER_SIZE": "4096"}
    assert environment == {"MINE": "1", "SPARK_BUFFER_SIZE": "4096"}, "other functions have theirs"
