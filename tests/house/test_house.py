"""The house style that a machine can check: imports, purity, sizes, names, no addresses.

Which room may import which is written in pyproject.toml, under `tool.importlinter`.
"""

import ast
import functools
import re
import socket
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from importlinter import cli

from tests import longest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "penstock"
TESTS = ROOT / "tests"

FILE_LINES_MAX = 500
FUNCTION_LINES_MAX = 70

PURE_ROOMS = ("vocabulary", "batch", "delivery", "wire")

IMPURE_MODULES = frozenset(
    (
        *("sched", "signal", "time"),  # clock
        *("random", "secrets", "uuid"),  # chance
        *("fcntl", "glob", "io", "mmap", "os", "pathlib", "shutil", "sqlite3", "tempfile"),  # disk
        *("http", "select", "selectors", "socket", "socketserver", "ssl", "urllib"),  # network
        *("asyncio", "concurrent", "contextvars", "multiprocessing", "queue", "threading"),
        *("logging", "subprocess", "warnings"),
    )
)
IMPURE_FUNCTIONS = frozenset({"input", "open", "print"})
IMPURE_METHODS = frozenset({"now", "today", "utcnow"})
"""Clocks hidden in an otherwise pure module: datetime.now() and the like."""

NUMPY_ROOMS = frozenset({"delivery", "pipeline"})

WITHOUT_OWN_TEST: dict[str, str] = {
    "__main__.py": "one line that calls cli/main.py",
    "server/listening.py": "a protocol only; every listener has its own test",
    "vocabulary/limits.py": "constants only",
}
"""Modules without a test module of their own, and why."""

# Written in pieces, so that this file does not find itself.
FORBIDDEN_TEXTS = (
    "/wo" + "rk/",
    "/ro" + "ot/",
    "/ho" + "me/",
    "/Us" + "ers/",
    "index" + "-url",
    "index" + "_url",
    "extra" + "-index",
    "trusted" + "-host",
    "files.python" + "hosted",
    "pypi.org" + "/simple",
    "arti" + "factory",
)
PACKAGE_ADDRESS = re.compile(
    r"(?i)\bhttps?" + r"://\S+?/(simple|packages)/|\b\S+ @ https?" + r"://"
)

FOLDERS_NOT_OURS = frozenset({"build", "dist", "data", "__pycache__"})


# -- imports between rooms ------------------------------------------------------------------


def test_rooms_import_only_what_the_table_allows(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    status = cli.lint_imports(config_filename="pyproject.toml", no_cache=True, no_logo=True)
    assert status == cli.EXIT_STATUS_SUCCESS, capsys.readouterr().out


def test_no_room_reaches_others_through_the_package_root() -> None:
    found = [
        f"{_name(path)}:{line} imports {name} from the root"
        for path in _modules()
        if path.parent != SOURCE and _room(path) != "cli"
        for line, name in _root_imports(path)
        if name not in _rooms_present()
    ]
    assert not found, _listing(found)


# -- purity ---------------------------------------------------------------------------------


def test_pure_rooms_import_no_clock_disk_network_or_chance() -> None:
    found = [
        f"{_name(path)}:{line} imports {module}"
        for path in _modules()
        if _room(path) in PURE_ROOMS
        for line, module in _imports(path)
        if module.split(".")[0] in IMPURE_MODULES or module.startswith("numpy.random")
    ]
    assert not found, _listing(found)


def test_pure_rooms_have_no_coroutines_globals_or_effects() -> None:
    found = [
        f"{_name(path)}:{line} uses {what}"
        for path in _modules()
        if _room(path) in PURE_ROOMS
        for line, what in _impurities(path)
    ]
    assert not found, _listing(found)


def test_numpy_stays_in_the_rooms_that_need_it() -> None:
    found = [
        f"{_name(path)}:{line}"
        for path in _modules()
        if _room(path) not in NUMPY_ROOMS
        for line, module in _imports(path)
        if module.split(".")[0] == "numpy"
    ]
    assert not found, _listing(found)


# -- sizes and names ------------------------------------------------------------------------


def test_no_file_is_too_long_to_read() -> None:
    sizes = {_name(path): len(_text(path).splitlines()) for path in _modules()}
    found = [f"{name} has {size} lines" for name, size in sizes.items() if size > FILE_LINES_MAX]
    assert not found, _listing(found)


def test_no_function_is_too_long_for_a_screen() -> None:
    found = [
        f"{_name(path)}:{node.lineno} {node.name} has {size} lines"
        for path in _modules()
        for node in ast.walk(_tree(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (size := (node.end_lineno or node.lineno) - node.lineno + 1) > FUNCTION_LINES_MAX
    ]
    assert not found, _listing(found)


def test_every_module_has_its_own_test_module() -> None:
    found = [
        f"{_name(path)} has no {expected.relative_to(ROOT).as_posix()}"
        for path in _modules()
        if path.name != "__init__.py" and _name(path) not in WITHOUT_OWN_TEST
        if not (expected := _test_of(path)).exists()
    ]
    assert not found, _listing(found)


def test_every_exception_from_the_test_map_is_still_needed() -> None:
    names = {_name(path): path for path in _modules()}
    found = [
        name for name in WITHOUT_OWN_TEST if name not in names or _test_of(names[name]).exists()
    ]
    assert not found, _listing(found)


def test_the_files_that_begin_first_are_there() -> None:
    assert not [name for name in longest.FILES if not (TESTS / name).is_file()]
    assert len(set(longest.FILES)) == len(longest.FILES)


# -- addresses and packages -----------------------------------------------------------------


def test_no_file_names_a_package_index_or_a_place_on_one_machine() -> None:
    found = [
        f"{path.relative_to(ROOT).as_posix()}:{number} {line.strip()[:80]}"
        for path in _tracked_files()
        for number, line in enumerate(_text(path).splitlines(), start=1)
        if any(text in line for text in FORBIDDEN_TEXTS) or PACKAGE_ADDRESS.search(line)
    ]
    assert not found, _listing(found)


@pytest.mark.parametrize("text", FORBIDDEN_TEXTS)
def test_the_search_for_addresses_does_not_find_itself(text: str) -> None:
    assert text not in _text(Path(__file__))


def test_every_locked_package_has_hashes() -> None:
    found = [block.split()[0] for block in _locked_blocks() if "--hash=sha256:" not in block]
    assert not found, _listing(found)


def test_the_lock_holds_every_dependency_of_the_project() -> None:
    config = _config()
    wanted = [*config["project"]["dependencies"], *config["dependency-groups"]["dev"]]
    locked = {block.split("==")[0] for block in _locked_blocks()}
    missing = {re.split(r"[<>=!~;\[ ]", name)[0] for name in wanted} - locked
    assert not missing, "run `make lock`: " + _listing(sorted(missing))


def test_tests_cannot_reach_other_machines() -> None:
    with pytest.raises(pytest.fail.Exception, match="tried to look up"):
        socket.create_connection(("192.0.2.1", 80), timeout=1)
    with socket.socket() as plain, pytest.raises(pytest.fail.Exception, match="tried to connect"):
        plain.connect(("192.0.2.1", 80))


# -- reading the tree -----------------------------------------------------------------------


@functools.cache
def _modules() -> tuple[Path, ...]:
    return tuple(sorted(SOURCE.rglob("*.py")))


@functools.cache
def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")


@functools.cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(_text(path), filename=str(path))


def _name(path: Path) -> str:
    return path.relative_to(SOURCE).as_posix()


def _room(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def _rooms_present() -> set[str]:
    return {_room(path) for path in _modules()} - {"__init__", "__main__"}


def _test_of(path: Path) -> Path:
    inside = path.relative_to(SOURCE)
    return TESTS / inside.parent / f"test_{inside.name}"


def _imports(path: Path) -> Iterator[tuple[int, str]]:
    for node in ast.walk(_tree(path)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)


def _root_imports(path: Path) -> Iterator[tuple[int, str]]:
    """Imports that run penstock/__init__.py for its names: `import penstock` and the like."""
    for line, module in _imports(path):
        parts = module.split(".")
        if parts[0] == "penstock" and len(parts) <= 2:
            yield line, parts[-1]


def _impurities(path: Path) -> Iterator[tuple[int, str]]:
    for node in ast.walk(_tree(path)):
        match node:
            case ast.AsyncFunctionDef() | ast.Await() | ast.AsyncFor() | ast.AsyncWith():
                yield node.lineno, "async"
            case ast.Global():
                yield node.lineno, "global"
            case ast.Call(func=ast.Name(id=name)) if name in IMPURE_FUNCTIONS:
                yield node.lineno, f"{name}()"
            case ast.Call(func=ast.Attribute(attr=name)) if name in IMPURE_METHODS:
                yield node.lineno, f"{name}()"
            case ast.Attribute(value=ast.Name(id="np" | "numpy"), attr="random"):
                yield node.lineno, "numpy.random"


def _config() -> dict[str, dict[str, list[str]]]:
    config: dict[str, dict[str, list[str]]] = tomllib.loads(_text(ROOT / "pyproject.toml"))
    return config


def _locked_blocks() -> list[str]:
    """One text per locked package: its first line and the hashes under it."""
    text = _text(ROOT / "requirements" / "dev.lock")
    return [block for block in re.split(r"\n(?=[a-z0-9])", text) if "==" in block]


def _tracked_files() -> list[Path]:
    """The files git knows or would add; without git, all files that are not generated."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    answer = subprocess.run(command, cwd=ROOT, capture_output=True, check=False)
    if answer.returncode == 0 and answer.stdout:
        paths = [ROOT / name for name in answer.stdout.decode().split("\0") if name]
    else:
        paths = [path for path in ROOT.rglob("*") if not _is_generated(path)]
    return [path for path in paths if path.is_file()]


def _is_generated(path: Path) -> bool:
    parts = path.relative_to(ROOT).parts
    hidden = any(part.startswith(".") and part not in {".ci", ".gitignore"} for part in parts)
    return hidden or any(part in FOLDERS_NOT_OURS for part in parts)


def _listing(found: list[str]) -> str:
    return "\n  ".join(["", *found])
