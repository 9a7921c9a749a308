"""One Spark session and one served broker for all tests of this folder in a test process."""

import os
import shutil
from collections.abc import Iterator
from typing import Any

import pytest

from penstock.pipeline.spark import session
from penstock.pipeline.spark.refusals import JarsMissing
from tests.pipeline.spark import world
from tests.servers.fixtures import is_required


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a served broker."""
    with world.serving(tmp_path_factory.mktemp("broker") / "data") as url:
        yield url


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """A session with the jars for Delta and Kafka, when they are there; they must be in CI."""
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ and not is_required():
        pytest.skip("Spark needs Java, and there is none")
    with world.sparking(*filter(_has_jars, (session.DELTA, session.KAFKA))) as found:
        yield found


def _has_jars(name: str) -> bool:
    try:
        session.find_jars(name)
    except JarsMissing:
        if is_required():
            raise
        return False
    return True
