"""What Spark says when a query fails, as one of our errors: Spark passes on text alone."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from penstock.pipeline.spark.refusals import QueryFailed
from penstock.vocabulary.errors import PenstockError

_OURS: Final = re.compile(r"^(?:\w+\.)*penstock[\w.]*\.(\w+): (.+)$", re.MULTILINE)
_PYTHON: Final = re.compile(r"^([\w.]+(?:Error|Exception)): (.+)$", re.MULTILINE)
_DETAILS: Final = re.compile(r"=== Streaming Query ===|JVM stacktrace:")
"""Where Spark begins to tell its own state."""
TEXT_MAX: Final = 500


def failure_of(pipeline: str, text: str) -> PenstockError:
    """The error behind a failed query."""
    found = _OURS.findall(text) or _PYTHON.findall(text)
    if found:
        kind, said = found[-1]
        reason = f"{kind.rpartition('.')[2]}: {said.strip()}"
    else:
        reason = " ".join(_DETAILS.split(text)[0].split())
    return QueryFailed(
        f"the Spark query of pipeline {pipeline!r} ended: {reason[:TEXT_MAX]}. What is stored is "
        "whole; run the pipeline again when the cause is gone"
    )


@contextmanager
def java_watched(end_of_java: Callable[[], str | None]) -> Iterator[None]:
    """One error in place of those a Java leaves behind that ended under the queries."""
    try:
        yield
    except Exception as error:
        how = end_of_java()
        if how is None:
            raise
        raise QueryFailed(
            f"Java, in which Spark runs, ended {how}. What is stored is whole; run the pipeline "
            "again when the cause is gone (was there enough memory?)"
        ) from error
