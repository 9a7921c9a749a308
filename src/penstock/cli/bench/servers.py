"""Servers of other projects, started on loopback in a folder of their own, and stopped again.

`scripts/servers` gets them into a cache; here they are found there, or on the PATH.
"""

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, Self

from penstock.vocabulary.errors import PenstockError

READY_S: Final = 60.0
STOP_S: Final = 20.0
LOOK_S: Final = 0.02
TRIES: Final = 3
"""Another process may take a port between the moment it was found free and the start."""
CACHE_VARIABLE: Final = "PENSTOCK_CACHE"
LAST_WORDS: Final = 300


class Missing(PenstockError):
    """A server is neither in the cache nor on the PATH."""

    code = "server-missing"


class NotReady(PenstockError):
    """A server was started and does not answer; the text ends with its last words."""

    code = "server-not-ready"


def cache() -> Path:
    """Where `scripts/servers` keeps what it got."""
    given = os.environ.get(CACHE_VARIABLE)
    return (Path(given) if given else Path.home() / ".cache" / "penstock") / "servers"


def folder_of(name: str) -> Path:
    """The folder of a server in the cache. Raises Missing."""
    found = cache() / name / "current"
    if not found.is_dir():
        raise Missing(f"{name} is not in {cache()}: `make servers ARGS={name}` gets it")
    return found.resolve()


def program_of(name: str, program: str) -> Path:
    """A server's program, from the cache or the PATH. Raises Missing."""
    found = cache() / name / "current" / program
    if found.is_file():
        return found
    installed = shutil.which(program)
    if installed is None:
        raise Missing(
            f"{program} is neither in {cache()} nor on the PATH: `make servers ARGS={name}` gets it"
        )
    return Path(installed)


def free_port() -> int:
    """A port on loopback that nobody uses at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Server:
    """One server process on loopback, which can be killed and started again on the same port."""

    def __init__(
        self,
        command: Sequence[str],
        port: int,
        folder: Path,
        *,
        ready_line: str | None = None,
        environment: dict[str, str] | None = None,
        ready_s: float = READY_S,
    ) -> None:
        self.port = port
        self._ready_s = ready_s
        self.folder = folder
        """Where it keeps its data and its log."""
        self.log = folder / "server.log"
        self._command = list(command)
        self._ready_line = ready_line
        self._environment = {**os.environ, **(environment or {})}
        self._process: subprocess.Popen[bytes] | None = None
        self._said = 0
        """Bytes of the log from earlier starts."""

    @property
    def address(self) -> str:
        """Host and port."""
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """The id of the running process."""
        assert self._process is not None, "the server is not running"
        return self._process.pid

    def start(self) -> Self:
        """Starts the process and returns when it answers. Raises NotReady."""
        self.launch()
        self.wait_until_ready()
        return self

    def launch(self) -> None:
        """Starts the process and does not wait for it."""
        assert self._process is None, "the server is running"
        self.folder.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as log:
            self._said = log.tell()
            self._process = subprocess.Popen(  # noqa: S603 - a server the person asked for
                self._command,
                cwd=self.folder,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def wait_until_ready(self) -> None:
        """Returns when the server answers; one that does not is killed. Raises NotReady."""
        assert self._process is not None, "the server is not running"
        ends = time.monotonic() + self._ready_s
        problem = ""
        try:
            while not problem and not self._is_ready():
                if self._process.poll() is not None:
                    problem = "ended at its start"
                elif time.monotonic() > ends:
                    problem = f"does not answer on {self.address} after {self._ready_s:.0f} s"
                else:
                    time.sleep(LOOK_S)
        except BaseException:
            self.kill()
            raise
        if problem:
            self.kill()
            raise NotReady(f"{self._command[0]} {problem}: {self._last_words()}")

    def stop(self) -> None:
        """Ends the process in good order; one that does not end is killed."""
        if self._process is not None:
            self._process.terminate()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(STOP_S)
        self.kill()

    def kill(self) -> None:
        """Ends the process at once, as a crash would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def resident_bytes(self) -> int:
        """Memory the process has in use."""
        pages = Path(f"/proc/{self.pid}/statm").read_text(encoding="ascii").split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")

    def text_of_log(self) -> str:
        """What the server wrote so far."""
        return self.log.read_text(encoding="utf-8", errors="replace")

    def _is_ready(self) -> bool:
        if self._ready_line is not None:
            return self._ready_line.encode() in self.log.read_bytes()[self._said :]
        with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1.0):
            return True
        return False

    def _last_words(self) -> str:
        said = self.log.read_bytes()[self._said :].decode(errors="replace").strip()
        return said[-LAST_WORDS:] or "it said nothing"


@contextmanager
def running(make: Callable[[int], Server]) -> Iterator[Server]:
    """A started server on a free port, stopped at the end."""
    for tries_left in reversed(range(TRIES)):
        server = make(free_port())
        try:
            server.start()
            break
        except NotReady:
            if not tries_left:
                raise
    try:
        yield server
    finally:
        server.stop()


def nats(folder: Path, *, sync: str = "default") -> Callable[[int], Server]:
    """NATS with JetStream on disk; `sync="always"` syncs each message before it is confirmed."""
    program = program_of("nats", "nats-server")

    def make(port: int) -> Server:
        folder.mkdir(parents=True, exist_ok=True)
        interval = "    sync_interval: always\n" if sync == "always" else ""
        settings = folder / "nats.conf"
        settings.write_text(
            f'listen: "127.0.0.1:{port}"\n'
            f'jetstream {{\n    store_dir: "{folder / "data"}"\n{interval}}}\n',
            encoding="utf-8",
        )
        return Server([str(program), "-c", str(settings)], port, folder)

    return make


def redis(folder: Path, *, fsync: str = "everysec") -> Callable[[int], Server]:
    """Redis with its append-only file; `fsync="always"` syncs before each answer."""
    program = program_of("redis", "redis-server")

    def make(port: int) -> Server:
        command = [str(program), "--bind", "127.0.0.1", "--port", str(port), "--save", ""]
        command += ["--dir", str(folder), "--appendonly", "yes", "--appendfsync", fsync]
        return Server(command, port, folder)

    return make
