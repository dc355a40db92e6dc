"""Reads the settings of an edge from file, environment and flags, and reports their errors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from bridges.doors.errors import BadRequest
from bridges.doors.routers import RouterLogin
from bridges.doors.settings import check_listener, check_logins, tables_of, tls_files
from bridges.doors.tls import NO_FILES, TlsFiles, ask_for_tls, tls_context
from bridges.doors.tokens import DoorTokens
from bridges.edge.kinds import KINDS
from bridges.edge.part import Kind, PartSettings
from bridges.edge.settings import EDGE, FLAGS, USERS_FILE
from oncewire.cli.errors import CliError
from oncewire.cli.token import token_in
from oncewire.settings.loading import Given, Schema, read_toml
from oncewire.settings.parsers import nearest, without_login
from oncewire.settings.printing import explained

COMMAND = "`oncewire edge serve --print-config`"
_EDGE = Schema(EDGE, COMMAND)


@dataclass(frozen=True, slots=True)
class EdgeSettings:
    """An edge, and what it runs.

    Attributes:
        values: by the keys of `bridges.edge.settings.EDGE`.
        tls: its files.
        tokens: operators log in with these; None = not so.
        parts: the tables of its parts, in their order.
    """

    values: Mapping[str, Any]
    tls: TlsFiles
    tokens: DoorTokens | None
    parts: tuple[PartSettings, ...]

    @property
    def is_alone(self) -> bool:
        """Whether no other machine can open its store."""
        return str(self.values["edge.store"]).startswith("sqlite:")

    def login(self) -> RouterLogin:
        """At the routers.

        Raises:
            BadRequest: a file of TLS cannot be used.
        """
        routers, token_file = self.values["edge.routers"], self.values["edge.token_file"]
        files = NO_FILES if self.values["http.tls"] and not ask_for_tls(routers) else self.tls
        return RouterLogin(
            ssl_context=tls_context(files, routers),
            token=None if token_file is None else token_in(token_file),
            hostname=self.values["edge.vhost"] or None,
        )


def load(file: str, flags: Mapping[str, object], environment: Mapping[str, str]) -> EdgeSettings:
    """Merge all sources and check the result.

    Args:
        file: path of a TOML file; the tables of parts are there alone.
        flags: by the names of the command's parameters; None = not given.
        environment: of the process.

    Raises:
        CliError: something in a source cannot be used.
    """
    content = read_toml(file)
    tables = {kind.table: content.pop(kind.table, []) for kind in KINDS.values()}
    for name, value in content.items():
        if isinstance(value, list):
            raise _unknown_table(name, file)
    by_key = {each.key: flags.get(name) for name, each in FLAGS.items()}
    given = _EDGE.read(content, file, by_key, environment)
    parts = tuple(part for table, listed in tables.items() for part in _parts(KINDS[table], listed, file))
    if not parts:
        raise CliError(
            f"the edge of {file} would run nothing",
            "the file has no table of a part",
            f"write one of {', '.join(f'[[{table}]]' for table in KINDS)}; {COMMAND} explains them",
        )
    tokens = _check(given)
    values = given.values
    found = EdgeSettings(values, tls_files(values), tokens, parts)
    try:
        found.login()
    except BadRequest as error:
        raise CliError(error.what, error.why, error.fix) from None
    return found


def _unknown_table(name: str, file: str) -> CliError:
    close = nearest(name, KINDS)
    return CliError(
        f"unknown table [[{name}]] in {file}",
        "an edge has no parts of that kind",
        f"did you mean [[{close}]]? {COMMAND} prints all there are" if close else f"{COMMAND} prints all there are",
    )


def _parts(kind: Kind, listed: object, file: str) -> list[PartSettings]:
    """The tables of one kind; no two have the same name."""
    table = kind.table
    schema = Schema({each.key: each for each in kind.settings.values()}, COMMAND, is_file_only=True)
    read = [schema.read({table: item}, file).values for item in tables_of(table, listed, file)]
    values = [{key.removeprefix(f"{table}."): value for key, value in found.items()} for found in read]
    parts = [PartSettings(table, kind.name_of(each), each) for each in values]
    names = [part.name for part in parts]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        one = "a store has one" if kind.is_single else f"two of them are {twice[0]!r}"
        raise CliError(f"[[{table}]] in {file} cannot be used", one, "take one of the tables out")
    return parts


def _check(given: Given) -> DoorTokens | None:
    """Refuse settings that are right one by one and wrong together; returns the tokens of operators."""

    def refuse(key: str, why: str, fix: str) -> CliError:
        return _EDGE.refusal(key, given.values[key], given.sources[key], why, fix)

    check_listener("http.tls", "http.client_certificates", given.values, refuse)
    return check_logins(given.values, refuse, USERS_FILE)


def explain() -> str:
    """Every setting as a TOML file with a comment for each; all of them switched off."""
    lines = explained(EDGE.values())
    for kind in KINDS.values():
        many = "There is at most one of it." if kind.is_single else "As many of them as you like."
        lines += [f"# {many}", f"# [[{kind.table}]]", "", *explained(kind.settings.values(), kind.table)]
    return "\n".join(lines)


def shown(settings: EdgeSettings) -> dict[str, object]:
    """What would run, without passwords."""
    values = settings.values
    return {
        "edge": values["edge.name"],
        "store": without_login(values["edge.store"]),
        "routers": [without_login(url) for url in values["edge.routers"]],
        "http": address(values, values["http.port"]) if values["http.host"] else None,
        "parts": [{"kind": part.kind, "name": part.name} for part in settings.parts],
    }


def address(values: Mapping[str, Any], port: int) -> str:
    """The URL of its HTTP side."""
    return f"http{'s' if values['http.tls'] else ''}://{values['http.host']}:{port}"


Load = Callable[[], EdgeSettings]
"""Reads the settings again."""
