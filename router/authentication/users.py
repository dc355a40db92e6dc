"""The users of a router, as its settings name them."""

from __future__ import annotations

from typing import Protocol

from oncewire.cli import users_file
from oncewire.cli.errors import CliError
from oncewire.cli.users import Users
from oncewire.wire import LocalProtocolError
from router.process.logs import EventLog, RouterEvent


class Settings(Protocol):
    """What of the settings says who there is; `RouterConfig` is it."""

    @property
    def users(self) -> tuple[tuple[str, str], ...]:
        """Names and passwords."""

    @property
    def users_file(self) -> str:
        """Path of a file of users, or empty."""


def warn_of_open_file(settings: Settings, log: EventLog) -> None:
    """Log that others may read the file of users: they could guess its passwords."""
    if settings.users_file and users_file.is_open_to_others(settings.users_file):
        log.event(RouterEvent.USERS_FILE_OPEN, path=settings.users_file, fix=f"chmod 600 {settings.users_file}")


def load_users(settings: Settings) -> Users:
    """The users that the settings name.

    Raises:
        CliError: the file of users cannot be used, or a user of the table cannot log in with SCRAM.
    """
    keys = users_file.read(settings.users_file) if settings.users_file else None
    try:
        return Users(dict(settings.users), keys)
    except LocalProtocolError as error:
        why = f"{error}: SCRAM cannot use it"
        raise CliError("the setting users cannot be used", why, "choose another name or password") from None
