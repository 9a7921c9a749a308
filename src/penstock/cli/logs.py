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


class _Others(logging.Handler):
    """Shows warnings of others, as Python does by itself, without PySpark's link to Java.

    That link logs traces of errors it raises as well; and where it finds no handler it puts in one
    of its own, which would show every line of ours twice.
    """

    def emit(self, record: logging.LogRecord) -> None:
        if not record.name.startswith("penstock") and "py4j" not in record.pathname:
            print(self.format(record), file=sys.stderr)


_OTHERS: Final = _Others(logging.WARNING)


def hush_java() -> None:
    """Leaves the lines of PySpark's link to Java out."""
    if not logging.getLogger().handlers:
        logging.getLogger().addHandler(_OTHERS)


def show(verbosity: int, *, is_quiet: bool) -> None:
    """Shows warnings; with -v also information, with -vv everything, with -q only errors."""
    log = logging.getLogger("penstock")
    if _HANDLER not in log.handlers:
        log.addHandler(_HANDLER)
    level = _LEVELS[min(verbosity, len(_LEVELS) - 1)]
    log.setLevel(logging.ERROR if is_quiet else level)
