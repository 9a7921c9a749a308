"""How Arrow is used in processes that are ours alone."""

import sys

import pyarrow as pa


class _Hidden:
    """A finder for which there is no pandas."""

    @staticmethod
    def find_spec(name: str, _path: object = None, _target: object = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError("pandas is left alone", name=name)


def leave_pandas_alone() -> None:
    """Keeps pyarrow from importing pandas, which costs a second or more and is not needed here.

    At the first array it makes, pyarrow looks whether there is pandas. Told that there is none, it
    looks again when somebody asks for a pandas object, so nothing is lost. Only for processes that
    run no code of others: there, a Series would no longer be seen for what it is.
    """
    if "pandas" in sys.modules:
        return
    sys.meta_path.insert(0, _Hidden)
    try:
        pa.array([""])
    finally:
        sys.meta_path.remove(_Hidden)
