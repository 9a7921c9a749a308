"""What a replay sends for a reading in quarantine: as it was, or as a function mends it."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from penstock.pipeline import messages
from penstock.pipeline.refusals import FixFailed
from penstock.vocabulary.limits import BODY_BYTES_MAX
from penstock.vocabulary.message import Message

Key = bytes | str | None
Fix = Callable[[bytes | None, list[Any]], bytes | None]
"""Mends a body, given the reasons why it was refused; None leaves it in quarantine."""
PASSED_ON: Final[tuple[str, ...]] = ("source", "received-at", messages.TYPE, "traceparent")


def is_anothers(headers: Mapping[str, str], pipeline: str) -> bool:
    """True for what another pipeline refused: they may share a topic of quarantine."""
    return headers.get(messages.PIPELINE, pipeline) != pipeline


def mended(
    fix: Fix | None, body: bytes | None, headers: Mapping[str, str], key: Key, where: str
) -> Message | None:
    """The message for the pipeline; None when `fix` gives up on it. Raises FixFailed.

    A row of a CSV that became JSON is JSON from now on.
    """
    kept = {name: headers[name] for name in PASSED_ON if name in headers}
    if fix is None:
        return Message(body=body, key=key, headers=kept)
    try:
        made = fix(body, messages.read_reasons(dict(headers)))
    except Exception as error:
        raise FixFailed(
            f"the function of --fix failed at {where} with {error!r}; this message and those "
            "after it were not sent"
        ) from error
    if made is None:
        return None
    if not isinstance(made, bytes):
        raise FixFailed(
            f"the function of --fix gave {type(made).__name__} at {where}; it must give bytes or "
            "None. This message and those after it were not sent"
        )
    if len(made) > BODY_BYTES_MAX:
        raise FixFailed(
            f"the function of --fix gave {len(made)} bytes at {where}, and a message has at most "
            f"{BODY_BYTES_MAX}; this message and those after it were not sent"
        )
    is_json = made.lstrip().startswith(b"{")
    if is_json and not kept.get(messages.TYPE, "").startswith(messages.JSON):
        kept[messages.TYPE] = messages.JSON
    return Message(body=made, key=key, headers=kept)
