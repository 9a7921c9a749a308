import asyncio
import json
import os
import shlex
import subprocess
import sys
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest

from penstock.cli import main as program
from penstock.cli.command import Command
from penstock.cli.output import Output
from penstock.pipeline.refusals import BadPipelineFile
from penstock.vocabulary import errors
from tests.cli.conftest import Penstock

EVERY = [
    (entry.name, *([] if isinstance(entry, Command) else [member.name]))
    for entry in program.COMMANDS
    for member in ((entry,) if isinstance(entry, Command) else entry.commands)
]


@pytest.mark.parametrize("words", EVERY, ids=" ".join)
def test_every_command_helps_with_an_example(words: tuple[str, ...], penstock: Penstock) -> None:
    answer = penstock(*words, "--help")
    assert answer.code == 0
    assert f"  penstock {' '.join(words)}" in answer.out.partition("example")[2]
    assert "--json" in answer.out


@pytest.mark.parametrize("words", EVERY, ids=" ".join)
def test_every_example_is_a_command_line_that_works(words: tuple[str, ...]) -> None:
    entry: Any = next(entry for entry in program.COMMANDS if entry.name == words[0])
    if not isinstance(entry, Command):
        entry = next(member for member in entry.commands if member.name == words[1])
    for line in entry.example.splitlines():
        example = line.partition(" < ")[0].partition(" > ")[0]
        assert program.parse(shlex.split(example, comments=True)).run is entry.run


def test_without_a_command_it_helps(penstock: Penstock) -> None:
    answer = penstock()
    assert answer.code == 0
    assert "penstock demo" in answer.out


def test_a_noun_with_options_alone_lists(penstock: Penstock) -> None:
    penstock("pub", "orders", "x")
    answer = penstock("topics", "--json")
    assert (answer.code, [row["topic"] for row in json.loads(answer.out)]) == (0, ["orders"])
    assert "COMMAND" in penstock("topics", "--help").out
    assert "no option --jsn" in penstock("topics", "--jsn").err


def test_a_noun_without_a_verb_is_wrong_usage(penstock: Penstock) -> None:
    answer = penstock("topics")
    assert answer.code == 2
    assert "create" in answer.out


def test_the_version_is_told(penstock: Penstock) -> None:
    assert penstock("--version").out.startswith("penstock ")


def test_a_wrong_command_is_answered_with_the_nearest(penstock: Penstock) -> None:
    answer = penstock("verfy", "x")
    assert answer.code == 2
    assert "there is no command 'verfy'; did you mean 'verify'?" in answer.err
    assert answer.err.startswith("error: ")


def test_a_wrong_verb_is_answered_with_the_nearest(penstock: Penstock) -> None:
    answer = penstock("topics", "crate", "x")
    assert answer.code == 2
    assert "did you mean 'create'" in answer.err


def test_a_wrong_option_is_answered_with_the_nearest(penstock: Penstock) -> None:
    answer = penstock("peek", "orders", "--cuont", "3")
    assert answer.code == 2
    assert "there is no option --cuont; did you mean --count?" in answer.err
    assert "usage: penstock peek" in answer.err


def test_wrong_usage_is_json_for_machines(penstock: Penstock) -> None:
    answer = penstock("peek", "--json")
    assert answer.code == 2
    assert answer.error()["code"] == "usage"
    assert answer.out == ""


def test_common_options_may_stand_before_the_command(penstock: Penstock) -> None:
    answer = penstock("--json", "--url", "file:./nowhere", "topics", "list")
    assert answer.code == 3
    assert answer.error()["code"] == "not-a-store"


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        (errors.InvalidArgument, 2),
        (errors.InvalidName, 2),
        (errors.UnknownTopic, 1),
        (errors.DiskFull, 1),
        (errors.StoreInUse, 3),
        (errors.NotAStore, 3),
        (errors.StoreDamaged, 3),
        (errors.Unsupported, 1),
    ],
)
def test_every_error_has_an_exit_code_and_one_line(
    kind: type[errors.PenstockError], code: int, penstock: Penstock, monkeypatch: pytest.MonkeyPatch
) -> None:
    _replace_stats(monkeypatch, kind("what\nhappened"))
    answer = penstock("stats")
    assert answer.code == code
    assert answer.err == f"error: what happened [{kind.code}]\n"


def test_exit_codes_name_only_known_errors() -> None:
    known = {*errors.catalogue(), BadPipelineFile.code}
    assert set(program.EXIT_CODES) <= known


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (KeyboardInterrupt(), 130, "interrupted"),
        (OSError(28, "No space left on device", "x"), 1, "x: No space left on device [system]"),
        (ZeroDivisionError("oh"), 1, "ZeroDivisionError: oh (-vv shows where) [defect]"),
    ],
)
def test_a_person_never_sees_a_trace(
    error: BaseException, code: int, text: str, penstock: Penstock, monkeypatch: pytest.MonkeyPatch
) -> None:
    _replace_stats(monkeypatch, error)
    answer = penstock("stats")
    assert answer.code == code
    assert text in answer.err
    assert "Traceback" not in answer.err


def test_vv_shows_the_trace(penstock: Penstock, monkeypatch: pytest.MonkeyPatch) -> None:
    _replace_stats(monkeypatch, ZeroDivisionError("oh"))
    assert "Traceback" in penstock("stats", "-vv").err


def test_a_broken_pipe_ends_quietly(penstock: Penstock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "dup2", lambda _old, _new: None)
    _replace_stats(monkeypatch, BrokenPipeError())
    assert penstock("stats") == (0, "", "")


def test_a_reader_that_leaves_is_no_error(here: Path) -> None:
    script = (
        "from penstock.cli.main import main; import sys;"
        "main(['pub', 't', '--file', 'lines', '--lines', '-q']);"
        "sys.exit(main(['peek', 't', '--count', '20k']))"
    )
    (here / "lines").write_bytes(b"a line of text\n" * 20_000)
    process = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=here
    )
    assert process.stdout is not None
    assert process.stderr is not None
    assert process.stdout.readline()
    process.stdout.close()
    assert (process.wait(60), process.stderr.read()) == (0, b"")
    process.stderr.close()


def test_wrong_usage_without_a_hint_is_one_line(penstock: Penstock) -> None:
    assert penstock("serve", "--url", "memory:").err.count("\n") == 1


def test_every_example_of_a_group_is_a_whole_command(penstock: Penstock) -> None:
    lines = penstock("context", "--help").out.splitlines()
    assert lines[lines.index("examples:") + 1 :] == [
        "  penstock context add shop penstock://127.0.0.1:8001",
        "  penstock context add notes file:./notes --use",
    ]


def _replace_stats(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    async def fail(_arguments: Namespace, _output: Output) -> int:
        await asyncio.sleep(0)
        raise error

    changed = Command("stats", "x", "stats", lambda _parser: None, fail)
    monkeypatch.setattr(program, "COMMANDS", (changed,))
