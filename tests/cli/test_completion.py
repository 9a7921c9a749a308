import shutil
import subprocess
from pathlib import Path

import pytest

from penstock.cli.completion import is_quick, nodes
from penstock.cli.main import build
from penstock.client.blocking import connect_blocking
from tests.cli.conftest import Penstock

ASK = """
source "$1"; shift
penstock() { printf 'orders\\nodd\\n'; }
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _penstock; printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture
def script(penstock: Penstock, here: Path) -> Path:
    path = here / "penstock.bash"
    path.write_text(penstock("completion", "bash").out)
    return path


def complete(script: Path, *words: str) -> list[str]:
    done = subprocess.run(
        ["bash", "-c", ASK, "bash", script, "penstock", *words],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    return done.stdout.split()


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["to"], ["top", "topics"]),
        (["context", ""], ["add", "use", "list", "remove"]),
        (["--json", "verif"], ["verify"]),
        (["sub", "--kind", "k"], ["key_shared"]),
        (["sub", "x", "--subscr"], ["--subscription"]),
        (["peek", "o"], ["orders", "odd"]),
        (["completion", "b"], ["bash"]),
        (["stats", "--context", "od"], ["odd"]),
        (["context", "u"], ["use"]),
    ],
)
def test_bash_completes(script: Path, words: list[str], found: list[str]) -> None:
    assert sorted(complete(script, *words)) == sorted(found)


def test_bash_offers_files_where_they_are_meant(script: Path, here: Path) -> None:
    assert "penstock.bash" in complete(script, "verify", "")
    assert "penstock.bash" in complete(script, "pub", "t", "--file", "")


def test_zsh_uses_the_same_function(penstock: Penstock) -> None:
    bash, zsh = penstock("completion", "bash").out, penstock("completion", "zsh").out
    assert "bashcompinit" in zsh
    assert zsh.endswith("\n".join(bash.splitlines()[1:]) + "\n")


def test_fish_knows_every_command(penstock: Penstock, here: Path) -> None:
    text = penstock("completion", "fish").out
    for node in nodes(build()):
        for word, _ in node.words:
            assert f"'__penstock_at {node.path}' -a {word} " in text, (node.path, word)
    if shutil.which("fish"):
        (here / "x.fish").write_text(text)
        subprocess.run(["fish", "--no-execute", here / "x.fish"], check=True, timeout=120)


def test_topic_names_come_only_from_a_broker_that_runs(penstock: Penstock, here: Path) -> None:
    penstock("pub", "orders", "x")
    answer = penstock("completion", "topics")
    assert (answer.code, answer.out, answer.err) == (0, "", "")
    assert not is_quick("memory:")
    assert not is_quick("file:./penstock-data")
    assert not is_quick("file:./nowhere")
    with connect_blocking("file:./penstock-data"):
        assert is_quick("file:./penstock-data")
    assert is_quick("penstock://127.0.0.1:1")


def test_an_unreachable_broker_is_no_error_at_the_tab_key(penstock: Penstock) -> None:
    answer = penstock("completion", "topics", "--context", "missing")
    assert (answer.code, answer.out, answer.err) == (0, "", "")


def test_contexts_are_offered(penstock: Penstock) -> None:
    assert penstock("completion", "contexts").out == ""
    penstock("context", "add", "shop", "file:./shop")
    penstock("context", "add", "mill", "file:./mill")
    assert penstock("completion", "contexts").out == "mill\nshop\n"
    assert "-l context" in (fish := penstock("completion", "fish").out)
    assert "-x -a '(penstock completion contexts 2>/dev/null)'" in fish
