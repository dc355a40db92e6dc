"""A stock client of python-qpid-proton with a selector: proton_selector.py URL TOPIC COUNT."""

from __future__ import annotations

import sys

from proton.reactor import Selector
from proton.utils import BlockingConnection


def main(url: str, topic: str, count: str) -> None:
    connection = BlockingConnection(url, timeout=20)
    receiver = connection.create_receiver(topic, credit=10, options=Selector("color = 'red' AND number > 1"))
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    for _ in range(int(count)):
        message = receiver.receive(20)
        receiver.accept()
        sys.stdout.write(f"chosen {message.properties['number']}\n")
        sys.stdout.flush()
    connection.close()


main(*sys.argv[1:])
