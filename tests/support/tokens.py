"""Issues JSON Web Tokens for tests, and serves the keys that check them on this machine."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import jwt
from aiohttp import web
from cryptography.hazmat.primitives.asymmetric import ec, rsa

ISSUER = "https://issuer.example"
AUDIENCE = "oncewire-tests"


class Issuer:
    """Signs with keys of its own; `rotate` puts a new one in the place of the old."""

    def __init__(self) -> None:
        self.algorithm = "RS256"
        self.requests = 0
        self.status = 200
        self.url = ""
        self._number = 0
        self.rotate()

    def rotate(self, algorithm: str = "RS256") -> None:
        """Sign with a new key from now on; the old one is not served any more."""
        self._number += 1
        self.algorithm = algorithm
        self._key: Any = (
            ec.generate_private_key(ec.SECP256R1()) if algorithm == "ES256" else rsa.generate_private_key(65537, 2048)
        )

    @property
    def key_name(self) -> str:
        return f"key-{self._number}"

    def key_set(self, **more: str) -> dict[str, Any]:
        """The public key, as issuers publish it."""
        kind = jwt.get_algorithm_by_name(self.algorithm)
        public = json.loads(kind.to_jwk(self._key.public_key()))
        return {"keys": [{**public, "kid": self.key_name, "use": "sig", **more}]}

    def write(self, path: Path) -> Path:
        """The public key as a file."""
        path.write_text(json.dumps(self.key_set()))
        return path

    def token(self, user: str, seconds: float = 300.0, **more: object) -> str:
        """A token; what is None is left out of its claims."""
        claims = {"sub": user, "iss": ISSUER, "aud": AUDIENCE, "exp": int(time.time() + seconds), **more}
        given = {name: value for name, value in claims.items() if value is not None}
        return jwt.encode(given, self._key, self.algorithm, {"kid": self.key_name})

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[Issuer]:
        """Serve the keys for the time of the block."""

        async def keys(_request: web.Request) -> web.Response:
            self.requests += 1
            return web.json_response(self.key_set(), status=self.status)

        app = web.Application()
        app.router.add_get("/keys", keys)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}/keys"
        try:
            yield self
        finally:
            await runner.cleanup()


def settings_of_tokens(**keys: str) -> list[str]:
    """Flags of a router that takes tokens of an `Issuer`."""
    given = {"issuer": ISSUER, "audience": AUDIENCE, **keys}
    return [f"--jwt-{name.replace('_', '-')}={value}" for name, value in given.items()]
