"""A question to the tables, as anybody may ask it: SQL over Delta, by DuckDB."""

from pathlib import Path
from typing import Any, Final, NamedTuple

from penstock.cli.demo.plant import DATASETS

HOURS: Final = """\
SELECT hour(time_event + INTERVAL 7 HOUR) AS hour, count(*) AS readings,
       sum(list_sum([each.watts FOR each IN pv])) / 12000 AS kwh
FROM mppt_monitoring GROUP BY hour ORDER BY hour"""
PACKS: Final = """\
SELECT pms_id, pack_id, count(*) AS readings, min(pack.vcl) AS lowest_cell,
       max(pack.vch) AS highest_cell, round(avg(pack.watts)) AS watts
FROM pms_monitoring GROUP BY ALL ORDER BY readings DESC, pms_id, pack_id LIMIT 5"""


class Answer(NamedTuple):
    """Columns and rows."""

    columns: list[str]
    rows: list[tuple[Any, ...]]


def ask(warehouse: Path, question: str) -> Answer:
    """The answer of DuckDB to a question about the three tables."""
    import duckdb
    from deltalake import DeltaTable

    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        for name in DATASETS:
            table = DeltaTable(str(warehouse / "analytics" / f"{name}_monitoring"))
            connection.register(f"{name}_monitoring", table.to_pyarrow_dataset())
        found = connection.sql(question)
        return Answer(list(found.columns), found.fetchall())
