"""Logins with JSON Web Tokens, as an authenticator; imported only where the settings name keys."""

from __future__ import annotations

from oncewire.cli.json_web_tokens import TokenChecker, TokenRefused, TokenSettings, TokenUndecided
from oncewire.wire.bearer import OAUTHBEARER, XOAUTH2
from router.authentication.authenticators import Identity, Login, LoginRefused, LoginUndecided


class TokenAuthenticator:
    """Takes whom a token of the issuer names; see `Authenticator`."""

    mechanisms = frozenset({OAUTHBEARER, XOAUTH2})

    def __init__(self, settings: TokenSettings) -> None:
        """Read the file of keys, if there is one.

        Raises:
            CliError: the file cannot be used.
        """
        self._checker = TokenChecker(settings)
        self.load = self._checker.load

    async def check(self, login: Login, /) -> Identity:
        """See `Authenticator`."""
        try:
            found = await self._checker.check(login.secret)
        except TokenRefused as refused:
            raise LoginRefused(str(refused)) from None
        except TokenUndecided as undecided:
            raise LoginUndecided(str(undecided)) from None
        return Identity(found.user, found.valid_for_s)
