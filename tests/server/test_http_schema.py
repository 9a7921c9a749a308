"""schemathesis, which nobody here wrote, against the OpenAPI document and the server behind it.

All its phases and checks, but two: that everything a schema cannot forbid is accepted (a name has
rules no schema can say), and that unknown headers are refused (HTTP says they are ignored).
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.server.http_server import PATIENT, PLACE, serving
from tests.tally import Tally

ROOT = Path(__file__).parents[2]
LEFT_OUT = "positive_data_acceptance,negative_data_rejection"


def run(examples: int, max_s: int, folder: Path) -> subprocess.CompletedProcess[bytes]:
    with serving(settings=replace(PATIENT, pull_wait_s_max=0.02)) as server:
        server.put(PLACE.replace("topics/t/", "topics/orders/").replace("/s", "/billing"))
        command = [
            sys.executable, "-m", "schemathesis.cli", "run",
            f"http://127.0.0.1:{server.port}/openapi.json",
            "--exclude-operation-id", "stream",  # it does not end
            "--checks", "all", "--exclude-checks", LEFT_OUT, "--max-examples", str(examples),
            "--max-time", str(max_s), "--request-timeout", "20", "--seed", "1", "--no-color",
            "--generation-database", "none", "--warnings", "off",
        ]  # fmt: skip
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")]),
            "SCHEMATHESIS_HOOKS": "tests.server.schema_hooks",
        }
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, check=False,
            timeout=max_s * 4 + 120,
        )  # fmt: skip
        assert server.get("/healthz").json()["status"] == "ok"
    return done


def test_the_server_does_what_its_document_says(tmp_path: Path) -> None:
    done = run(4, 30, tmp_path)
    assert done.returncode == 0, done.stdout.decode()[-6000:]


@pytest.mark.prove
def test_the_server_does_what_its_document_says_at_length(tmp_path: Path, tally: Tally) -> None:
    done = run(200, 600, tmp_path)
    assert done.returncode == 0, done.stdout.decode()[-6000:]
    found = re.search(rb"(\d+) generated", done.stdout)
    assert found is not None
    tally.add("http schema", requests=int(found[1]), failures=0)
