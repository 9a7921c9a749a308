from pathlib import Path

import pytest

from penstock.cli import contexts
from penstock.cli.context import find
from penstock.cli.contexts import Contexts
from penstock.cli.parser import BadUsage
from tests.cli.conftest import Penstock


def test_contexts_are_added_used_listed_and_removed(penstock: Penstock) -> None:
    assert "there are no contexts" in penstock("context", "list").err
    assert "used from now on" in penstock("context", "add", "a", "file:./a").err
    assert penstock("context", "add", "b", "file:./b").code == 0
    assert penstock("context", "list", "--json").json() == {
        "current": "a",
        "contexts": {"a": "file:./a", "b": "file:./b"},
    }
    assert penstock("context", "use", "b").code == 0
    lines = penstock("context", "list").out.splitlines()
    assert [line.split() for line in lines[1:]] == [["a", "file:./a"], ["*", "b", "file:./b"]]
    assert penstock("context", "remove", "b").code == 0
    assert penstock("context", "list", "--json").json()["current"] is None
    assert penstock("context", "add", "c", "file:./c", "--use", "--json").json()["current"] == "c"


def test_the_context_in_use_is_the_broker(penstock: Penstock, here: Path) -> None:
    penstock("context", "add", "a", "file:./a")
    penstock("pub", "orders", "x")
    assert (here / "a" / "superblock").is_file()
    penstock("context", "add", "b", "file:./b")
    penstock("pub", "orders", "x", "--context", "b")
    assert (here / "b" / "superblock").is_file()
    assert penstock("topics", "list", "--url", "file:./a", "--context", "b").code == 2


def test_an_error_says_which_context_was_used(penstock: Penstock) -> None:
    penstock("context", "add", "shop", "file:./nowhere")
    answer = penstock("topics", "list")
    assert answer.code == 3
    assert "(context 'shop': file:./nowhere)" in answer.err
    named = penstock("topics", "list", "--url", "file:./nowhere")
    assert "context" not in named.err


def test_a_wrong_name_is_answered_with_the_nearest(penstock: Penstock) -> None:
    penstock("context", "add", "production", "file:./a")
    for words in (("context", "use", "prodction"), ("topics", "list", "--context", "prodction")):
        answer = penstock(*words)
        assert answer.code == 2
        assert "did you mean 'production'?" in answer.err
    with pytest.raises(BadUsage, match="there are none"):
        find(Contexts(), "x")


def test_what_cannot_be_a_context_is_refused(penstock: Penstock) -> None:
    assert penstock("context", "add", "a b", "file:./a").code == 2
    assert "did you mean" in penstock("context", "add", "a", "fiel:./a").err
    assert penstock("context", "list", "--json").json()["contexts"] == {}


def test_a_password_is_never_printed(penstock: Penstock) -> None:
    contexts.write(Contexts("a", {"a": "penstock://ann:secret@127.0.0.1:1"}))
    shown = penstock("context", "list")
    assert "secret" not in shown.out
    assert "penstock://***@127.0.0.1:1" in shown.out
    assert "secret" not in penstock("context", "list", "--json").out
