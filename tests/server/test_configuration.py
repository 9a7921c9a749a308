"""Flag beats environment beats file beats default; all that is wrong is named at once."""

from pathlib import Path
from typing import Any

import pytest

from penstock.server.configuration import DEFAULT, Value, load, variable_of
from penstock.vocabulary.errors import InvalidConfiguration


@pytest.fixture(autouse=True)
def _empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def problems(text: str = "", environ: dict[str, str] | None = None, **flags: Any) -> list[str]:
    Path("penstock.toml").write_text(text)
    with pytest.raises(InvalidConfiguration) as caught:
        load(None, environ or {}, {f"serve.{name}": value for name, value in flags.items()})
    return caught.value.problems


def test_each_layer_beats_the_one_below() -> None:
    name, variable = "serve.port", variable_of("serve", "port")
    assert variable == "PENSTOCK_SERVE_PORT"
    assert load(None, {}).values[name] == Value(8001, DEFAULT)
    Path("penstock.toml").write_text("[serve]\nport = 1\n")
    assert load(None, {}).values[name] == Value(1, "penstock.toml")
    assert load(None, {variable: "2"}).values[name] == Value(2, "$PENSTOCK_SERVE_PORT")
    loaded = load(None, {variable: "2"}, {name: 3})
    assert loaded.values[name] == Value(3, "--port")
    assert loaded.settings.serve.port == 3
    assert loaded.settings.serve.http_port == 8080


def test_a_file_may_be_named_and_must_then_be_there(tmp_path: Path) -> None:
    other = tmp_path / "other.toml"
    other.write_text("[frames]\nconnections_max = 7\n")
    assert load(other, {}).settings.frames.connections_max == 7
    assert load(None, {"PENSTOCK_CONFIG": str(other)}).settings.frames.connections_max == 7
    with pytest.raises(InvalidConfiguration, match=r"no configuration file missing\.toml"):
        load(Path("missing.toml"), {})


def test_texts_of_the_environment_become_values() -> None:
    serve = load(
        None,
        {
            "PENSTOCK_SERVE_DATA": "77",
            "PENSTOCK_SERVE_LINE_PORT": "off",
            "PENSTOCK_SERVE_INSECURE_LISTEN": "true",
            "PENSTOCK_SERVE_DRAIN_S": "2.5",
            "PENSTOCK_LINES_COMMANDS": "publish=p pub, subscribe=s",
            "PENSTOCK_HTTP_ORIGINS": "https://a.example, https://b.example",
            "PENSTOCK_FRAMES_IDLE_S": "7",
        },
    ).settings
    assert serve.serve.data == "77"
    assert serve.serve.line_port == "off"
    assert serve.serve.insecure_listen is True
    assert serve.serve.drain_s == 2.5
    assert serve.lines.commands == {"publish": ["p", "pub"], "subscribe": ["s"]}
    assert serve.http.origins == ("https://a.example", "https://b.example")
    assert serve.frames.idle_s == 7.0


def test_tables_of_others_and_the_url_are_left_alone() -> None:
    Path("penstock.toml").write_text('url = "file:x"\n[pipeline.pms]\na = 1\n[spark]\nb = 2\n')
    load(None, {"PENSTOCK_URL": "x", "PENSTOCK_PORT": "tcp://10.0.0.1:80"})


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[serve]\nprot = 1", "penstock.toml: [serve] has no key `prot`; did you mean port?"),
        ("[sevre]\nport = 1", "penstock.toml: there is no table [sevre]; did you mean serve?"),
        ("port = 1", "penstock.toml: there is no key `port`; it belongs under [serve]"),
        ("serve = 1", "penstock.toml: `serve` is a table: write [serve]"),
        ("url = 1", "penstock.toml: `url` must be text, not 1"),
        (
            "[serve]\nport = -10",
            "penstock.toml: [serve] port must be a whole number from 0 to 65535 or 'off', not -10",
        ),
        (
            '[serve]\nlog_format = "xml"',
            "penstock.toml: [serve] log_format must be 'json' or 'text', not 'xml'",
        ),
        (
            "[serve]\ninsecure_listen = 1",
            "penstock.toml: [serve] insecure_listen must be true or false, not 1",
        ),
        (
            '[serve]\ndata = ""',
            "penstock.toml: [serve] data must be text that is not empty, not ''",
        ),
        (
            "[serve]\ndrain_s = -1",
            "penstock.toml: [serve] drain_s must be a number from 0 to 86400, not -1",
        ),
        (
            "[lines]\ncommands = 1",
            "penstock.toml: [lines] commands must be a table of lists of words, not 1",
        ),
        (
            "[frames]\nconnections_max = 0",
            "penstock.toml: [frames] connections_max must be a whole number above 0, not 0",
        ),
        (
            "[http]\norigins = 3",
            "penstock.toml: [http] origins must be a list of texts, not 3",
        ),
    ],
)
def test_a_wrong_file_is_named_with_table_and_key(text: str, problem: str) -> None:
    assert problems(text) == [problem]


def test_words_that_do_not_fit_together_are_said_with_their_source() -> None:
    (found,) = problems('[lines.commands]\npublsh = ["p"]')
    assert found.startswith("penstock.toml: [lines] commands: there is no command 'publsh'")


def test_what_is_no_toml_is_said() -> None:
    (found,) = problems("port =")
    assert "penstock.toml is not valid TOML" in found
    Path("penstock.toml").write_bytes(b"\xff")
    with pytest.raises(InvalidConfiguration, match="not valid TOML"):
        load(None, {})
    Path("penstock.toml").unlink()
    Path("penstock.toml").mkdir()
    with pytest.raises(InvalidConfiguration, match="cannot be read"):
        load(None, {})


def test_a_file_that_is_far_too_large_is_not_parsed() -> None:
    assert problems("#" * (1 << 21)) == ["penstock.toml is larger than a configuration can be"]


def test_environment_and_flags_are_checked_too() -> None:
    found = problems(
        "", {"PENSTOCK_SERVE_PRT": "1", "PENSTOCK_SERVE_PORT": "x"}, http_port="-1", prot=1
    )
    assert found == [
        "$PENSTOCK_SERVE_PORT must be a whole number from 0 to 65535 or 'off', not 'x'",
        "there is no environment variable PENSTOCK_SERVE_PRT; did you mean PENSTOCK_SERVE_PORT?",
        "--http-port must be a whole number from 0 to 65535 or 'off', not '-1'",
        "[serve] has no key `prot`; did you mean port?",
    ]


def test_the_error_itself_counts_the_rest() -> None:
    Path("penstock.toml").write_text("[serve]\na = 1\nb = 2\nc = 3\n")
    with pytest.raises(InvalidConfiguration, match="and 2 more"):
        load(None, {})
