"""What the proofs counted, gathered from all test processes and printed when the run ends."""

from typing import Any

Value = int | set[bytes] | list[str]
"""A sum; fingerprints of which each counts once; or names."""


class Tally:
    """Lines of numbers that several tests add to."""

    def __init__(self) -> None:
        self._lines: dict[str, dict[str, Value]] = {}

    def add(self, line: str, **numbers: int) -> None:
        """Adds to the sums of a line."""
        for name, number in numbers.items():
            self._join(line, name, number)

    def count(self, line: str, name: str, fingerprints: set[bytes]) -> None:
        """Adds fingerprints, all of one length."""
        self._join(line, name, fingerprints)

    def name(self, line: str, name: str, names: list[str]) -> None:
        """Adds names to a list."""
        self._join(line, name, names)

    def _join(self, line: str, name: str, value: Value) -> None:
        row = self._lines.setdefault(line, {})
        known = row.get(name)
        if known is None:
            row[name] = value
        elif isinstance(known, set) and isinstance(value, set):
            known |= value
        else:
            row[name] = known + value  # type: ignore[operator]

    def dump(self) -> dict[str, dict[str, Any]]:
        """Plain values for another process: fingerprints become (length, bytes)."""
        return {
            line: {
                name: (len(next(iter(value), b"")), b"".join(value))
                if isinstance(value, set)
                else value
                for name, value in row.items()
            }
            for line, row in self._lines.items()
        }

    def load(self, lines: dict[str, dict[str, Any]]) -> None:
        """Adds what another process dumped."""
        for line, row in lines.items():
            for name, value in row.items():
                self._join(line, name, _cut(*value) if isinstance(value, tuple) else value)

    def lines(self) -> list[str]:
        """One line for each proof, for people and machines."""
        return [
            " ".join([line, *(f"{name}={_text(value)}" for name, value in row.items())])
            for line, row in sorted(self._lines.items())
        ]


def _cut(length: int, data: bytes) -> set[bytes]:
    return {data[at : at + length] for at in range(0, len(data), length or 1)}


def _text(value: Value) -> str:
    if isinstance(value, list):
        return f"[{', '.join(value)}]"
    return str(len(value) if isinstance(value, set) else value)
