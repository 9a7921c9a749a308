"""One message through the line protocol: durable before `ok`, delivered, acked, gone."""

import asyncio
from pathlib import Path

from tests.server.lines_rig import Talker, folder_broker, listening, run


def test_one_message_is_published_delivered_and_acked(tmp_path: Path) -> None:
    async def scenario() -> None:
        broker = folder_broker(tmp_path)
        async with (
            listening(broker) as listener,
            await Talker.connect(listener, "alice") as alice,
            await Talker.connect(listener) as bob,
        ):
            await bob.pub("orders", "before")
            await alice.sub("orders")
            records = broker.journal.records
            await bob.pub("orders", "1", 3, {"total": 9})
            assert broker.journal.records > records
            assert await alice.event() == {
                "topic": "orders", "id": "1", "priority": 3, "msg": {"total": 9},
            }  # fmt: skip
            assert await alice.ask("ack orders 1") == "ok 1"
            (row,) = broker.subscriptions("orders")
            assert row["subscription"] == "line.alice"
            assert (row["attached"], row["acked"], row["unexplained"]) == (1, 1, 0)
            assert len(await alice.listed("peek orders")) == 1  # only the one nobody waited for
        await asyncio.get_running_loop().run_in_executor(None, broker.close)

    run(scenario)


def test_what_was_answered_ok_survives_the_end_of_the_process(tmp_path: Path) -> None:
    async def before() -> None:
        broker = folder_broker(tmp_path)
        async with listening(broker) as listener, await Talker.connect(listener, "alice") as alice:
            await alice.pub("orders", "0")
            await alice.sub("orders")
            await alice.pub("orders", "1")
            await alice.event()
            assert await alice.ask("ack orders 1") == "ok 1"
            await alice.pub("orders", "2")
            # Whatever is not on disk by now is lost: the process is as good as dead.
            await asyncio.get_running_loop().run_in_executor(None, broker.abandon)

    async def after() -> None:
        broker = folder_broker(tmp_path)
        async with listening(broker) as listener, await Talker.connect(listener, "alice") as alice:
            await alice.sub("orders")
            assert (await alice.event())["id"] == "2"
            assert await alice.ask("ack orders 2") == "ok 2"
            await alice.silence()
        await asyncio.get_running_loop().run_in_executor(None, broker.close)

    run(before)
    run(after)
