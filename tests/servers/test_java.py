"""`scripts/java`: silent where Java is there, one line where it is not and may not be installed."""

import os
import shutil
import stat
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "java"
TOOLS = ("sh", "sed", "head", "env")


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    """A PATH with a few tools, no Java, and a person who is not root."""
    for name in TOOLS:
        found = shutil.which(name)
        assert found is not None
        (tmp_path / name).symlink_to(found)
    program(tmp_path / "id", "echo 1000")
    return tmp_path


def program(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


def run(tools: Path) -> subprocess.CompletedProcess[str]:
    kept = {key: value for key, value in os.environ.items() if key != "JAVA_HOME"}
    return subprocess.run(
        [SCRIPT], env=kept | {"PATH": str(tools)}, capture_output=True, text=True, check=True,
        timeout=120,
    )  # fmt: skip


def test_without_java_one_line_says_how(tools: Path) -> None:
    (line,) = run(tools).stderr.splitlines()
    assert "Java 17 or newer" in line
    assert "apt-get install" in line


@pytest.mark.parametrize(
    ("version", "is_enough"), [("17.0.15", True), ("21", True), ("11.0.2", False), ("1.8.0", False)]
)
def test_only_a_recent_java_will_do(tools: Path, version: str, *, is_enough: bool) -> None:
    program(tools / "java", f"echo 'openjdk version \"{version}\" 2025-04-15' >&2")
    assert (run(tools).stderr == "") == is_enough


def test_root_gets_it_installed(tools: Path) -> None:
    program(tools / "id", "echo 0")
    java = tools / "java"
    text = '#!/bin/sh\\necho version \\\\"17.0.1\\\\" >&2'
    program(tools / "chmod", f'exec {shutil.which("chmod")} "$@"')
    program(
        tools / "apt-get",
        f"[ \"$1\" = update ] && exit 0\nprintf '{text}\\n' >{java}\nchmod +x {java}",
    )
    assert run(tools).stderr.splitlines() == ["Installing Java for Spark"]
