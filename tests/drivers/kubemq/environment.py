"""The environment that has the SDK of KubeMQ, and the server that stands in for a real one."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from penstock.cli.bench import servers
from penstock.cli.bench.servers import Server
from tests.servers.fixtures import available, starting

ROOT = Path(__file__).parents[3]
TOKEN = "right1"


@contextmanager
def double(folder: Path) -> Iterator[Server]:
    """A KubeMQ in memory, as a process."""
    python = available(lambda: servers.folder_of("kubemq") / "python")
    program = ROOT / "tests" / "servers" / "kubemq_double.py"

    def make(port: int) -> Server:
        return Server([str(python), str(program), str(port), TOKEN], port, folder)

    with starting(lambda: make) as server:
        yield server


def run_inside(server: Server, *words: str) -> str:
    """Runs tests in that environment; what it said when some failed, else its last line."""
    python = servers.folder_of("kubemq") / "python"
    command = [
        str(python), "-m", "pytest", "-q", "--noconftest", "-c", os.devnull, "--rootdir", str(ROOT),
        "--import-mode=importlib", "-p", "no:cacheprovider", "--tb=short",
        "tests/drivers/kubemq/inside.py", *words,
    ]  # fmt: skip
    paths = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300,
        env={**os.environ, "PYTHONPATH": paths, "PENSTOCK_KUBEMQ": server.address},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-5_000:] + done.stderr[-2_000:]
    return done.stdout.strip().splitlines()[-1]
