"""A stock console of python-qpid-proton at `$management`: requests from the command line, answers as JSON lines.

    proton_management.py URL REQUEST...

A request is a JSON object {"properties": {...}, "body": {...}}. It knows nothing of Oncewire.
"""

from __future__ import annotations

import json
import sys

from proton import Message
from proton.utils import BlockingConnection, SyncRequestResponse

TIMEOUT_S = 20


def main() -> None:
    url, *requests = sys.argv[1:]
    connection = BlockingConnection(url, timeout=TIMEOUT_S)
    client = SyncRequestResponse(connection, "$management")
    for text in requests:
        request = json.loads(text)
        answer = client.call(Message(properties=request["properties"], body=request.get("body", {})))
        sys.stdout.write(json.dumps({"properties": answer.properties, "body": answer.body}, default=str) + "\n")
    connection.close()


if __name__ == "__main__":
    main()
