import asyncio
import signal
import subprocess
import sys
from argparse import Namespace
from pathlib import Path

import pytest

from penstock.cli.connection import check_exists, named, opened
from penstock.cli.options import Chosen
from penstock.drivers import attached
from penstock.drivers.remote import opening
from penstock.vocabulary.errors import NotAStore, UnknownTopic
from tests.cli.conftest import Penstock


@pytest.mark.parametrize("url", ["file:./missing", "file:missing", "file:///nowhere/at/all"])
def test_looking_at_nothing_creates_nothing(url: str, here: Path) -> None:
    with pytest.raises(NotAStore, match="there is no store in"):
        check_exists(url)
    assert list(here.iterdir()) == []


def test_memory_is_always_there() -> None:
    check_exists("memory:")


def test_an_unknown_topic_is_answered_with_the_nearest(here: Path) -> None:
    async def look() -> None:
        arguments = Namespace(url="memory:", topic="odrers")
        async with opened(arguments) as client:
            await client.create_topic("orders")
            await client.describe_topic("odrers")

    with pytest.raises(UnknownTopic, match="no topic 'odrers'; did you mean 'orders'"):
        asyncio.run(look())


@pytest.mark.parametrize("is_frozen", [False, True])
def test_a_store_in_use_is_used_through_its_owner(
    penstock: Penstock, here: Path, monkeypatch: pytest.MonkeyPatch, is_frozen: bool
) -> None:
    monkeypatch.setattr(attached, "ATTACH_S_MAX", 0.5 if is_frozen else 30.0)
    monkeypatch.setattr(opening, "ATTEMPT_S_MAX", 0.3 if is_frozen else 30.0)
    script = (
        "import penstock, asyncio\n"
        "async def main():\n"
        "    async with penstock.connect('file:./penstock-data'):\n"
        "        print('open', flush=True); await asyncio.sleep(60)\n"
        "asyncio.run(main())"
    )
    owner = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, cwd=here)
    try:
        assert owner.stdout is not None
        assert owner.stdout.readline() == b"open\n"
        if is_frozen:
            owner.send_signal(signal.SIGSTOP)
        answer = penstock("topics", "list", "--json")
    finally:
        owner.kill()
        owner.communicate()
    if is_frozen:
        assert answer.code == 3
        assert answer.error()["code"] == "store-in-use"
        assert "did not answer" in answer.error()["text"]
    else:
        assert (answer.code, answer.json()) == (0, [])


def test_a_folder_of_other_files_cannot_be_reached(penstock: Penstock, here: Path) -> None:
    (here / "photos").mkdir()
    (here / "photos" / "cat.jpg").write_bytes(b"meow")
    answer = penstock("pub", "t", "x", "--url", "file:./photos")
    assert answer.code == 3
    assert "[not-a-store]" in answer.err
    assert [path.name for path in (here / "photos").iterdir()] == ["cat.jpg"]


def test_an_unknown_scheme_is_wrong_usage(penstock: Penstock) -> None:
    answer = penstock("pub", "t", "x", "--url", "fiel:./data")
    assert answer.code == 2
    assert "did you mean" in answer.err


def test_an_error_says_who_named_the_broker() -> None:
    error = NotAStore("nothing there")
    assert named(error, Chosen("file:x", "--url")) is error
    assert str(named(error, Chosen("file:x", "$PENSTOCK_URL"))).endswith("($PENSTOCK_URL: file:x)")
    shown = named(error, Chosen("penstock://a:b@c", "--context", "shop"))
    assert str(shown).endswith("(context 'shop': penstock://***@c)")
