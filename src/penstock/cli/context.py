"""`penstock context`: names for brokers, and which of them is used when nothing else is said."""

from argparse import ArgumentParser, Namespace

from penstock.cli import contexts
from penstock.cli.command import Command, Group, nothing
from penstock.cli.contexts import Contexts
from penstock.cli.output import Output
from penstock.cli.parser import BadUsage, suggestion
from penstock.vocabulary.credentials import without_credentials


def _add_name(parser: ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="the context")


def _add_add(parser: ArgumentParser) -> None:
    _add_name(parser)
    parser.add_argument("target", metavar="URL", help="file:DIR, penstock://HOST:PORT …")
    parser.add_argument("--use", action="store_true", help="use it from now on")


def run_add(arguments: Namespace, output: Output) -> int:
    """Adds or replaces a context; the first one is used at once."""
    from penstock.drivers import check_url

    name = contexts.check_name(arguments.name)
    check_url(arguments.target)
    known = contexts.read()
    is_first = not known.urls
    known.urls[name] = arguments.target
    if arguments.use or is_first:
        known.current = name
    contexts.write(known)
    used = ", used from now on" if known.current == name else ""
    output.notice(f"context {name}: {without_credentials(arguments.target)}{used}")
    return _shown(known, output)


def run_use(arguments: Namespace, output: Output) -> int:
    """Makes a context the one that is used when nothing else is said."""
    known = contexts.read()
    find(known, arguments.name)
    known.current = arguments.name
    contexts.write(known)
    output.notice(f"context {arguments.name} is used from now on")
    return _shown(known, output)


def run_remove(arguments: Namespace, output: Output) -> int:
    """Forgets a context; the broker it names is not touched."""
    known = contexts.read()
    find(known, arguments.name)
    del known.urls[arguments.name]
    if known.current == arguments.name:
        known.current = None
        output.notice("no context is used from now on")
    contexts.write(known)
    return _shown(known, output)


def run_list(_arguments: Namespace, output: Output) -> int:
    """Every context; a star marks the one that is used."""
    known = contexts.read()
    if output.is_json:
        return _shown(known, output)
    if not known.urls:
        output.notice("there are no contexts; add one: penstock context add NAME URL")
    else:
        output.table(
            ["", "NAME", "URL"],
            [
                ("*" if name == known.current else "", name, without_credentials(url))
                for name, url in sorted(known.urls.items())
            ],
        )
    return 0


def find(known: Contexts, name: str) -> str:
    """The URL of a context. Raises BadUsage with the nearest name."""
    if name not in known.urls:
        hint = suggestion(name, sorted(known.urls)) if known.urls else "there are none"
        raise BadUsage(f"there is no context {name!r}; {hint}", "try: penstock context list")
    return known.urls[name]


def _shown(known: Contexts, output: Output) -> int:
    if output.is_json:
        urls = {name: without_credentials(url) for name, url in sorted(known.urls.items())}
        output.document({"current": known.current, "contexts": urls})
    return 0


GROUP = Group(
    "context",
    "names for brokers, and which one is used",
    (
        Command(
            "add",
            "name a broker",
            "context add shop penstock://127.0.0.1:8001\ncontext add notes file:./notes --use",
            _add_add,
            run_add,
            details="An existing name gets the new URL. The first context is used at once.",
        ),
        Command("use", "choose the context that is used", "context use shop", _add_name, run_use),
        Command("list", "every context", "context list\ncontext list --json", nothing, run_list),
        Command("remove", "forget a context", "context remove shop", _add_name, run_remove),
    ),
)
