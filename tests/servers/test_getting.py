"""`scripts/servers`: gets once, keeps complete folders only, names what cannot be had."""

import importlib.machinery
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "servers"


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script as a module, with an empty cache."""
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path))
    loader = importlib.machinery.SourceFileLoader("servers_script", str(SCRIPT))
    spec = importlib.util.spec_from_loader("servers_script", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def _use(script: Any, monkeypatch: pytest.MonkeyPatch, *words: str, **gets: Any) -> int:
    table = {
        name: script.Server("1.2.3", get, ["tool", "--version"], name) for name, get in gets.items()
    }
    monkeypatch.setattr(script, "SERVERS", table)
    monkeypatch.setattr(sys, "argv", ["servers", *words])
    code: int = script.main()
    return code


def _getter(script: Any, said: str = "tool 1.2.3") -> Any:
    def get(folder: Path, version: str) -> None:
        get.calls += 1  # type: ignore[attr-defined]
        script.write_program(folder / "tool", f"echo {said}")

    get.calls = 0  # type: ignore[attr-defined]
    return get


def test_what_is_there_is_not_got_again(
    script: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Any
) -> None:
    get = _getter(script)
    assert _use(script, monkeypatch, tool=get) == 0
    assert _use(script, monkeypatch, tool=get) == 0
    assert get.calls == 1
    assert (tmp_path / "servers" / "tool" / "current").resolve().name == "1.2.3"
    assert "tool: 1.2.3 is there" in capsys.readouterr().err
    assert _use(script, monkeypatch, "--list", tool=get) == 0
    assert str(tmp_path / "servers" / "tool" / "1.2.3") in capsys.readouterr().out


def test_another_version_has_a_folder_of_its_own(
    script: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    get = _getter(script)
    assert _use(script, monkeypatch, tool=get) == 0
    assert _use(script, monkeypatch, "tool@v2.0.0", tool=get) == 0
    assert (tmp_path / "servers" / "tool" / "current").resolve().name == "2.0.0"
    assert (tmp_path / "servers" / "tool" / "1.2.3").is_dir()


def test_what_the_distribution_has_is_kept_under_its_version(
    script: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    get = _getter(script, "tool version 7.0")
    for _ in range(2):
        assert _use(script, monkeypatch, f"tool@{script.PACKAGED}", tool=get) == 0
    assert get.calls == 1
    assert (tmp_path / "servers" / "tool" / "current").resolve().name == "7.0"


def test_a_failed_one_is_named_and_the_others_are_got(
    script: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Any
) -> None:
    def fail(folder: Path, _version: str) -> None:
        (folder / "half").touch()
        script.run([sys.executable, "-c", "raise SystemExit('error: no such module')"])

    assert _use(script, monkeypatch, bad=fail, good=_getter(script)) == 1
    said = capsys.readouterr().err
    assert "error: bad is missing: error: no such module\n  try: " in said
    assert "good: 1.2.3 got in" in said
    left = [path.name for path in (tmp_path / "servers" / "bad").iterdir()]
    assert left == [], "nothing half done stays"


def test_a_server_that_does_not_run_is_no_server(
    script: Any, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    bad = _getter(script, "error while loading shared libraries: libx.so.1")
    assert _use(script, monkeypatch, tool=bad) == 1
    said = capsys.readouterr().err
    assert "it was got but does not run: error while loading shared libraries: libx.so.1" in said


def test_an_unknown_name_is_refused(script: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SystemExit, match="no server 'rediss'; known: tool"):
        _use(script, monkeypatch, "rediss", tool=_getter(script))


def test_an_old_go_is_not_used(script: Any, tmp_path: Path) -> None:
    script.write_program(tmp_path / "go", "echo go version go1.19.8 linux/amd64")
    assert script.go_version(str(tmp_path / "go")) == (1, 19) < script.GO_LEAST


def test_a_package_may_have_another_name_for_its_program(
    script: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def unpack(root: Path, package: str) -> None:
        assert package == "netcat-openbsd"
        (root / "bin").mkdir(parents=True)
        script.write_program(root / "bin" / "nc.openbsd", "echo netcat 1.219")

    monkeypatch.setattr(script, "unpack", unpack)
    monkeypatch.setattr(script.shutil, "which", lambda name, **_: name if name != "nc" else None)
    script.get_netcat(tmp_path, script.PACKAGED)
    assert script.version_of(script.SERVERS["netcat"], tmp_path) == "1.219"


def test_a_source_that_is_not_the_expected_one_is_not_changed(script: Any, tmp_path: Path) -> None:
    source = tmp_path / "fake.go"
    source.write_text("one two", encoding="utf-8")
    with pytest.raises(script.Failed, match=r"fake\.go is not as expected: it lacks 'three'"):
        script.patch(source, {"one": "1", "three": "3"})
    assert source.read_text(encoding="utf-8") == "one two"
    script.patch(source, {"one": "1"})
    assert source.read_text(encoding="utf-8") == "1 two"


def test_a_browser_that_is_not_installed_is_unpacked(
    script: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def unpack(root: Path, package: str) -> None:
        assert package == "chromium"
        inside = root / "usr" / "lib" / "chromium"
        inside.mkdir(parents=True)
        script.write_program(inside / "chromium", 'echo Chromium 156.0.1 "$LD_LIBRARY_PATH"')
        for library in ("libx.so.1", "private/liby.so"):
            path = root / "usr" / "lib" / "some-linux-gnu" / library
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()

    monkeypatch.setattr(script, "unpack", unpack)
    monkeypatch.setattr(
        script.shutil, "which", lambda name, **_: None if name == "chromium" else name
    )
    script.get_chromium(tmp_path, script.PACKAGED)
    assert script.version_of(script.SERVERS["chromium"], tmp_path) == "156.0.1"
    libraries = tmp_path / "root" / "usr" / "lib" / "some-linux-gnu"
    assert f"{libraries}:{libraries}/private" in script.words_of(
        script.SERVERS["chromium"], tmp_path
    ), "libraries one folder deeper are found, too"
