"""Makes what the settings name for checking passwords and tokens; optional packages are imported only when they are."""

from __future__ import annotations

from oncewire.cli.errors import CliError
from router.authentication.authenticators import Checks, load_authenticator
from router.process.logs import EventLog
from router.settings.config import RouterConfig


def checks_of(config: RouterConfig, log: EventLog) -> Checks | None:
    """What checks tokens, or all logins; None = the users of the settings are all there is.

    Raises:
        CliError: a package is missing, or the keys of tokens cannot be used.
    """
    if config.authenticator:
        return Checks(load_authenticator(config.authenticator), log)
    if not config.has_tokens:
        return None
    try:
        from router.authentication.json_web_tokens import TokenAuthenticator
    except ImportError as error:
        raise CliError(
            "the settings jwt.* cannot be used", str(error), "install the extra: pip install 'oncewire[jwt]'"
        ) from None
    tokens = TokenAuthenticator(config)
    return Checks(tokens, log, tokens.load)
