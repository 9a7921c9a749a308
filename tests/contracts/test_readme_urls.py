"""The first program of the README runs on every URL with only the URL changed."""

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.cli.bench.servers import Server

README = Path(__file__).parents[2] / "README.md"


def program() -> str:
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    return next(str(block) for block in blocks if 'penstock.connect("file:./data")' in block)


@pytest.mark.parametrize("kind", ["file", "mqtt", "nats", "redis"])
def test_the_program_of_the_readme(
    kind: str, tmp_path: Path, mosquitto: Server, nats_server: Server,
    redis_server: Callable[..., Server],
) -> None:  # fmt: skip
    urls = {
        "file": "file:./data",
        "mqtt": f"mqtt://{mosquitto.address}?dead=file:./dead&hold=orders@billing",
        "nats": f"nats://{nats_server.address}",
        "redis": f"redis://{redis_server().address}",
    }
    text = program().replace("file:./data", urls[kind])
    done = subprocess.run([sys.executable, "-c", text], cwd=tmp_path, capture_output=True,
                          text=True, timeout=120, check=False)  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "{'id': 1}\n"), done.stderr
