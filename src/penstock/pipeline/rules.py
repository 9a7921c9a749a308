"""Which rules a pipeline works by: the same ones make the same of a batch, other ones may not.

A batch that is done again publishes under the numbers it had, and the broker drops what it knows.
That is exact as long as it says the same. Rules that changed in between may say something else
under the same number; hence they are told apart, and what they say is published anew.
"""

import sys
from collections.abc import Iterable
from functools import cache, partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import msgspec
from xxhash import xxh3_64_hexdigest, xxh3_128_hexdigest

from penstock.pipeline.datasets.dataset import Dataset
from penstock.pipeline.settings import Pipeline
from penstock.vocabulary.message import Message

HEX_DIGITS: Final = 12
OWN: Final = "penstock."
"""Modules of this package are known by its version."""


def fingerprint(pipeline: Pipeline) -> str:
    """What tells the rules of a pipeline from others: version, dataset, its modules, limits.

    What the modules of a dataset import is not looked at.
    """
    dataset = pipeline.dataset
    said = [
        _version(), dataset.name, _shape(dataset), str(dataset.schema),
        [_text(each) for each in _modules(dataset)], msgspec.to_builtins(pipeline.limits),
    ]  # fmt: skip
    return xxh3_64_hexdigest(msgspec.json.encode(said, order="sorted"))[:HEX_DIGITS]


def publisher_apart(name: str, rules: str, said: Iterable[Message]) -> str:
    """The publisher of a batch that is done again under other rules than it was begun with.

    It is made of the messages as well: saying them again is a repeat, saying others never is.
    """
    digest = xxh3_128_hexdigest(msgspec.msgpack.encode([(m.key, m.headers, m.body) for m in said]))
    return f"{name}/{rules}/{digest}"


def _shape(dataset: Dataset) -> list[Any]:
    leaves = [(path, repr(field)) for path, field in dataset.shape.leaves]
    return [leaves, dataset.shape.equal_lengths]


def _modules(dataset: Dataset) -> list[ModuleType]:
    """Those that somebody else wrote, in the order of their names."""
    names = {_module_of(each) for each in (dataset.rows, dataset.find, dataset.limits)}
    return [sys.modules[each] for each in sorted(names) if each in sys.modules]


def _module_of(given: Any) -> str:
    while isinstance(given, partial):
        given = given.func
    name = str(getattr(given, "__module__", ""))
    return "" if f"{name}.".startswith(OWN) else name


@cache
def _text(module: ModuleType) -> str:
    """Its source, as it was when it was asked for first: a module is loaded once as well."""
    place = getattr(module, "__file__", None)
    try:
        return "" if place is None else xxh3_128_hexdigest(Path(place).read_bytes())
    except OSError:  # from a zip, for one
        return ""


@cache
def _version() -> str:
    try:
        return version("penstock")
    except PackageNotFoundError:
        return ""
