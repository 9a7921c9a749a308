"""What happens when a server cannot be had."""

import pytest

from penstock.cli.bench import servers
from tests.servers import fixtures


def _missing() -> int:
    raise servers.Missing("no such server")


def test_a_missing_server_skips(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in fixtures.REQUIRED:
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(pytest.skip.Exception, match="no such server"):
        fixtures.available(_missing)


@pytest.mark.parametrize("name", fixtures.REQUIRED)
def test_a_missing_server_fails_where_it_must_be_there(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, "1")
    with pytest.raises(pytest.fail.Exception, match="no such server"):
        fixtures.available(_missing)


def test_a_flag_may_be_off(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in fixtures.REQUIRED:
        monkeypatch.setenv(name, "false")
    assert not fixtures.is_required()
