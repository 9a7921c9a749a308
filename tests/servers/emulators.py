"""mosquitto, and the Pub/Sub server of the Go client library."""

from collections.abc import Callable
from pathlib import Path

from penstock.cli.bench.servers import Server, program_of


def mosquitto(folder: Path) -> Callable[[int], Server]:
    """mosquitto for anybody on loopback, with no limit to what it queues."""
    program = program_of("mosquitto", "mosquitto")

    def make(port: int) -> Server:
        data = folder / "data"
        data.mkdir(parents=True, exist_ok=True)
        settings = folder / "mosquitto.conf"
        settings.write_text(
            f"listener {port} 127.0.0.1\nallow_anonymous true\npersistence true\n"
            f"persistence_location {data}/\nmax_queued_messages 0\nuser root\n"
            "set_tcp_nodelay true\n",
            encoding="utf-8",
        )
        return Server([str(program), "-c", str(settings)], port, folder)

    return make


def pstest(folder: Path) -> Callable[[int], Server]:
    """Pub/Sub in memory: filters work; snapshots, and attributes of dead letters, do not."""
    program = program_of("pstest", "pstest-server")
    return lambda port: Server([str(program), "-port", str(port)], port, folder)
