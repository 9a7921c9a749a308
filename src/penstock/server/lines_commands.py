"""What each command of the line protocol does, except `pub`, which is gathered as it is read."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from penstock.broker.first_use import end_queue, has_queue
from penstock.server import lines_looking as looking
from penstock.server.lines_queue import ANONYMOUS, BEGINNING
from penstock.vocabulary import names
from penstock.vocabulary.errors import InvalidArgument
from penstock.wire import line_reply as say
from penstock.wire.line import Command, Verb
from penstock.wire.line_help import details, overview

if TYPE_CHECKING:
    from penstock.server.lines_connection import LineConnection


def do(client: "LineConnection", command: Command) -> None:
    """Does it, or begins to. Raises PenstockError, whose text is the reply."""
    _DOERS[command.verb](client, command)


def _subscribe(client: "LineConnection", command: Command) -> None:
    topic, listener = command.first, client.listener
    if topic not in client.queues:
        most = listener.settings.subscriptions_max
        if len(client.queues) >= most:
            raise InvalidArgument(f"one connection subscribes to {most} topics at most")
        queue = listener.new_queue(topic, client.client_id)
        queue.on_event, queue.on_closed = client.deliver, client.closed
        queue.join()
        client.queues[topic] = queue
    client.promise(say.subscribed(topic))


def _unsubscribe(client: "LineConnection", command: Command) -> None:
    topic = command.first
    listener = client.listener
    queue = client.queues.pop(topic, None)
    if queue is not None:
        queue.leave(is_clean=True)
        name = queue.subscription
    else:  # A client with a name may have subscribed through an earlier connection.
        name = BEGINNING + client.client_id
        if not has_queue(listener.broker, topic, name):
            client.outbox.reply(say.not_subscribed(topic))
            return

    def ended(dropped: int) -> bytes:
        listener.dropped_events += dropped
        return say.unsubscribed(topic)

    client.wait_for(ended, end_queue, listener.broker, topic, name)


def _settle(client: "LineConnection", command: Command) -> None:
    topic, id = command.first, command.second
    queue = client.queues.get(topic)
    if queue is None:
        why = f" (you are not subscribed to topic {say.printable(topic)})"
        client.outbox.reply(say.no_such_event(id, why))
        return
    flying = queue.take(id)
    if flying is None:
        client.outbox.reply(say.no_such_event(id))
    elif command.verb is Verb.ACK:
        client.ack(queue, flying, id)
    elif refused := queue.nack(flying):
        client.outbox.reply(say.not_settled(id, refused))
    else:
        client.promise(say.ok(id))


def _identify(client: "LineConnection", command: Command) -> None:
    name = command.first
    if name and name != client.client_id:
        if name.startswith(ANONYMOUS):
            raise InvalidArgument(f"a name cannot begin with {ANONYMOUS}; choose another")
        names.check_consumer(name)
        names.check_subscription(BEGINNING + name)
        if client.queues:
            raise InvalidArgument(
                f"you are subscribed as {client.client_id} already: say who you are before you "
                "subscribe, or unsubscribe first"
            )
        client.listener.rename(client, name)
    client.outbox.reply(say.ok(client.client_id))


def _peek(client: "LineConnection", command: Command) -> None:
    client.wait_for(bytes, looking.peek, client.listener.broker, command.first, command.second)


def _topics(client: "LineConnection", command: Command) -> None:
    client.wait_for(bytes, looking.topics, client.listener.broker, command.first)


def _stats(client: "LineConnection", _command: Command) -> None:
    own = {
        **client.listener.counts(),
        "you": client.client_id,
        "in_flight": {topic: queue.in_flight for topic, queue in client.queues.items()},
    }
    client.wait_for(bytes, looking.stats, client.listener.broker, own)


def _explain(client: "LineConnection", command: Command) -> None:
    topic, id = command.first, command.second
    queue = client.queues.get(topic)
    name = None if queue is None else queue.subscription
    held = {} if queue is None else queue.held_ids()
    client.wait_for(bytes, looking.explain, client.listener.broker, topic, name, id, held)


def _help(client: "LineConnection", command: Command) -> None:
    language = client.listener.language
    verb = language.verb(command.first) if command.first else None
    if command.first and verb is None:
        raise InvalidArgument(language.unknown(command.first))
    lines = overview(language) if verb is None else details(language, verb)
    client.outbox.reply(say.listing(lines))


def _quit(client: "LineConnection", _command: Command) -> None:
    client.end(say.text_line("bye"))


_DOERS: Final[dict[Verb, Callable[["LineConnection", Command], None]]] = {
    Verb.SUBSCRIBE: _subscribe,
    Verb.UNSUBSCRIBE: _unsubscribe,
    Verb.ACK: _settle,
    Verb.NACK: _settle,
    Verb.ID: _identify,
    Verb.PEEK: _peek,
    Verb.TOPICS: _topics,
    Verb.STATS: _stats,
    Verb.EXPLAIN: _explain,
    Verb.HELP: _help,
    Verb.QUIT: _quit,
}
