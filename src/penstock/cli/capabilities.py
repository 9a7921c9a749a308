"""`penstock capabilities`: what each kind of URL can do, or what this one can."""

from argparse import ArgumentParser, Namespace
from typing import Any

from penstock.cli.command import Command
from penstock.cli.output import Output
from penstock.drivers import capabilities


def add(parser: ArgumentParser) -> None:
    """Adds the arguments of this command."""
    parser.add_argument(
        "broker", nargs="?", metavar="URL", help="only this broker, which is asked; else all kinds"
    )


async def run(arguments: Namespace, output: Output) -> int:
    """Prints the matrix."""
    if arguments.broker is None:
        return _show_all(output)
    import penstock

    async with penstock.connect(arguments.broker) as client:
        can = client.capabilities
    cells = capabilities.cells_of(can)
    if output.is_json:
        output.document(
            {
                "scheme": can.scheme,
                "durability": can.durability.value,
                "kinds": [kind.value for kind in can.kinds],
                "qos": list(can.qos),
                "message_bytes_max": can.message_bytes_max,
                "cells": {row: _cell(cell) for row, cell in cells.items()},
            }
        )
        return 0
    output.pairs(
        {
            "scheme": can.scheme,
            "confirms at": can.durability.value,
            "kinds": ", ".join(kind.value for kind in can.kinds),
            "QoS": ", ".join(map(str, can.qos)),
            "largest message": f"{can.message_bytes_max:,} bytes",
        }
    )
    output.say()
    output.table(
        ["CAPABILITY", "", "NOTE"],
        [[capabilities.ROWS[row], cell.support.value, cell.note] for row, cell in cells.items()],
    )
    _legend(output)
    return 0


def _show_all(output: Output) -> int:
    if output.is_json:
        output.document(
            {
                scheme: {
                    "confirms at": capabilities.LEVELS[scheme],
                    "cells": {row: _cell(cell) for row, cell in cells.items()},
                }
                for scheme, cells in capabilities.MATRIX.items()
            }
        )
        return 0
    output.table(
        ["CAPABILITY", *(scheme.upper() for scheme in capabilities.SCHEMES)],
        [
            [title, *(capabilities.MATRIX[s][row].support.value for s in capabilities.SCHEMES)]
            for row, title in capabilities.ROWS.items()
        ],
    )
    output.say()
    output.pairs(capabilities.LEVELS)
    _legend(output)
    return 0


def _cell(cell: capabilities.Cell) -> dict[str, Any]:
    return {"support": cell.support.value, "note": cell.note}


def _legend(output: Output) -> None:
    output.say()
    output.say("N native   E emulated by the client")
    output.say("R not there; refused by name where a program asks for it")


COMMAND = Command(
    "capabilities",
    "what each kind of URL can do, or what this one can",
    "capabilities\ncapabilities nats://127.0.0.1:4222\ncapabilities redis://127.0.0.1 --json",
    add,
    run,
)
