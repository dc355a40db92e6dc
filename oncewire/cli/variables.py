"""Environment variables of the command line: each is named here alone.

Settings of the router have variables, too, and the router refuses a misspelt one. It does not take a name of this
list for one, so whoever sets it for other commands can run a router in the same shell.
"""

from __future__ import annotations

URL = "ONCEWIRE_URL"
HTTP_URL = "ONCEWIRE_HTTP_URL"
CONTEXT = "ONCEWIRE_CONTEXT"
TOKEN_FILE = "ONCEWIRE_TOKEN_FILE"  # noqa: S105  (the name of a variable)
PASSWORD = "ONCEWIRE_PASSWORD"  # noqa: S105  (the name of a variable)
CA_FILE = "ONCEWIRE_CA_FILE"
CERT_FILE = "ONCEWIRE_CERT_FILE"
KEY_FILE = "ONCEWIRE_KEY_FILE"
QUEUE_STORE = "ONCEWIRE_QUEUE_STORE"
EDGE_STORE = "ONCEWIRE_EDGE_STORE"
CONFIG = "ONCEWIRE_CONFIG"

PURPOSE = {
    URL: "addresses of routers, for clients (AMQP)",
    HTTP_URL: "address of a router's HTTP, for operators",
    CONTEXT: "the context to work on",
    TOKEN_FILE: "file of the token to log in with",
    PASSWORD: "password of `--user`",
    CA_FILE: "authority of the routers' certificates",
    CERT_FILE: "certificate to show to routers",
    KEY_FILE: "key of that certificate",
    QUEUE_STORE: "store of `oncewire queue`; also the router's setting `queue_store`",
    EDGE_STORE: "store of `oncewire journal`; also the setting `edge.store` of an edge",
    CONFIG: "file of a router's settings, for `router`, `cluster` and `doctor`",
}
"""For people: what each of them names."""
