"""The devices' side: posts until it is answered 200, and remembers what was."""

import http.client
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterable
from typing import Final

from penstock.cli.demo.crash import ChildFailed
from penstock.cli.demo.fleet import Key, Post

ANSWER_S: Final = 30.0
AGAIN_S: Final = 0.2
REFUSED: Final = range(400, 500)
SLOWER: Final = 10


class Device:
    """One connection to the gateway; a post is repeated until it is confirmed."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._connection: http.client.HTTPConnection | None = None
        self.repeats = 0
        """Posts that got no 200 and were sent again."""

    def post(self, post: Post, give_up: threading.Event) -> bool:
        """Sends it until it is durable; False when told to give up. Raises ChildFailed."""
        while not give_up.is_set():
            status = self._try(post)
            if status == http.client.OK:
                return True
            if status in REFUSED:
                raise ChildFailed(f"the gateway refused a {post.dataset} reading with {status}")
            self.repeats += 1
            give_up.wait(AGAIN_S)
        return False

    def close(self) -> None:
        """Hangs up."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _try(self, post: Post) -> int:
        try:
            if self._connection is None:
                self._connection = http.client.HTTPConnection(
                    "127.0.0.1", self._port, timeout=ANSWER_S
                )
            self._connection.request(
                "POST",
                f"/devices/dataset/{post.dataset}",
                body=post.body,
                headers={"content-type": post.content_type},
            )
            answer = self._connection.getresponse()
            answer.read()
        except (OSError, http.client.HTTPException):
            self.close()
            return 0
        return answer.status


class Fleet(threading.Thread):
    """All devices, posting beside everything else that happens."""

    def __init__(
        self, port: int, posts: Iterable[Post], pause_s: float, slower_after: int = sys.maxsize
    ) -> None:
        super().__init__(name="fleet", daemon=True)
        self._device = Device(port)
        self._posts = posts
        self._pause_s = pause_s
        self._slower_after = slower_after
        """Posts after which pauses are longer, so that some are left until somebody is ready."""
        self._stopping = threading.Event()
        self.confirmed: Counter[tuple[str, Key]] = Counter()
        """Readings of each dataset that were answered with 200."""
        self.wrong: Counter[tuple[str, Key]] = Counter()
        self.readings = 0
        self.error: Exception | None = None

    @property
    def repeats(self) -> int:
        """Posts that had to be sent again."""
        return self._device.repeats

    def run(self) -> None:
        """Posts everything there is."""
        try:
            for number, post in enumerate(self._posts):
                if not self._device.post(post, self._stopping):
                    break
                self.note(post)
                is_slower = number >= self._slower_after
                time.sleep(self._pause_s * (SLOWER if is_slower else 1))
        except Exception as error:  # noqa: BLE001 - told by `finish`
            self.error = error
        finally:
            self._device.close()

    def note(self, post: Post) -> None:
        """Remembers a confirmed post."""
        for key, count in post.keys.items():
            self.confirmed[post.dataset, key] += count
        for key, count in post.wrong.items():
            self.wrong[post.dataset, key] += count
        self.readings += post.readings

    def hurry(self) -> None:
        """Posts the rest without pauses."""
        self._pause_s = 0.0

    def finish(self, timeout_s: float) -> None:
        """Waits until everything is posted. Raises what went wrong."""
        self.join(timeout_s)
        if self.error is not None:
            raise self.error
        if self.is_alive():
            self.stop()
            raise ChildFailed(f"the devices are not done after {timeout_s:.0f} s")

    def stop(self) -> None:
        """Ends it, whatever is left to post."""
        self._stopping.set()
        self.join()
