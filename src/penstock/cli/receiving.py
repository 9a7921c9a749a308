"""The loop `sub` and `tail` share: receive, print, then settle, until enough or long enough."""

from collections.abc import Callable
from typing import Any, Final

POLL_S: Final = 1.0


async def receive(
    deliveries: Any,
    show: Callable[[Any], None],
    settle: Callable[[Any], None],
    *,
    count: int | None,
    timeout_s: float | None,
) -> int:
    """Shows messages until `count` of them, or `timeout_s` without one; returns how many.

    A message is settled only after it was shown: what could not be printed comes again.
    """
    shown = 0
    while count is None or shown < count:
        message = await _next(deliveries, timeout_s)
        if message is None:
            break
        show(message)
        settle(message)
        shown += 1
    return shown


async def _next(deliveries: Any, timeout_s: float | None) -> Any:
    if timeout_s is not None:
        return await deliveries.receive(timeout_s=timeout_s)
    while True:
        message = await deliveries.receive(timeout_s=POLL_S)
        if message is not None:
            return message
