"""The documents are true: their programs run, their commands exist, their links lead somewhere.

A Python block that imports penstock is a whole program; any other is the inside of one, where
`client` is connected. Each runs in an empty folder. A comment behind a `print` is what it prints.
"""

import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import indent
from typing import NamedTuple

import pytest

from penstock.cli import main as program

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
DECISIONS = sorted((ROOT / "docs" / "decisions").glob("*.md"))

PATIENCE_S = 60
PRINTS = re.compile(r"^\s*print\(.*\)  # (.+)$", re.MULTILINE)
LINK = re.compile(r"\]\((?!https?:)([^)#]+)[^)]*\)")
INSIDE = """\
import asyncio, penstock, time


async def main():
    async with penstock.connect("file:./data") as client:
{}

asyncio.run(main())
"""


class Block(NamedTuple):
    """One block of code in a document."""

    where: str
    code: str


def blocks(language: str) -> Iterator[Block]:
    for document in DOCUMENTS:
        text = document.read_text(encoding="utf-8")
        for found in re.finditer(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
            line = text.count("\n", 0, found.start()) + 1
            yield Block(f"{document.relative_to(ROOT)}:{line}", found[1])


def commands() -> Iterator[Block]:
    """Every `penstock …` in a block of shell commands."""
    for block in blocks("sh"):
        for line in block.code.splitlines():
            command = re.search(r"(?:^|\| )penstock (.*)", line)
            if command is not None:
                yield Block(block.where, re.split(r" [<>|] ", command[1])[0])


PROGRAMS = list(blocks("python"))
ENDLESS = [block for block in PROGRAMS if "client.run()" in block.code]


@pytest.mark.parametrize(
    "block", [each for each in PROGRAMS if each not in ENDLESS], ids=lambda block: block.where
)
def test_a_program_runs_as_it_stands(
    block: Block,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    is_whole = re.search(r"^import .*penstock", block.code, re.MULTILINE)
    code = block.code if is_whole else INSIDE.format(indent(block.code, " " * 8))
    exec(compile(code, block.where, "exec"), {"__name__": "__main__"})
    out, err = capsys.readouterr()
    assert err == ""
    for expected in PRINTS.findall(block.code):
        assert expected in out.splitlines(), out


def test_a_program_with_handlers_runs_until_sigterm(tmp_path: Path) -> None:
    (block,) = ENDLESS
    url = f"file:{tmp_path / 'data'}"
    assert program.main(["pub", "orders", '{"id": 2}', "--url", url, "-q"]) == 0
    process = subprocess.Popen(
        [sys.executable, "-u", "-c", block.code],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT / "src")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "invoice 2\n"
    process.send_signal(signal.SIGTERM)
    assert process.communicate(timeout=PATIENCE_S) == ("", "")
    assert process.returncode == 0


@pytest.mark.parametrize("block", list(commands()), ids=lambda block: f"{block.where} {block.code}")
def test_a_command_exists_as_it_is_written(block: Block) -> None:
    assert callable(program.parse(shlex.split(block.code, comments=True)).run)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(document: Path) -> None:
    for link in LINK.findall(document.read_text(encoding="utf-8")):
        assert (document.parent / link).exists(), link


def test_each_decision_has_a_number_of_its_own() -> None:
    numbers = [int(path.name[:4]) for path in DECISIONS]
    assert numbers == list(range(1, len(DECISIONS) + 1))


@pytest.mark.parametrize("path", DECISIONS, ids=lambda path: path.name)
def test_the_title_of_a_decision_has_its_number(path: Path) -> None:
    title = path.read_text(encoding="utf-8").partition("\n")[0]
    assert title.startswith(f"# {int(path.name[:4])}. "), title


def test_the_documents_have_programs_and_commands() -> None:
    assert len(PROGRAMS) > 5
    assert len(list(commands())) > 5
