"""Spark's text as one of our errors."""

import pytest

from penstock.pipeline.spark.failing import failure_of, java_watched
from penstock.pipeline.spark.refusals import QueryFailed

TEXT = """[STREAM_FAILED] Query terminated with exception: Error from python worker
Traceback (most recent call last):
  File "x.py", line 1, in read
    raise ReaderFenced("gone")
penstock.vocabulary.errors.ReaderFenced: reader 'a' was opened by another owner since
 SQLSTATE: 38000"""


def test_our_own_error_is_found_in_the_text() -> None:
    found = failure_of("pms", TEXT)
    assert found.code == "query-failed"
    assert "ReaderFenced: reader 'a' was opened by another owner since" in found.text
    assert "pipeline 'pms'" in found.text


def test_any_other_python_error_is_shown() -> None:
    assert "ZeroDivisionError: division" in failure_of("p", "x\nZeroDivisionError: division\n").text


def test_text_without_an_error_is_shown_shortened() -> None:
    found = failure_of("p", "java.lang.Something\n" * 200)
    assert "java.lang.Something java" in found.text
    assert len(found.text) < 800


def test_the_state_of_the_query_is_left_out() -> None:
    said = (
        "Connection reset\n=== Streaming Query ===\nIdentifier: many [id = 7]\nPython...@6a213ced"
    )
    assert "ended: Connection reset. What is stored" in failure_of("p", said).text


def test_a_java_that_ended_is_one_error_and_another_error_stays_itself() -> None:
    with (
        pytest.raises(QueryFailed, match="Java, in which Spark runs, ended by signal 9"),
        java_watched(lambda: "by signal 9"),
    ):
        raise ConnectionRefusedError(111, "Connection refused")
    with pytest.raises(ConnectionRefusedError), java_watched(lambda: None):
        raise ConnectionRefusedError(111, "Connection refused")
