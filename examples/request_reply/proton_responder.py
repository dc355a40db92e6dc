"""Answers with python-qpid-proton: one sender without an address for the answers to everybody.

    python examples/request_reply/proton_responder.py amqp://127.0.0.1:5672,amqp://127.0.0.1:5673

It gets each request at least once, and accepts it when the answer is on its way.
"""

from __future__ import annotations

import sys
from typing import Any

from proton import Message
from proton.handlers import MessagingHandler
from proton.reactor import Backoff, Container


class Responder(MessagingHandler):  # type: ignore[misc]  # proton has no types
    """Doubles numbers."""

    def __init__(self, urls: list[str]) -> None:
        super().__init__()
        self.urls = urls
        self.answers: Any = None

    def on_start(self, event: Any) -> None:
        """Connect to one router after the other."""
        backoff = Backoff(initial=0.05, max_delay=0.5)
        connection = event.container.connect(urls=self.urls, heartbeat=2, reconnect=backoff)
        event.container.create_receiver(connection, "doubles")
        self.answers = event.container.create_sender(connection, None)

    def on_link_opened(self, event: Any) -> None:
        """Also after each reconnect."""
        if event.receiver:
            print("ready", flush=True)

    def on_message(self, event: Any) -> None:
        """A request."""
        request = event.message
        body = str(2 * int(request.body))
        self.answers.send(Message(address=request.reply_to, correlation_id=request.correlation_id, body=body))

    def on_rejected(self, event: Any) -> None:
        """Whoever asked is gone, and so is its address; or the request named none."""
        print(f"not sent: {event.delivery.remote.condition}", flush=True)


if __name__ == "__main__":
    Container(Responder(sys.argv[1].split(","))).run()
