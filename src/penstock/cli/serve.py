"""`penstock serve`: a store on the network, for programs, for telnet and for HTTP."""

import asyncio
import gc
import logging
import os
import signal
import stat
import sys
from argparse import SUPPRESS, ArgumentParser, BooleanOptionalAction, Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from penstock.cli import banner
from penstock.cli.command import Command
from penstock.cli.options import verbosity
from penstock.cli.output import Output
from penstock.cli.parser import BadUsage
from penstock.vocabulary.errors import InvalidConfiguration, StorageError

if TYPE_CHECKING:
    from penstock.broker.broker import Broker
    from penstock.server.configuration import Loaded
    from penstock.server.server import Places, Server
    from penstock.server.settings import ServeSettings

log = logging.getLogger("penstock.server")

OBJECTS_BETWEEN_COLLECTIONS: Final = 100_000
"""What lives as long as the server is frozen; the rest is looked at rarely."""
FORCED: Final = 1


def add(parser: ArgumentParser) -> None:
    """Adds the arguments of this command; those not given come from elsewhere."""
    parser.add_argument("--data", metavar="DIR", default=SUPPRESS, help="the folder of the store")
    parser.add_argument(
        "--host", metavar="ADDRESS", default=SUPPRESS, help="where to listen (default: 127.0.0.1)"
    )
    for name, what, default in (
        ("--line-port", "lines, for telnet", 8000),
        ("--port", "frames, for Penstock clients", 8001),
        ("--http-port", "HTTP", 8080),
    ):
        parser.add_argument(
            name,
            metavar="PORT",
            default=SUPPRESS,
            help=f"port for {what} (default: {default}); 0 = any free one, off = none",
        )
    parser.add_argument("--config", metavar="FILE", type=Path, help="the configuration file")
    parser.add_argument(
        "--insecure-listen",
        action="store_true",
        default=SUPPRESS,
        help="listen on an address other machines can reach, although there is no TLS",
    )
    parser.add_argument(
        "--auto-create-topics",
        action=BooleanOptionalAction,
        default=SUPPRESS,
        help="whether a first publish or subscribe creates its topic (default: yes)",
    )
    parser.add_argument(
        "--log-format", choices=("text", "json"), default=SUPPRESS, help="form of the log lines"
    )


def run(arguments: Namespace, output: Output) -> int:
    """Serves until TERM or INT; exit code 0 after a stop in good order, 1 when it was forced."""
    import uvloop

    from penstock.observe.log_lines import write_lines
    from penstock.server.places import check_host

    if hasattr(arguments, "url") or hasattr(arguments, "context"):
        raise BadUsage("serve opens a folder itself: name it with --data DIR")
    loaded = _load(arguments)
    serve = loaded.settings.serve
    check_host(serve.host, is_insecure=serve.insecure_listen)
    write_lines(_level(arguments, serve), serve.log_format)
    _many_descriptors()
    places = kept(serve)
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(Serving(arguments, output, loaded, places).main())
    finally:
        places.give_up()


def _load(arguments: Namespace) -> "Loaded":
    from penstock.server.configuration import load

    keys = (
        "data", "host", "line_port", "port", "http_port", "insecure_listen", "auto_create_topics",
        "log_format",
    )  # fmt: skip
    flags: dict[str, Any] = {
        f"serve.{key}": getattr(arguments, key) for key in keys if hasattr(arguments, key)
    }
    return load(arguments.config, os.environ, flags)


def _level(arguments: Namespace, serve: "ServeSettings") -> str:
    if getattr(arguments, "quiet", False):
        return "error"
    return "debug" if verbosity(arguments) else serve.log_level


def kept(serve: "ServeSettings") -> "Places":
    """The addresses, all of them or none. Raises AddressInUse."""
    from penstock.server.places import Place
    from penstock.server.server import Places

    found: dict[str, Place] = {}
    wanted = (
        ("frames", serve.port, "--port"),
        ("lines", serve.line_port, "--line-port"),
        ("http", serve.http_port, "--http-port"),
    )
    if all(port == "off" for _, port, _ in wanted):
        raise InvalidConfiguration("every port is off: there would be nothing to connect to")
    try:
        for name, port, option in wanted:
            if isinstance(port, int):
                found[name] = Place.keep(serve.host, port, name, option)
    except BaseException:
        for place in found.values():
            place.give_up()
        raise
    return Places(**found)


def _many_descriptors() -> None:
    """Each connection is one: as many as the system lets this process have."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


class Serving:
    """One run of the command."""

    def __init__(
        self, arguments: Namespace, output: Output, loaded: "Loaded", places: "Places"
    ) -> None:
        self._arguments = arguments
        self._output = output
        self._loaded = loaded
        self._places = places
        self._folder = _folder(loaded.settings.serve.data)
        self._stopping = asyncio.Event()
        self._server: Server | None = None

    async def main(self) -> int:
        """Recovers, listens, and stops when told to."""
        from penstock.drivers.embedded import open_folder
        from penstock.drivers.owner import remove_socket
        from penstock.server.server import Server

        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_stop, number)
        loop.add_signal_handler(signal.SIGHUP, self._on_reload)
        server = self._server = Server(
            self._loaded.settings,
            self._places,
            version=banner.version_text(),
            before_close=lambda: remove_socket(self._folder),
        )
        try:
            reattach_s = self._loaded.settings.serve.reattach_s
            broker = await server.open(lambda: open_folder(self._folder, reattach_s))
            if not self._stopping.is_set():
                await self._listen(server, broker)
                await self._stopping.wait()
            await server.drain()
        finally:
            await server.stop()
        log.info("stopped in good order")
        return 0

    async def _listen(self, server: "Server", broker: "Broker") -> None:
        from penstock.drivers.owner import SOCKET, bound

        try:
            unix = bound(self._folder)
        except OSError as error:
            unix = None
            log.warning("file:%s is for this process only: %s", self._folder, error)
        await server.start(unix, str(self._folder / SOCKET))
        gc.collect()
        gc.freeze()
        gc.set_threshold(OBJECTS_BETWEEN_COLLECTIONS, 50, 100)
        stats = broker.stats()
        log.info("ready: %s", ", ".join(f"{k} {v}" for k, v in server.addresses.items()))
        if self._output.is_json:
            self._output.row(banner.ready(self._folder, server.addresses, broker, stats))
        elif not self._output.is_quiet:
            for line in banner.lines(self._folder, server.addresses, broker, stats):
                self._output.say(line)
            sys.stdout.flush()

    def _on_stop(self, number: int) -> None:
        name = signal.Signals(number).name
        if self._stopping.is_set():
            # Whatever was confirmed is durable; whoever was not answered will ask again.
            log.warning("%s again: ending at once", name)
            logging.shutdown()
            sys.stdout.flush()
            os._exit(FORCED)
        log.info("%s: taking nothing new, finishing what there is; once more ends at once", name)
        self._stopping.set()

    def _on_reload(self) -> None:
        from penstock.observe.log_lines import write_lines

        if self._server is None:
            return
        try:
            loaded = _load(self._arguments)
        except InvalidConfiguration as error:
            for problem in error.problems:
                log.error("not reloaded: %s", problem)  # noqa: TRY400 - a trace says no more
            return
        changed, fixed = self._server.change(loaded.settings)
        serve = loaded.settings.serve
        write_lines(_level(self._arguments, serve), serve.log_format)
        log.info("configuration reloaded: %s", ", ".join(changed) or "nothing changed")
        if fixed:
            log.warning("only a restart changes %s", ", ".join(fixed))


def _folder(data: str) -> Path:
    """The folder of the store. Raises StorageError when everybody may change what is in it."""
    if "\0" in data:
        raise StorageError(f"{data!r} names no folder")
    folder = Path(data).expanduser().resolve()
    if folder.is_dir() and folder.stat().st_mode & stat.S_IWOTH:
        raise StorageError(
            f"everybody on this machine may write to {folder}: `chmod 700 {folder}`, then start "
            "again"
        )
    return folder


COMMAND = Command(
    "serve",
    "serve a store on the network",
    "serve\nserve --data ./orders --port 9001\nserve --line-port off --http-port 0 --json",
    add,
    run,
    details="Listens on this machine only. Settings come from flags, then PENSTOCK_SERVE_…, then\n"
    "penstock.toml; `penstock config show` says which. TERM or Ctrl-C stops it in good order,\n"
    "a second one at once; HUP reads the configuration again.",
)
