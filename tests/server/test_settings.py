from penstock.server.settings import (
    CHANGEABLE,
    TABLES,
    LimitSettings,
    ServeSettings,
    Settings,
    differences,
)


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
    new = Settings(serve=ServeSettings(port=1, log_level="debug"), limits=LimitSettings())
    assert differences(old, new) == ["serve.port", "serve.log_level"]
    assert differences(old, old) == []


def test_what_may_change_exists() -> None:
    names = {f"{table}.{key}" for table, kind in TABLES.items() for key in kind.__struct_fields__}
    assert names >= CHANGEABLE
