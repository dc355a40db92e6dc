"""How a bridge process logs in at its routers."""

from __future__ import annotations

import ssl
from typing import TypedDict

from oncewire.client.login import TokenSource


class RouterLogin(TypedDict):
    """As at ``connect()``.

    Attributes:
        ssl_context: for URLs that ask for TLS; None = Python's default.
        token: None = log in with what the URLs have.
        hostname: the virtual host; None = that of the user, or of the URL.
    """

    ssl_context: ssl.SSLContext | None
    token: TokenSource | None
    hostname: str | None
