"""`mqtt://` and `tcp://`: MQTT 5, or 3.1.1 if the URL says so. A topic has the same name there.

    mqtt://[user[:password]@]host[:1883][?option=value]

    version=5|3.1.1     3.1.1 carries bodies only: headers, keys and absent bodies are refused
    qos=0|1|2           how publishes travel to the broker (1); 0: nobody confirms them
    dead=file:DIR       a store of ours for dead letters, which MQTT has no place for
    hold=TOPIC@NAME,…   durable subscriptions that are made when the client opens
    unheard=true        a publish that no subscription gets is no error
    client=NAME         in place of the host's name in client ids, for hosts without a lasting name
    session_s=SECONDS   how long the broker keeps the session of a consumer that is away (7 days)
    keepalive_s=SECONDS how often the connection is proved alive (30)

A consumer of a named subscription is a persistent session with a stable client id; subscriptions
of kind shared are `$share/NAME/FILTER`. The broker holds messages in sessions only, so that a
message nobody has subscribed to is refused. What MQTT cannot tell (which topics have settings,
which subscriptions exist and who consumes them) is written in retained messages below `$penstock/`.
"""

from typing import Final

PORT: Final = 1883
OPTIONS: Final[dict[str, type]] = {
    "version": str,
    "qos": str,
    "dead": str,
    "hold": str,
    "unheard": bool,
    "client": str,
    "session_s": float,
    "keepalive_s": float,
}
