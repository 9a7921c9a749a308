"""Datasets by name: the three of the house, installed ones, a module, or a file.

pms, mppt, inverter            built in
buoy                           an installed package offers it as entry point `penstock.datasets`
my_company.readings.buoy       a module that holds DATASET
./datasets/buoy.py             a file that does
"""

import re
import sys
from collections.abc import Callable
from difflib import get_close_matches
from functools import cache, partial
from importlib import import_module
from importlib.metadata import entry_points
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any, Final

from xxhash import xxh3_64_hexdigest

from penstock.pipeline.datasets.dataset import Dataset
from penstock.pipeline.datasets.trying import wrong_with
from penstock.vocabulary.errors import InvalidArgument

BUILT_IN: Final = ("pms", "mppt", "inverter")
GROUP: Final = "penstock.datasets"
_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,63}", re.ASCII)


@cache
def find(name: str) -> Dataset:
    """The dataset. Raises InvalidArgument, saying what was looked for and where."""
    if name in BUILT_IN:
        return _checked(import_module(f"penstock.pipeline.datasets.{name}"), name)
    if name.endswith(".py"):
        return _tried(_checked(_from_file(name), name), name)
    for point in entry_points(group=GROUP, name=name):
        return _tried(_checked(_loaded(point.load, name), f"entry point {name}"), name)
    if "." in name:
        return _tried(_checked(_loaded(partial(import_module, name), name), name), name)
    known = [*BUILT_IN, *(point.name for point in entry_points(group=GROUP))]
    close = get_close_matches(name, known, n=1)
    hint = f"did you mean {close[0]!r}?" if close else f"known: {', '.join(known)}"
    raise InvalidArgument(f"there is no dataset {name!r}; {hint}")


def known() -> list[str]:
    """The names of built-in and installed datasets."""
    return [*BUILT_IN, *sorted({point.name for point in entry_points(group=GROUP)})]


def _loaded(load: Callable[[], Any], name: str) -> Any:
    """What a module of somebody else's gives, whatever may happen in it."""
    try:
        return load()
    except ModuleNotFoundError as error:
        raise InvalidArgument(
            f"dataset {name!r}: there is no module {error.name!r}; give a module that can be "
            "imported, a file, or the name of an installed dataset"
        ) from error
    except Exception as error:
        raise InvalidArgument(f"dataset {name!r} cannot be loaded: {error!r}") from error


def _from_file(path: str) -> Any:
    place = Path(path).resolve()
    if not place.is_file():
        raise InvalidArgument(f"dataset {path!r}: there is no such file")
    # A name made of the place: two files of one name do not meet, and workers find it again.
    name = f"penstock_dataset_{xxh3_64_hexdigest(str(place).encode())}"
    if name in sys.modules:
        return sys.modules[name]
    spec = spec_from_file_location(name, place)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        raise InvalidArgument(f"dataset {path!r} cannot be loaded: {error!r}") from error
    return module


def _checked(found: Any, where: str) -> Dataset:
    dataset = found if isinstance(found, Dataset) else getattr(found, "DATASET", None)
    if not isinstance(dataset, Dataset):
        raise InvalidArgument(f"{where} holds no dataset: it needs a Dataset named DATASET")
    if not _NAME.fullmatch(dataset.name):
        raise InvalidArgument(
            f"dataset {dataset.name!r} of {where}: a name has lower case letters, digits and _"
        )
    return dataset


def _tried(dataset: Dataset, where: str) -> Dataset:
    wrong = wrong_with(dataset)
    if wrong is not None:
        raise InvalidArgument(f"dataset {dataset.name!r} of {where} cannot be used: {wrong}")
    return dataset
