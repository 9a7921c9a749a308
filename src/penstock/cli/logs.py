"""The library's log lines, shown to whoever runs a command."""

import logging
import sys
from typing import Final

_LEVELS: Final = (logging.WARNING, logging.INFO, logging.DEBUG)


class _ErrorStream(logging.Handler):
    """Writes to whatever standard error is at that moment."""

    def emit(self, record: logging.LogRecord) -> None:
        print(self.format(record), file=sys.stderr)


_HANDLER: Final = _ErrorStream()
_HANDLER.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))


def show(verbosity: int, *, is_quiet: bool) -> None:
    """Shows warnings; with -v also information, with -vv everything, with -q only errors."""
    log = logging.getLogger("penstock")
    if _HANDLER not in log.handlers:
        log.addHandler(_HANDLER)
    level = _LEVELS[min(verbosity, len(_LEVELS) - 1)]
    log.setLevel(logging.ERROR if is_quiet else level)
