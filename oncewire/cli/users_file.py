"""A file of users: one line each, with the keys of SCRAM and never a password.

    ann SCRAM-SHA-256$600000:SALT$STOREDKEY:SERVERKEY SCRAM-SHA-512$210000:SALT$STOREDKEY:SERVERKEY

Salt and keys are in Base64. Empty lines, and lines that begin with `#`, are kept and mean nothing.
"""

from __future__ import annotations

import base64
import binascii
import os
import re
import stat
import tempfile
from collections.abc import Mapping
from pathlib import Path

from oncewire.cli.errors import CliError
from oncewire.wire import LocalProtocolError
from oncewire.wire.saslprep import saslprep
from oncewire.wire.scram import (
    MAX_ITERATIONS,
    MIN_ITERATIONS,
    SALT_BYTES,
    SCRAM_HASHES,
    ScramHash,
    ScramKeys,
    derive_keys,
)

UserKeys = Mapping[str, ScramKeys]
"""One user's keys by mechanism; SCRAM-SHA-256 is always there."""
MODE = 0o600
MAX_FILE_BYTES = 16 << 20
"""60,000 users: a path that leads somewhere else must not fill the memory."""
_KEYS = re.compile(
    r"(?P<name>[^$]+)\$(?P<iterations>[0-9]{1,9}):(?P<salt>[^$:]+)\$(?P<stored>[^$:]+):(?P<server>[^$:]+)"
)
_FIX = "write the line anew: oncewire users password FILE NAME"


def read(path: str) -> dict[str, UserKeys]:
    """The users of a file.

    Raises:
        CliError: the file or a line of it cannot be read.
    """
    users: dict[str, UserKeys] = {}
    for number, line in enumerate(read_lines(path), 1):
        if not is_user(line):
            continue
        try:
            name, keys = _read_line(line)
            if name in users:
                raise ValueError(f"user {name!r} has a line already")
        except ValueError as error:
            raise CliError(f"{path} cannot be used", f"line {number}: {error}", _FIX) from None
        users[name] = keys
    return users


def read_lines(path: str) -> list[str]:
    """The lines of a file of users.

    Raises:
        CliError: it cannot be read.
    """
    fix = "name the file of users, or begin one: oncewire users add FILE NAME"
    try:
        with Path(path).open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
        if len(content) > MAX_FILE_BYTES:
            raise CliError(f"{path} cannot be used", f"it has more than {MAX_FILE_BYTES} bytes", fix)
        return content.decode("utf-8").splitlines()
    except OSError as error:
        raise CliError(f"{path} cannot be read", error.strerror or str(error), fix) from None
    except UnicodeDecodeError:
        raise CliError(f"{path} cannot be used", "it is not UTF-8 text", fix) from None


def is_user(line: str) -> bool:
    """Whether a line is that of a user."""
    return bool(line.strip()) and not line.startswith("#")


def is_open_to_others(path: str) -> bool:
    """Whether others than the owner may read the file."""
    try:
        return bool(Path(path).stat().st_mode & (stat.S_IRGRP | stat.S_IROTH))
    except OSError:  # it was there when it was read
        return False


def check_name(name: str) -> str:
    """The user name as it stands in the file.

    Raises:
        ValueError: it cannot be one.
    """
    try:
        prepared = saslprep(name, "user name")
    except LocalProtocolError as error:
        raise ValueError(str(error)) from None
    if prepared.startswith("#") or any(each.isspace() for each in prepared):
        raise ValueError("a user name has no blanks and does not begin with #")
    return prepared


def line_of(name: str, password: str, salts: Mapping[str, bytes] | None = None) -> str:
    """The line of a user; takes half a second, as it must for whoever guesses.

    Args:
        name: see `check_name`.
        password: in clear.
        salts: by mechanism; None = random ones.

    Raises:
        ValueError: the name or the password cannot be used.
    """
    parts = [check_name(name)]
    for scram in SCRAM_HASHES:
        salt = os.urandom(SALT_BYTES) if salts is None else salts[scram.mechanism]
        try:
            keys = derive_keys(scram, password, salt, scram.iterations)
        except LocalProtocolError as error:
            raise ValueError(str(error)) from None
        salt_text, stored, server = (
            base64.b64encode(each).decode() for each in (keys.salt, keys.stored_key, keys.server_key)
        )
        parts.append(f"{scram.mechanism}${keys.iterations}:{salt_text}${stored}:{server}")
    return " ".join(parts)


def write(path: str, lines: list[str]) -> None:
    """Put these lines in the place of the file, all or nothing; only its owner may read it.

    Raises:
        CliError: it cannot be written; it is as it was.
    """
    target = Path(path).resolve()
    try:
        handle, temporary = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                os.fchmod(file.fileno(), MODE)
                file.write("".join(f"{line}\n" for line in lines))
                file.flush()
                os.fsync(file.fileno())
            Path(temporary).replace(target)
        except BaseException:
            Path(temporary).unlink()
            raise
    except OSError as error:
        why, fix = error.strerror or str(error), "see to the rights of its folder"
        raise CliError(f"{path} cannot be written", why, fix) from None


def _read_line(line: str) -> tuple[str, UserKeys]:
    name, *parts = line.split()
    check_name(name)
    keys: dict[str, ScramKeys] = {}
    known = {scram.mechanism: scram for scram in SCRAM_HASHES}
    for part in parts:
        found = _KEYS.fullmatch(part)
        if found is None or found["name"] not in known:
            raise ValueError("a part is no key of SCRAM-SHA-256 or -SHA-512 (not shown: it may be a password)")
        keys[found["name"]] = _read_keys(known[found["name"]], found)
    if SCRAM_HASHES[0].mechanism not in keys:
        raise ValueError(f"the key of {SCRAM_HASHES[0].mechanism} is missing")
    return name, keys


def _read_keys(scram: ScramHash, found: re.Match[str]) -> ScramKeys:
    try:
        salt, stored, server = (base64.b64decode(found[each], validate=True) for each in ("salt", "stored", "server"))
    except binascii.Error:
        raise ValueError(f"the key of {scram.mechanism} has Base64 that cannot be read") from None
    iterations = int(found["iterations"])
    if not MIN_ITERATIONS <= iterations <= MAX_ITERATIONS:
        raise ValueError(f"{iterations} iterations are not between {MIN_ITERATIONS} and {MAX_ITERATIONS}")
    if len(stored) != scram.size or len(server) != scram.size or not salt:
        raise ValueError(f"the key of {scram.mechanism} is cut off")
    return ScramKeys(salt, iterations, stored, server)
