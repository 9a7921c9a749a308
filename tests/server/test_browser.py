"""A browser nobody here wrote: its EventSource follows a topic, over a lost connection, too."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.server.http import HttpSettings
from tests.server.browser import Site, browsing, site
from tests.server.http_server import BASE, Server, serving

PAGE = """<!doctype html><meta charset="utf-8"><script>
let last = Promise.resolve();  // one report after the other: requests may overtake each other
const report = what => {
  last = last.then(() => fetch("/report", {method: "POST", body: JSON.stringify(what)}));
};
const source = new EventSource("ADDRESS");
let opened = 0;
source.onopen = () => report({opened: ++opened});
source.onmessage = event => report({id: event.lastEventId, body: JSON.parse(event.data).body});
source.onerror = () => report({error: source.readyState});
</script>"""
CONNECTING, CLOSED = 0, 2
"""The states of an EventSource that is not open."""


@pytest.fixture
def pages() -> Iterator[Site]:
    with site() as found:
        yield found


def follow(server: Server, topic: str = BASE) -> str:
    address = f"http://127.0.0.1:{server.port}{topic}/stream?start=earliest"
    return PAGE.replace("ADDRESS", address)


def test_a_browser_follows_a_topic_and_comes_back(pages: Site, tmp_path: Path) -> None:
    """What it has is not sent again; what came while it was away is not missing."""

    async def cut() -> None:
        for connection in list(server.listener.connections):
            connection.abort()

    with serving(settings=HttpSettings(origins=(pages.origin,))) as server:
        server.post(f"{BASE}/messages", "eins – ☃")
        pages.pages["/"] = follow(server)
        with browsing(f"{pages.origin}/", tmp_path):
            assert pages.report() == {"opened": 1}
            assert pages.report() == {"id": "0:1", "body": "eins – ☃"}
            server.post(f"{BASE}/messages", 'two\nlines and "marks"')
            assert pages.report() == {"id": "0:2", "body": 'two\nlines and "marks"'}
            server.call(cut())
            assert pages.report() == {"error": CONNECTING}
            server.post(f"{BASE}/messages", "three")
            assert pages.report() == {"opened": 2}
            assert pages.report() == {"id": "0:3", "body": "three"}


def test_a_browser_is_kept_from_what_its_page_may_not_use(pages: Site, tmp_path: Path) -> None:
    with serving(settings=HttpSettings(origins=("https://example.org",))) as server:
        server.post(f"{BASE}/messages", "secret")
        pages.pages["/"] = follow(server)
        with browsing(f"{pages.origin}/", tmp_path):
            assert pages.report() == {"error": CLOSED}
