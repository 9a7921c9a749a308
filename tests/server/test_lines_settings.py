import pytest

from penstock.server.lines_settings import LinesSettings, lines_settings
from penstock.vocabulary.errors import InvalidArgument
from penstock.vocabulary.limits import LINE_BYTES_MAX


def test_the_defaults_are_those_of_the_contract() -> None:
    settings = lines_settings({})
    assert settings == LinesSettings()
    assert (settings.credit, settings.line_bytes_max) == (1, LINE_BYTES_MAX)
    assert (settings.connections_max, settings.subscriptions_max) == (10_000, 1_000)
    assert settings.write_stall_s == 10.0


def test_a_table_of_a_configuration_file_is_understood() -> None:
    table = {"credit": 10, "commands": {"publish": ["SEND"]}, "write_stall_s": 3}
    settings = lines_settings(table)
    assert (settings.credit, settings.commands) == (10, {"publish": ["SEND"]})


@pytest.mark.parametrize(
    ("table", "text"),
    [
        ({"credit": 0}, "credit"),
        ({"credit": 1_001}, "credit"),
        ({"credit": "many"}, "credit"),
        ({"kredit": 1}, "kredit"),
        ({"commands": {"publish": "pub"}}, "commands"),
        ({"commands": {"send": ["s"]}}, "no command 'send'"),
        ({"commands": {"publish": ["ack"]}}, "stands for both"),
        ({"line_bytes_max": 10}, "line_bytes_max"),
        ({"write_stall_s": 0}, "write_stall_s"),
    ],
)
def test_a_wrong_setting_is_named(table: dict[str, object], text: str) -> None:
    with pytest.raises(InvalidArgument, match=text):
        lines_settings(table)
