"""An authenticator of Oncewire that asks a web service: 200 with {"user": ...} = right, 403 = wrong."""

import os

import aiohttp

from oncewire.wire import PLAIN
from oncewire.wire.bearer import OAUTHBEARER
from router.authentication import Identity, Login, LoginRefused, LoginUndecided


class WebAuthenticator:
    """Sends passwords and tokens to the address in ONCEWIRE_WEB_AUTHENTICATOR."""

    mechanisms = frozenset({PLAIN, OAUTHBEARER})

    def __init__(self) -> None:
        self._url = os.environ["ONCEWIRE_WEB_AUTHENTICATOR"]

    async def check(self, login: Login, /) -> Identity:
        """See `router.authentication.Authenticator`."""
        asked = {"mechanism": login.mechanism, "user": login.user, "secret": login.secret, "host": login.host}
        async with aiohttp.ClientSession() as session, session.post(self._url, json=asked) as answer:
            if answer.status == 403:
                raise LoginRefused("the web service refuses it")
            if answer.status != 200:
                raise LoginUndecided(f"the web service answers {answer.status}")
            found = await answer.json()
            return Identity(found["user"], found.get("valid_for_s"))
