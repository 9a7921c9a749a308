import logging

import pytest

from penstock.cli import logs


@pytest.mark.parametrize(
    ("verbosity", "is_quiet", "level"),
    [
        (0, False, logging.WARNING),
        (1, False, logging.INFO),
        (2, False, logging.DEBUG),
        (5, False, logging.DEBUG),
        (0, True, logging.ERROR),
    ],
)
def test_how_much_is_shown(verbosity: int, is_quiet: bool, level: int) -> None:
    logs.show(verbosity, is_quiet=is_quiet)
    assert logging.getLogger("penstock").level == level


def test_lines_go_to_standard_error_once(capsys: pytest.CaptureFixture[str]) -> None:
    logs.show(0, is_quiet=False)
    logs.show(0, is_quiet=False)
    logging.getLogger("penstock.broker").warning("the disk is slow")
    assert capsys.readouterr().err == "WARNING penstock.broker: the disk is slow\n"


def test_the_link_to_java_logs_nothing_and_others_do(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", [])
    logs.show(0, is_quiet=False)
    logs.hush_java()
    logs.hush_java()
    for path in ("/lib/py4j/java_gateway.py", "/lib/other.py"):
        told = logging.LogRecord("root", logging.ERROR, path, 1, f"in {path}", (), None)
        root.handle(told)
    logging.getLogger("penstock.broker").warning("the disk is slow")
    assert capsys.readouterr().err == (
        "in /lib/other.py\nWARNING penstock.broker: the disk is slow\n"
    )
