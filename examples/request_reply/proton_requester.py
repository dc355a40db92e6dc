"""Asks with python-qpid-proton: the router makes an address for the answers.

    python examples/request_reply/proton_requester.py amqp://127.0.0.1:5672,amqp://127.0.0.1:5673 100

After a crash of its router the receiver has another address. The question that has no answer is asked again: the
responder may get it twice.
"""

from __future__ import annotations

import sys
from typing import Any

from proton import Message
from proton.handlers import MessagingHandler
from proton.reactor import Backoff, Container


class Requester(MessagingHandler):  # type: ignore[misc]  # proton has no types
    """Asks one question after the other."""

    def __init__(self, urls: list[str], count: int) -> None:
        super().__init__()
        self.urls, self.count, self.number = urls, count, 0
        self.questions: Any = None
        self.answers: Any = None

    def on_start(self, event: Any) -> None:
        """Connect to one router after the other."""
        backoff = Backoff(initial=0.05, max_delay=0.5)
        connection = event.container.connect(urls=self.urls, heartbeat=2, reconnect=backoff)
        self.questions = event.container.create_sender(connection, "doubles")
        self.answers = event.container.create_receiver(connection, None, dynamic=True)

    def on_link_opened(self, event: Any) -> None:
        """Also after each reconnect."""
        if event.receiver == self.answers:
            self.ask()

    def ask(self) -> None:
        """Ask for the double of the number."""
        address = self.answers.remote_source.address
        self.questions.send(Message(reply_to=address, correlation_id=str(self.number), body=str(self.number)))

    def on_released(self, event: Any) -> None:
        """Nobody answers yet."""
        event.container.schedule(0.2, self)

    def on_timer_task(self, event: Any) -> None:
        """Ask again."""
        self.ask()

    def on_message(self, event: Any) -> None:
        """An answer."""
        if event.message.correlation_id != str(self.number):
            return  # the answer to a question that was asked again
        print(f"{self.number}: {event.message.body}", flush=True)
        self.number += 1
        if self.number < self.count:
            self.ask()
        else:
            event.connection.close()


if __name__ == "__main__":
    Container(Requester(sys.argv[1].split(","), int(sys.argv[2]))).run()
