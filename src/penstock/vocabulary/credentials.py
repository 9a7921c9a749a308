"""Hides who signs in, and with what, in a URL that is to be shown. Pure.

Whatever may be a URL and comes from a user goes through here before it is printed, logged or put
into an error: a wrong URL too, whose password may hold any mark. So everything between the scheme
and the last `@` is hidden, if need be more than the credentials.
"""

import re
from typing import Final

HIDDEN: Final = "***"
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*:(?://)?")
_FOLDER: Final = re.compile(r"memory:|file:(?!//[^/])")
"""URLs that name no host and so nobody who signs in; an `@` is a part of the name."""
_HOLD: Final = re.compile(
    r"(?P<start>(?:mqtt|tcp)://)(?:.*@)?(?P<rest>[\w.\-]+(?::\d+)?/?\?(?:[\w.]+=[^@&]*&)*"
    r"hold=[^&?]*(?:&[\w.]+=[^@&]*)*)",
    re.DOTALL,
)
"""The one option whose value has an `@`: hold=TOPIC@SUBSCRIPTION."""


def without_credentials(url: str) -> str:
    """A text that may be a URL, as it may be shown."""
    if "@" not in url or _FOLDER.match(url):
        return url
    holding = _HOLD.fullmatch(url)
    if holding is not None:
        start, rest = holding["start"], holding["rest"]
        is_plain = len(start) + len(rest) == len(url)
        return url if is_plain else f"{start}{HIDDEN}@{rest}"
    before, _, after = url.rpartition("@")
    scheme = _SCHEME.match(before)
    return f"{scheme[0] if scheme else ''}{HIDDEN}@{after}"
