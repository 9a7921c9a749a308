"""A process with a broker and a lines listener: prints its address, runs until its input ends."""

import asyncio
import sys
from pathlib import Path

from penstock.broker.broker import Broker
from penstock.journal.disk import FolderDisk
from penstock.server.lines import LinesListener


async def main(folder: Path) -> None:
    loop = asyncio.get_running_loop()
    broker = Broker.open(FolderDisk(folder))
    listener = LinesListener(broker, "127.0.0.1", 0)
    await listener.start()
    sys.stdout.write(f"{listener.address}\n")
    sys.stdout.flush()
    await loop.run_in_executor(None, sys.stdin.read)
    listener.drain()
    await listener.stop()
    await loop.run_in_executor(None, broker.close)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
