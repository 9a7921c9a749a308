import asyncio
from pathlib import Path
from typing import Any

import pytest

import penstock as library
from penstock.cli.demo import crash
from penstock.cli.demo.child import AUDIT, BILLING, TOPIC
from penstock.cli.demo.crash import Found, Promises


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crash, "CONFIRMED_MIN", 80)
    monkeypatch.setattr(crash, "ACKED_MIN", 20)
    monkeypatch.setattr(crash, "SHIPPED_MIN", 10)


def test_every_promise_is_kept_after_a_kill(tmp_path: Path) -> None:
    async def look(promises: Promises) -> Found:
        async with library.connect(f"file:{tmp_path / 'data'}") as client:
            return await crash.compare(client, promises)

    told: list[tuple[str, str, int]] = []
    promises = crash.work_and_kill(tmp_path / "data", lambda *words: told.append(words))
    assert len(promises.confirmed) >= crash.CONFIRMED_MIN
    assert len(promises.acked) >= crash.ACKED_MIN
    assert len(promises.shipped) >= crash.SHIPPED_MIN
    assert told[0] == ("confirmed", "order-1", 1)
    found = asyncio.run(look(promises))
    assert found.is_whole, found
    assert not found.is_clean
    assert found.stored >= len(promises.confirmed)


def test_a_broken_promise_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crash, "QUIET_S", 0.1)
    monkeypatch.setattr(crash, "PATIENCE_S", 5.0)

    async def look() -> Found:
        async with library.connect("memory:") as client:
            for name in (BILLING, AUDIT):
                await client.create_subscription(TOPIC, name)
            for name in ("a", "b"):
                await client.publish(TOPIC, b"x", id=name)
            return await crash.compare(client, Promises({"a", "b", "c"}, {"b"}, {"b"}))

    found = asyncio.run(look())
    assert (found.lost, found.missing, found.returned) == ({"c"}, {"c"}, {"b"})
    assert not found.is_whole


def test_a_promise_that_is_kept_late_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crash, "QUIET_S", 0.01)

    async def look() -> Found:
        async with library.connect("memory:") as client:
            for name in (BILLING, AUDIT):
                await client.create_subscription(TOPIC, name)
            comparing = asyncio.create_task(crash.compare(client, Promises({"a"}, set(), set())))
            await asyncio.sleep(0.1)
            await client.publish(TOPIC, b"x", id="a")
            return await comparing

    found = asyncio.run(look())
    assert found.is_whole, found


def test_a_child_that_ends_by_itself_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("not a folder")

    def tell(*_words: Any) -> None:
        raise AssertionError

    with pytest.raises(crash.ChildFailed, match="ended early"):
        crash.work_and_kill(tmp_path / "file", tell)
