"""The pages people look at: a way in, the documentation, and what went wrong.

They need nothing from outside.
"""

import re
from functools import cache
from html import escape
from pathlib import Path
from typing import Final

import msgspec

HTML: Final = "text/html; charset=utf-8"
FOLDER: Final = Path(__file__).parent / "pages"
POLICY: Final = {
    "content-security-policy": (
        "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
        "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
}
"""What the pages may do: nothing but show themselves and ask this server."""


@cache
def _page(name: str) -> str:
    style = (FOLDER / "style.css").read_text(encoding="utf-8")
    return (FOLDER / name).read_text(encoding="utf-8").replace("/*STYLE*/", style)


def index_page(address: str) -> bytes:
    """What this server is and how to try it; `address` is where it listens."""
    return _page("index.html").replace("{{address}}", address).encode()


def docs_page() -> bytes:
    """Every address, shown from the OpenAPI document."""
    return _page("docs.html").encode()


def problem_page(body: bytes) -> bytes:
    """What went wrong, for whoever opened an address in a browser; `body` is what programs get."""
    said = msgspec.json.decode(body)
    said["body"] = msgspec.json.format(body, indent=2).decode()
    page = re.sub(
        r"{{(\w+)}}", lambda name: escape(str(said.get(name[1], ""))), _page("problem.html")
    )
    return page.encode()
