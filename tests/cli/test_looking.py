import asyncio

import penstock as library
from penstock.cli.looking import PAGE, held


def test_every_page_and_partition_is_seen_once() -> None:
    async def look() -> list[bytes]:
        async with library.connect("memory:") as client:
            await client.create_topic("t", partitions=3)
            bodies = [b"%d" % n for n in range(3 * PAGE)]
            messages = [library.Message(body=body, key=body) for body in bodies]
            await client.publish_many("t", messages)
            return [message.body async for message in held(client, "t")]

    assert sorted(asyncio.run(look())) == sorted(b"%d" % n for n in range(3 * PAGE))
