"""Named networks of a user: where their routers are, and how to log in there. The commands are in context_cli.py.

One JSON file in the XDG config folder, which nobody else can read.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from oncewire.cli.errors import CliError

FILE_NAME = "contexts.json"
FOLDER_MODE = 0o700
MAX_NAME = 64
"""Of a context: it is a word that people type."""


@dataclass(frozen=True, slots=True)
class NetworkContext:
    """One network.

    Attributes:
        urls: AMQP addresses of routers.
        http: HTTP address of a router; empty = that of the first router, port 8672.
        user, password_file: login by password; the file is read when it is needed.
        token_file: login by token; read again before each login.
        ca_file, cert_file, key_file: of TLS.
        vhost: virtual host.
    """

    urls: tuple[str, ...] = ()
    http: str = ""
    user: str = ""
    password_file: str = ""
    token_file: str = ""
    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""
    vhost: str = ""

    def password(self) -> str:
        """What the password's file holds, without the end of the line.

        Raises:
            CliError: it cannot be read.
        """
        if not self.password_file:
            why = "the context names a user and no --password-file"
            raise CliError(f"cannot log in as {self.user}", why, "see `oncewire context list --json`")
        return password_in(self.password_file)


def password_in(file: str) -> str:
    """What a password's file holds, without the end of the line.

    Raises:
        CliError: it cannot be read.
    """
    try:
        return Path(file).read_text(encoding="utf-8").rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        raise CliError("the password cannot be read", f"{file}: {error}", "give a file that holds it") from None


@dataclass(frozen=True, slots=True)
class Contexts:
    """All contexts by name, and the one in use (empty = none)."""

    by_name: Mapping[str, NetworkContext]
    current: str = ""

    def named(self, name: str) -> NetworkContext:
        """The context of that name.

        Raises:
            CliError: there is none.
        """
        if name not in self.by_name:
            known = ", ".join(sorted(self.by_name)) or "none yet"
            close = get_close_matches(name, self.by_name, 1)
            guess = f". Did you mean {close[0]!r}?" if close else ""
            raise CliError(
                f"there is no context {name!r}",
                f"the contexts of this user: {known}{guess}",
                "add it with `oncewire context add`, or take another",
            )
        return self.by_name[name]

    def with_context(self, name: str, context: NetworkContext, *, use: bool) -> Contexts:
        """These and one more, or another in its place."""
        return Contexts({**self.by_name, name: context}, name if use else self.current)

    def without(self, name: str) -> Contexts:
        """These but one."""
        self.named(name)
        left = {each: context for each, context in self.by_name.items() if each != name}
        return Contexts(left, "" if self.current == name else self.current)

    def using(self, name: str) -> Contexts:
        """These, with another in use; empty = none."""
        if name:
            self.named(name)
        return replace(self, current=name)


def contexts_file() -> Path:
    """Where they are kept: `$XDG_CONFIG_HOME/oncewire/contexts.json`, `~/.config` where that is not set."""
    configured = os.environ.get("XDG_CONFIG_HOME", "")
    # The specification: what is not absolute does not count.
    base = Path(configured) if configured.startswith("/") else Path.home() / ".config"
    return base / "oncewire" / FILE_NAME


def load_contexts() -> Contexts:
    """Read them; without a file there are none.

    Raises:
        CliError: the file cannot be read, or is damaged.
    """
    path = contexts_file()
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        return Contexts(
            {str(name): _context_of(each) for name, each in document["contexts"].items()}, str(document["current"])
        )
    except FileNotFoundError:
        return Contexts({})
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise CliError(
            "the contexts cannot be read", f"{path}: {error}", "correct the file, or remove it and add them again"
        ) from None


def save_contexts(contexts: Contexts) -> Path:
    """Write them, all or nothing, for this user's eyes only; returns the file.

    Raises:
        CliError: it cannot be written.
    """
    path = contexts_file()
    document = {
        "current": contexts.current,
        "contexts": {name: asdict(each) for name, each in sorted(contexts.by_name.items())},
    }
    try:
        path.parent.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
        # A temporary file has mode 0600, and its name is in nobody's hands before that.
        handle, temporary = tempfile.mkstemp(prefix=f".{FILE_NAME}.", dir=path.parent)
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                json.dump(document, file, indent=2)
                file.write("\n")
            Path(temporary).replace(path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise CliError("the context cannot be kept", f"{path}: {error.strerror}", "see who owns the folder") from None
    return path


def _context_of(document: Mapping[str, Any]) -> NetworkContext:
    known = {field.name for field in fields(NetworkContext)}
    given: dict[str, Any] = {name: value for name, value in document.items() if name in known}
    return NetworkContext(**{**given, "urls": tuple(str(url) for url in document["urls"])})
