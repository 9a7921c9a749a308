from penstock.server.frames_limits import FramesLimits
from penstock.server.lines_settings import LinesSettings
from penstock.server.settings import FIXED, TABLES, ServeSettings, Settings, check, differences


def test_the_defaults_are_loopback_and_the_known_ports() -> None:
    serve = Settings().serve
    assert (serve.host, serve.line_port, serve.port, serve.http_port) == (
        "127.0.0.1",
        8000,
        8001,
        8080,
    )
    assert not serve.insecure_listen


def test_differences_are_named_by_table_and_key() -> None:
    old = Settings()
    new = Settings(
        serve=ServeSettings(port=1, log_level="debug"), frames=FramesLimits(connections_max=3)
    )
    assert differences(old, new) == ["serve.port", "serve.log_level", "frames.connections_max"]
    assert differences(old, old) == []


def test_what_is_fixed_exists() -> None:
    names = {f"{table}.{key}" for table, kind in TABLES.items() for key in kind.__struct_fields__}
    assert names >= FIXED


def test_the_words_of_the_line_protocol_are_checked_together() -> None:
    assert check(Settings()) == []
    twice = LinesSettings(commands={"publish": ["say"], "subscribe": ["say"]})
    (problem,) = check(Settings(lines=twice))
    assert problem.startswith("[lines] commands: the word 'say' stands for both")
