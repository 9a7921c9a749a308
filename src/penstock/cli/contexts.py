"""Named brokers of this user, in the user's configuration folder: which there are, which is used.

`$XDG_CONFIG_HOME/penstock/contexts.json`, mode 0600, since a URL may hold a password. It is
replaced as a whole, so that a crash leaves the old or the new one.
"""

import json
import os
import re
from pathlib import Path
from typing import Final

import msgspec

from penstock.vocabulary.errors import InvalidArgument, InvalidConfiguration

VARIABLE: Final = "PENSTOCK_CONTEXT"
NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_FILE_BYTES_MAX: Final = 1 << 20


class Contexts(msgspec.Struct, forbid_unknown_fields=True):
    """What the file says."""

    current: str | None = None
    urls: dict[str, str] = {}


def file_path() -> Path:
    """Where they are kept."""
    home = os.environ.get("XDG_CONFIG_HOME", "")
    folder = Path(home) if home.startswith("/") else Path.home() / ".config"
    return folder / "penstock" / "contexts.json"


def read() -> Contexts:
    """All contexts of this user; none when there is no file. Raises InvalidConfiguration."""
    path = file_path()
    try:
        data = path.read_bytes()
        if len(data) > _FILE_BYTES_MAX:
            raise InvalidConfiguration(f"{path} is too large to be a list of contexts; remove it")
        found = msgspec.json.decode(data, type=Contexts)
    except FileNotFoundError:
        return Contexts()
    except OSError as error:
        raise InvalidConfiguration(f"{path} cannot be read: {error.strerror}") from error
    except msgspec.DecodeError as error:
        raise InvalidConfiguration(
            f"{path} is not a list of contexts ({error}); put it right, or remove it"
        ) from error
    return found


def write(contexts: Contexts) -> None:
    """Replaces the file. Raises OSError."""
    path = file_path()
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            os.fchmod(file.fileno(), 0o600)
            json.dump(msgspec.to_builtins(contexts), file, indent=2)
            file.write("\n")
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def check_name(name: str) -> str:
    """Raises InvalidArgument for what cannot name a context."""
    if NAME.fullmatch(name) is None:
        raise InvalidArgument(
            f"{name!r} cannot name a context: use up to 64 letters, digits, '.', '_' and '-', and "
            "begin with a letter or digit"
        )
    return name
