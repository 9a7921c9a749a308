"""Where a server's settings come from: flag, environment, file, default, in this order.

A name nobody knows is an error that says where it stands and which name is nearest; so is a value
of the wrong kind. Everything wrong is found in one go.
"""

import tomllib
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final, NamedTuple, get_type_hints

import msgspec

from penstock.server.settings import TABLES, Settings, check
from penstock.vocabulary.errors import InvalidConfiguration

FILE: Final = "penstock.toml"
PREFIX: Final = "PENSTOCK_"
FILE_VARIABLE: Final = "PENSTOCK_CONFIG"
_FOREIGN: Final = frozenset({"pipeline", "spark"})
"""Tables of the same file that belong to others."""
_FILE_BYTES_MAX: Final = 1 << 20
DEFAULT: Final = "default"

Flags = Mapping[str, Any]
"""`table.key` → value, as the command line gives it."""


class Value(NamedTuple):
    """A setting and where it comes from."""

    value: Any
    source: str


class Loaded(NamedTuple):
    """Settings that were found right."""

    settings: Settings
    values: dict[str, Value]
    """`table.key` → value and source, every one of them."""
    path: Path | None
    """The file that was read."""


def variable_of(table: str, key: str) -> str:
    """The environment variable of a setting: PENSTOCK_SERVE_PORT."""
    return f"{PREFIX}{table}_{key}".upper()


def load(path: Path | None, environ: Mapping[str, str], flags: Flags | None = None) -> Loaded:
    """Finds, checks and orders all settings. Raises InvalidConfiguration with all its `problems`.

    Without a path, $PENSTOCK_CONFIG names the file; or `penstock.toml` here, if there is one.
    """
    problems: list[str] = []
    found, path = _from_file(path, environ, problems)
    found |= _from_environment(environ, problems)
    for name, value in (flags or {}).items():
        table, _, key = name.partition(".")
        option = f"--{key.replace('_', '-')}"
        _put(found, problems, table, key, value, option)
    _refuse(problems)
    tables = {
        table: kind(
            **{
                key: found[f"{table}.{key}"].value
                for key in kind.__struct_fields__
                if f"{table}.{key}" in found
            }
        )
        for table, kind in TABLES.items()
    }
    settings = Settings(**tables)
    _refuse([_at(problem, found) for problem in check(settings)])
    values = {
        f"{table}.{key}": found.get(f"{table}.{key}")
        or Value(getattr(getattr(settings, table), key), DEFAULT)
        for table, kind in TABLES.items()
        for key in kind.__struct_fields__
    }
    return Loaded(settings, values, path)


def _refuse(problems: list[str]) -> None:
    if problems:
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        raise InvalidConfiguration(problems[0] + more, problems=problems)


def _at(problem: str, found: dict[str, Value]) -> str:
    """A problem `[table] key: …` with the source of that setting before it."""
    name = problem.partition(":")[0].replace("[", "").replace("] ", ".")
    return f"{found[name].source}: {problem}" if name in found else problem


def _from_file(
    path: Path | None, environ: Mapping[str, str], problems: list[str]
) -> tuple[dict[str, Value], Path | None]:
    is_named = path is not None or bool(environ.get(FILE_VARIABLE))
    path = path or Path(environ.get(FILE_VARIABLE) or FILE)
    found: dict[str, Value] = {}
    document = _document(path, problems, is_named=is_named)
    if document is None:
        return found, None
    for table, content in document.items():
        if table == "url":
            if not isinstance(content, str):
                problems.append(f"{path}: `url` must be text, not {content!r}")
        elif table in TABLES:
            if not isinstance(content, dict):
                problems.append(f"{path}: `{table}` is a table: write [{table}]")
                continue
            for key, value in content.items():
                _put(found, problems, table, key, value, str(path))
        elif table not in _FOREIGN:
            known = ["url", *TABLES, *_FOREIGN]
            what = f"table [{table}]" if isinstance(content, dict) else f"key `{table}`"
            problems.append(f"{path}: there is no {what}{_hint(table, known, content)}")
    return found, path


def _document(path: Path, problems: list[str], *, is_named: bool) -> dict[str, Any] | None:
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        if is_named:
            problems.append(f"there is no configuration file {path}")
        return None
    except OSError as error:
        problems.append(f"{path} cannot be read: {error.strerror}")
        return None
    if len(data) > _FILE_BYTES_MAX:
        problems.append(f"{path} is larger than a configuration can be")
        return None
    try:
        return tomllib.loads(data.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        problems.append(f"{path} is not valid TOML: {error}")
        return None


def _from_environment(environ: Mapping[str, str], problems: list[str]) -> dict[str, Value]:
    known = {
        variable_of(table, key): (table, key)
        for table, kind in TABLES.items()
        for key in kind.__struct_fields__
    }
    ours = tuple(f"{PREFIX}{table}_".upper() for table in TABLES)
    found: dict[str, Value] = {}
    for variable in sorted(environ):
        if variable in known:
            table, key = known[variable]
            _put(found, problems, table, key, environ[variable], f"${variable}")
        elif variable.startswith(ours):
            hint = _hint(variable, known)
            problems.append(f"there is no environment variable {variable}{hint}")
    return found


def _put(
    found: dict[str, Value], problems: list[str], table: str, key: str, value: Any, source: str
) -> None:
    kind = TABLES[table]
    where = f"{source}: " if not source.startswith(("-", "$")) else ""
    if key not in kind.__struct_fields__:
        hint = _hint(key, kind.__struct_fields__)
        problems.append(f"{where}[{table}] has no key `{key}`{hint}")
        return
    name = f"[{table}] {key}" if where else source
    try:
        checked = _converted(_hints(kind)[key], value, is_text=not where)
        if table != "serve" and isinstance(checked, int | float) and checked <= 0:
            raise msgspec.ValidationError  # noqa: TRY301 - limits are all above 0
    except msgspec.ValidationError:
        wanted = _wanted(msgspec.inspect.type_info(_hints(kind)[key]))
        problems.append(f"{where}{name} must be {wanted}, not {value!r}")
        return
    found[f"{table}.{key}"] = Value(checked, source)


def _hints(kind: type[Any]) -> dict[str, Any]:
    return get_type_hints(kind, include_extras=True)


def _converted(hint: Any, value: Any, *, is_text: bool) -> Any:
    """A value of the type a setting has; texts of environment and flags are read as such."""
    if is_text and isinstance(value, str):
        kind = msgspec.inspect.type_info(hint).__class__
        if kind is msgspec.inspect.DictType:
            value = _pairs(value)
        elif kind is msgspec.inspect.VarTupleType:
            value = [each.strip() for each in value.split(",") if each.strip()]
        elif value.isdigit():
            try:
                return msgspec.convert(int(value), hint)
            except msgspec.ValidationError:
                pass
    return msgspec.convert(value, hint, strict=not is_text)


def _pairs(text: str) -> dict[str, list[str]]:
    """`publish=p pub,subscribe=s` as a table of lists."""
    pairs = [each.partition("=") for each in text.split(",") if each.strip()]
    if not all(mark for _, mark, _ in pairs):
        raise msgspec.ValidationError(text)
    return {name.strip(): value.split() for name, _, value in pairs}


def _wanted(info: msgspec.inspect.Type) -> str:
    """What a setting may be, in words."""
    match info:
        case msgspec.inspect.UnionType(types=types):
            return " or ".join(_wanted(each) for each in types)
        case msgspec.inspect.LiteralType(values=values):
            return " or ".join(f"{value!r}" for value in values)
        case msgspec.inspect.IntType(ge=low, le=high):
            return f"a whole number{_bounds(low, high)}"
        case msgspec.inspect.FloatType(ge=low, le=high):
            return f"a number{_bounds(low, high)}"
        case msgspec.inspect.VarTupleType():
            return "a list of texts"
        case msgspec.inspect.BoolType():
            return "true or false"
        case msgspec.inspect.DictType():
            return "a table of lists of words"
        case _:
            return "text that is not empty"


def _bounds(low: float | None, high: float | None) -> str:
    return " above 0" if low is None or high is None else f" from {low} to {high}"


def _hint(name: str, known: Any, content: Any = None) -> str:
    close = get_close_matches(name, list(known), n=1)
    if close:
        return f"; did you mean {close[0]}?"
    if content is not None and not isinstance(content, dict):
        for table, kind in TABLES.items():
            if name in kind.__struct_fields__:
                return f"; it belongs under [{table}]"
    return f"; there are: {', '.join(known)}"
