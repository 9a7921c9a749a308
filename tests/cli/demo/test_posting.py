import threading
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from penstock.cli.demo.crash import ChildFailed
from penstock.cli.demo.fleet import Post
from penstock.cli.demo.posting import Device, Fleet

POST = Post("pms", b"{}", Counter({("a", "1", "t"): 2}), Counter({("a", "1", "t"): 1}))


class Server:
    """Answers with the statuses it was given, the last one for ever."""

    def __init__(self, *statuses: int) -> None:
        waiting = list(statuses)
        self.bodies: list[bytes] = []
        seen = self.bodies

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                seen.append(self.rfile.read(int(self.headers["content-length"])))
                self.send_response(waiting.pop(0) if len(waiting) > 1 else waiting[0])
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_words: object) -> None:
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.port: int = self.server.server_address[1]
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.01,))
        self.thread.start()

    def close(self) -> None:
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


@pytest.fixture
def server() -> Iterator[Server]:
    found = Server(503, 200)
    yield found
    found.close()


def test_a_post_is_repeated_until_it_is_confirmed(server: Server) -> None:
    fleet = Fleet(server.port, [POST, POST], 0.0, 1)
    fleet.start()
    fleet.finish(30)
    assert server.bodies == [b"{}"] * 3
    assert (fleet.readings, fleet.repeats) == (4, 1)
    assert fleet.confirmed == {("pms", ("a", "1", "t")): 4}
    assert fleet.wrong == {("pms", ("a", "1", "t")): 2}


def test_a_refused_post_ends_it() -> None:
    server = Server(400)
    try:
        fleet = Fleet(server.port, [POST], 0.0)
        fleet.start()
        with pytest.raises(ChildFailed, match="refused a pms reading with 400"):
            fleet.finish(30)
    finally:
        server.close()


def test_where_nobody_listens_it_goes_on_until_it_is_stopped() -> None:
    server = Server(200)
    server.close()
    fleet = Fleet(server.port, [POST], 0.0)
    fleet.start()
    fleet.stop()
    assert fleet.readings == 0
    device = Device(server.port)
    stop = threading.Event()
    stop.set()
    assert not device.post(POST, stop)
