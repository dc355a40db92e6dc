"""A stock client of python-qpid-proton, as its own examples are written: reconnects, re-sends what was not accepted.

    proton_client.py send|receive URL,URL TOPIC COUNT OUTPUT

Writes one JSON line per event to OUTPUT. A sender ends when messages number 1 to COUNT were accepted, a receiver when
it is killed. They know nothing of unsettled maps, capabilities or sessions.
"""

from __future__ import annotations

import json
import sys
from typing import Any, TextIO

from proton import Message
from proton.handlers import MessagingHandler
from proton.reactor import Backoff, Container, DurableSubscription

WINDOW = 300
HEARTBEAT_S = 2


class Sender(MessagingHandler):  # type: ignore[misc]  # proton has no types
    def __init__(self, urls: list[str], topic: str, count: int, output: TextIO) -> None:
        super().__init__()
        self.urls, self.topic, self.count, self.output = urls, topic, count, output
        self.next = 1
        self.unaccepted: dict[Any, int] = {}
        self.to_repeat: list[int] = []
        self.accepted = 0
        self.sender: Any = None

    def on_start(self, event: Any) -> None:
        connection = event.container.connect(
            urls=self.urls, heartbeat=HEARTBEAT_S, reconnect=Backoff(initial=0.05, max_delay=0.5)
        )
        self.sender = event.container.create_sender(connection, self.topic)

    def on_sendable(self, event: Any) -> None:
        while event.sender.credit and len(self.unaccepted) < WINDOW:
            if self.to_repeat:
                number = self.to_repeat.pop(0)
            elif self.next <= self.count:
                number, self.next = self.next, self.next + 1
            else:
                return
            delivery = event.sender.send(Message(id=f"{number}", body=f"row {number}"))
            self.unaccepted[delivery.tag] = number
            self.write(sent=number)

    def on_accepted(self, event: Any) -> None:
        number = self.unaccepted.pop(event.delivery.tag, None)
        if number is not None:
            self.accepted += 1
            self.write(accepted=number)
        if self.accepted == self.count:
            event.connection.close()
        else:
            self.on_sendable(event)

    def on_released(self, event: Any) -> None:
        """No subscription, or the router is on its way out: the stock answer is to send again."""
        number = self.unaccepted.pop(event.delivery.tag, None)
        if number is not None:
            self.to_repeat.append(number)
            self.write(released=number)

    def on_disconnected(self, event: Any) -> None:
        self.to_repeat = sorted([*self.unaccepted.values(), *self.to_repeat])
        self.unaccepted.clear()
        self.write(disconnected=True)

    def write(self, **event: object) -> None:
        self.output.write(json.dumps(event) + "\n")
        self.output.flush()


class Receiver(MessagingHandler):  # type: ignore[misc]  # proton has no types
    def __init__(self, urls: list[str], topic: str, count: int, output: TextIO) -> None:
        super().__init__(prefetch=WINDOW)
        self.urls, self.topic, self.count, self.output = urls, topic, count, output

    def on_start(self, event: Any) -> None:
        connection = event.container.connect(
            urls=self.urls, heartbeat=HEARTBEAT_S, reconnect=Backoff(initial=0.05, max_delay=0.5)
        )
        # A subscription that outlives its router is asked for the way AMQP 1.0 has it: a durable terminus.
        event.container.create_receiver(
            connection, self.topic, name="stock-subscription", options=DurableSubscription()
        )

    def on_link_opened(self, event: Any) -> None:
        self.write(attached=True)

    def on_message(self, event: Any) -> None:
        number = int(event.message.id.rpartition("/")[2])
        body = event.message.body
        annotations = {str(key): value for key, value in (event.message.annotations or {}).items()}
        self.write(
            received=number,
            body=body if isinstance(body, str) else bytes(body).decode(),
            tag=bytes(annotations.get("x-opt-topic-tag", b"")).hex(),
            redelivered=bool(annotations.get("x-opt-topic-redelivered")),
            session=int(annotations.get("x-opt-topic-session", 0)),
        )

    def on_disconnected(self, event: Any) -> None:
        self.write(disconnected=True)

    def write(self, **event: object) -> None:
        self.output.write(json.dumps(event, default=str) + "\n")
        self.output.flush()


def main() -> None:
    role, urls, topic, count, path = sys.argv[1:]
    with open(path, "a", encoding="utf-8") as output:  # noqa: PTH123
        kind = Sender if role == "send" else Receiver
        container = Container(kind(urls.split(","), topic, int(count), output))
        container.container_id = f"stock-proton-{role}"
        container.run()


if __name__ == "__main__":
    main()
