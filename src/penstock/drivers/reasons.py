"""Why a server could not be reached, in words for people. Pure.

The texts of sockets and SDKs name calls, numbers and Python values; drivers say one of these.
"""

import os
import re
import socket
import ssl
from typing import Final

UNKNOWN_HOST: Final = "the name of the host is not known"
GIVES_UP: Final = (
    "this client gives up: a connection is made again by itself only after it was made once"
)
"""What the client does next, when the first connection fails."""
_TLS: Final = re.compile(r"^\[[^\]]*\]|\(_ssl\.c:\d+\)$")
_NUMBER: Final = re.compile(r"\[Errno (-?\d+)\]")


def reason_of(error: BaseException) -> str:
    """Why a connection failed."""
    if isinstance(error, socket.gaierror):
        return UNKNOWN_HOST
    if isinstance(error, ssl.SSLError):
        return _TLS.sub("", str(error)).strip() or type(error).__name__
    if not isinstance(error, OSError):
        return str(error) or type(error).__name__
    if error.errno is not None:
        return _words(error.errno) or error.strerror or type(error).__name__
    # A host with several addresses: what happened at each of them, in one text.
    found = dict.fromkeys(_words(int(number)) for number in _NUMBER.findall(str(error)))
    return " and ".join(filter(None, found)) or str(error) or "it did not answer in time"


def _words(number: int) -> str:
    return os.strerror(number).lower() if number > 0 else ""
