"""What the proofs counted, gathered from all test processes and printed when the run ends."""

from typing import Any


class Tally:
    """Lines of numbers: counts are added up, sets of fingerprints are joined and counted."""

    def __init__(self) -> None:
        self._lines: dict[str, dict[str, Any]] = {}

    def add(self, line: str, **numbers: int) -> None:
        """Adds to the counts of a line."""
        row = self._lines.setdefault(line, {})
        for name, number in numbers.items():
            row[name] = row.get(name, 0) + number

    def join(self, line: str, name: str, fingerprints: set[bytes]) -> None:
        """Adds fingerprints, all of one length, of which each counts once."""
        self._lines.setdefault(line, {}).setdefault(name, set()).update(fingerprints)

    def load(self, lines: dict[str, dict[str, Any]]) -> None:
        """Adds what another process dumped."""
        for line, row in lines.items():
            for name, value in row.items():
                if isinstance(value, int):
                    self.add(line, **{name: value})
                else:
                    size, data = value
                    found = {data[at : at + size] for at in range(0, len(data), size or 1)}
                    self.join(line, name, found)

    def dump(self) -> dict[str, dict[str, Any]]:
        """Plain values for another process."""
        return {
            line: {name: _plain(value) for name, value in row.items()}
            for line, row in self._lines.items()
        }

    def lines(self) -> list[str]:
        """One line for each proof, for people and machines."""
        return [
            " ".join([line, *(f"{name}={_number(value)}" for name, value in row.items())])
            for line, row in sorted(self._lines.items())
        ]


def _plain(value: int | set[bytes]) -> Any:
    if isinstance(value, int):
        return value
    return [len(next(iter(value), b"")), b"".join(value)]


def _number(value: int | set[bytes]) -> int:
    return value if isinstance(value, int) else len(value)
