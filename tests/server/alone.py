"""A process that runs a server on a folder, kills it and starts it again as it is told.

It reads words from its standard input: `start` forks a child that serves and says `ready PORT`,
`kill` ends it with SIGKILL and says `killed`. When the input ends, so does everything. A fork of a
process that has everything imported takes milliseconds; so many deaths fit into a test. Port 0
means any free one, and the same for all servers: nobody takes it while there is none.
"""

import asyncio
import os
import signal
import sys
from pathlib import Path

import uvloop

from penstock.broker.broker import Broker
from penstock.journal.disk import FolderDisk
from penstock.server.frames import FramesListener
from penstock.server.places import Place


async def serve(folder: Path, port: int, reattach_s: float) -> None:
    """Serves until it is killed."""
    broker = Broker.open(FolderDisk(folder), reattach_s=reattach_s)
    listener = FramesListener(broker, port=port)
    await listener.start()
    sys.stdout.write(f"ready {listener.address.rpartition(':')[2]}\n")
    sys.stdout.flush()
    await asyncio.Event().wait()


def main() -> None:
    """The parent of all servers."""
    folder, reattach_s = Path(sys.argv[1]), float(sys.argv[3])
    place = Place.keep("127.0.0.1", int(sys.argv[2]), "frames", "the second word")
    child = 0
    for line in sys.stdin:
        word = line.strip()
        if word == "start":
            child = os.fork()
            if child == 0:
                os.close(0)
                try:
                    uvloop.run(serve(folder, place.port, reattach_s))
                finally:
                    os._exit(1)
        elif word == "kill" and child:
            _end(child)
            child = 0
            sys.stdout.write("killed\n")
            sys.stdout.flush()
    if child:
        _end(child)


def _end(child: int) -> None:
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


if __name__ == "__main__":
    main()
