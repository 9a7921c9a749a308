"""A real browser without a window, and a small site of its own that its pages report to."""

import json
import os
import queue
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

from penstock.cli.bench import servers
from tests.servers.fixtures import available

PATIENCE_S = 60.0
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--disable-dev-shm-usage", "--disable-extensions", "--no-default-browser-check"),
)


class Site:
    """Pages by their path; what they POST back can be waited for."""

    def __init__(self) -> None:
        self.pages: dict[str, str] = {}
        self._reports: queue.Queue[Any] = queue.Queue()
        site = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                page = site.pages.get(self.path)
                self.send_response(404 if page is None else 200)
                self.send_header("content-type", "text/html; charset=utf-8")
                self.end_headers()
                self.wfile.write((page or "nothing").encode())

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                site._reports.put(json.loads(body))  # first: the answer lets the next one come
                self.send_response(204)
                self.end_headers()

            def log_message(self, *_words: Any) -> None:
                """Says nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.origin = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})
        self._thread.start()

    def report(self) -> Any:
        """The next thing a page reports."""
        return self._reports.get(timeout=PATIENCE_S)

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@contextmanager
def site() -> Iterator[Site]:
    opened = Site()
    try:
        yield opened
    finally:
        opened.close()


def program() -> str:
    """The browser; without one the test is skipped, or fails where it must be there."""
    return str(available(lambda: servers.program_of("chromium", "chromium")))


@contextmanager
def browsing(url: str, folder: Path) -> Iterator[None]:
    """A browser that shows a page; it and its helpers end with the block."""
    with subprocess.Popen(
        [program(), *FLAGS, f"--user-data-dir={folder}", "--remote-debugging-port=0", url],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as process:
        try:
            yield
        finally:
            os.killpg(process.pid, signal.SIGKILL)
