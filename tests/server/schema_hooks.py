"""Teaches schemathesis to send lines; its command imports this by name."""

from typing import Any

import schemathesis


@schemathesis.serializer("application/x-ndjson")
def lines(_context: Any, value: Any) -> Any:
    """Whatever was generated, as it stands."""
    return value if isinstance(value, bytes) else str(value).encode("utf-8", "replace")
