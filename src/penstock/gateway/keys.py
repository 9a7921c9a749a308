"""API keys: who may post, by a secret in the header `x-api-key`.

# keys.toml
site-7 = "9f8e…"
laboratory = "17ab…"
"""

import hashlib
import hmac
import tomllib
from pathlib import Path
from typing import Final

from penstock.vocabulary.errors import InvalidArgument

KEY_CHARACTERS_MIN: Final = 16


class Keys:
    """The names of senders, found by their keys. Keys are kept as hashes only."""

    def __init__(self, keys: dict[str, str]) -> None:
        self._names = {_hash(key): name for name, key in keys.items()}

    def name_of(self, key: str | None) -> str | None:
        """Whose key this is; None when nobody's."""
        if key is None:
            return None
        asked = _hash(key)
        found = None
        for known, name in self._names.items():  # all of them: time tells nothing
            if hmac.compare_digest(known, asked):
                found = name
        return found


def read_keys(path: str) -> Keys:
    """The keys of a file. Raises InvalidArgument, naming file and key."""
    try:
        tree = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidArgument(f"{path} cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidArgument(f"{path} is not TOML: {error}") from error
    for name, key in tree.items():
        if not isinstance(key, str) or len(key) < KEY_CHARACTERS_MIN:
            raise InvalidArgument(
                f"{path}, key {name}: an API key is text of at least {KEY_CHARACTERS_MIN} "
                "characters"
            )
        if not name or not name.isprintable():
            raise InvalidArgument(f"{path}: {name!r} is no name for a sender")
    if len(set(tree.values())) < len(tree):
        raise InvalidArgument(f"{path}: two senders have the same API key")
    if not tree:
        raise InvalidArgument(f"{path} has no API keys: nobody could post")
    return Keys(tree)


def _hash(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()
