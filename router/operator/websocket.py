"""Where AMQP clients come in by WebSocket: one path of the HTTP listener. Behind it all is as behind the TCP listener.

HTTP's logins do not count here: clients log in with SASL. A web page may open a WebSocket to any address that its
reader can reach, so browsers say which site it is of; see `Access.check_page`.
"""

from __future__ import annotations

from aiohttp import web

from oncewire.transport.gate import ListenerGate
from oncewire.transport.tls import SHUTDOWN_S
from oncewire.transport.websocket import PASSED_ON_BYTES, SUBPROTOCOL, WebSocketTransport, pass_on_frames
from router.clients.listener import ClientListener, Entrance
from router.operator.access import Access, AccessDenied, Route, is_forwarded, refusal
from router.process.logs import EventLog, RouterEvent
from router.settings.config import RouterConfig

PATH = "/amqp"


class WebSocketEntrance:
    """The path of one router."""

    def __init__(
        self, config: RouterConfig, listener: ClientListener, access: Access, log: EventLog, gate: ListenerGate
    ) -> None:
        """Take clients for `listener`; `access` knows this router's names, `gate` lets them in at the HTTP listener."""
        self._config = config
        self._listener = listener
        self._access = access
        self._log = log
        self._gate = gate

    def routes(self) -> tuple[Route, ...]:
        """What HTTP serves; nothing where the settings do not say so."""
        return (Route("GET", PATH, self._serve, None),) if self._config.http_websocket else ()

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        websocket = web.WebSocketResponse(
            protocols=(SUBPROTOCOL,), timeout=SHUTDOWN_S, autoping=False, compress=False, max_msg_size=PASSED_ON_BYTES
        )
        peername = f"{_place(request)} (a proxy)" if is_forwarded(request) else None
        host = "" if peername else self._config.http_host
        entrance = Entrance(
            host, self._config.http_tls, is_websocket=True, on_open=lambda: self._gate.release(request.protocol)
        )
        try:
            self._check(request, websocket, entrance)
        except AccessDenied as denied:
            self._log.event(RouterEvent.CLIENT_REFUSED, peer=request.remote or "", why=str(denied))
            return refusal(denied.status, str(denied), denied.fix)
        below = request.transport
        if below is not None:  # else the client is gone
            frames = pass_on_frames(below)
            await websocket.prepare(request)
            if request.transport is not None:
                connection = self._listener.make(entrance)
                await WebSocketTransport(websocket, below, connection, peername, frames).run()
        return websocket

    def _check(self, request: web.Request, websocket: web.WebSocketResponse, entrance: Entrance) -> None:
        """Refuse what is no WebSocket for AMQP, or comes from where none may come.

        Raises:
            AccessDenied: it is refused.
        """
        offered = request.headers.get("Sec-WebSocket-Protocol", "").split(",")
        if "Upgrade" in request.headers and SUBPROTOCOL not in (each.strip() for each in offered):
            raise AccessDenied(400, "the WebSocket does not ask for the sub-protocol amqp", "ask for it")
        if not websocket.can_prepare(request).ok:
            raise AccessDenied(
                426, f"{PATH} takes WebSockets only", f"use an AMQP client, with ws(s)://HOST:PORT{PATH}"
            )
        self._access.check_page(request, self._listener.config.http_origins)
        if self._config.tls_client_certificates == "required":
            end = None if request.transport is None else request.transport.get_extra_info("ssl_object")
            if end is None or not end.getpeercert(True):
                raise AccessDenied(
                    403,
                    "AMQP clients must show a certificate (tls.client_certificates)",
                    "connect with wss and a certificate; http.client_certificates must let clients show one",
                )
        if not self._listener.lets_anybody_in(entrance):
            raise AccessDenied(
                403,
                "nobody can log in from there: there are no users, and no login is for this machine only",
                'set users_file or users, or listen.allow_anonymous = "always" where everybody may connect',
            )
        if not self._listener.is_listening:
            raise AccessDenied(503, "this router takes no clients any more", "connect to another router")


def _place(request: web.Request) -> str:
    name = None if request.transport is None else request.transport.get_extra_info("peername")
    return f"{name[0]}:{name[1]}" if isinstance(name, tuple) else str(name)
