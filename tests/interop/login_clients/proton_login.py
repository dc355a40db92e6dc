"""Logs in with python-qpid-proton as the variables LOGIN_* say; prints `opened` or why not."""

import os
import sys
from typing import Any

from proton import SSLDomain
from proton.handlers import MessagingHandler
from proton.reactor import Container


class Login(MessagingHandler):  # type: ignore[misc]  # proton has no types
    def on_start(self, event: Any) -> None:
        given = os.environ
        domain = SSLDomain(SSLDomain.MODE_CLIENT)
        domain.set_trusted_ca_db(given["LOGIN_CA"])
        domain.set_peer_authentication(SSLDomain.VERIFY_PEER_NAME)
        if given["LOGIN_MECHANISM"] == "EXTERNAL":
            domain.set_credentials(given["LOGIN_CERT"], given["LOGIN_KEY"], None)
        event.container.connect(
            f"amqps://localhost:{given['LOGIN_PORT']}",
            ssl_domain=domain,
            reconnect=False,
            allowed_mechs=given["LOGIN_MECHANISM"],
            user=given["LOGIN_USER"] or None,
            password=given["LOGIN_SECRET"] or None,
        )

    def on_connection_opened(self, event: Any) -> None:
        sys.stdout.write("opened\n")
        event.connection.close()

    def on_transport_error(self, event: Any) -> None:
        sys.stdout.write(f"refused {event.transport.condition}\n")


Container(Login()).run()
