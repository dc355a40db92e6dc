"""A sender of python-qpid-proton that closes its connection right behind its sends, as short programs do.

    proton_burst.py URL TOPIC at-most-once|at-least-once

It sends what its first credit allows, and prints how many that are.
"""

from __future__ import annotations

import sys
from typing import Any

from proton import Message
from proton.handlers import MessagingHandler
from proton.reactor import AtLeastOnce, AtMostOnce, Container

OPTIONS = {"at-most-once": AtMostOnce, "at-least-once": AtLeastOnce}


class Burst(MessagingHandler):  # type: ignore[misc]  # proton has no types
    def __init__(self, url: str, topic: str, guarantee: str) -> None:
        super().__init__()
        self.url, self.topic, self.guarantee = url, topic, guarantee
        self.sent = 0

    def on_start(self, event: Any) -> None:
        connection = event.container.connect(self.url, reconnect=False)
        event.container.create_sender(connection, self.topic, options=OPTIONS[self.guarantee]())

    def on_sendable(self, event: Any) -> None:
        if self.sent:
            return  # it hears of credit again behind its close
        while event.sender.credit:
            self.sent += 1
            event.sender.send(Message(id=f"{self.sent}", body=f"row {self.sent}"))
        event.connection.close()


if __name__ == "__main__":
    burst = Burst(*sys.argv[1:])
    Container(burst).run()
    sys.stdout.write(f"{burst.sent}\n")
