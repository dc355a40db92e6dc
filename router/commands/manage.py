"""`oncewire manage`: see and change what a running router's schema offers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import quote

import click

from oncewire.cli.errors import CliError
from oncewire.cli.nouns import Noun
from router.operator.arguments import allowed
from router.operator.management_routes import PREFIX
from router.operator.schema import TYPES
from router.operator.service import MAX_ROWS, SELF
from topology.inspector.ask_cli import Api, Authorization
from topology.inspector.login_cli import authorization_of, login_option, network_options, url_of
from topology.inspector.schema.model import Attribute, EntityType, Operation, Type

_TYPED = "`oncewire manage` cannot be run as it was typed"
VERDICT_NO = 1
"""The operator was asked, and said no."""
_WORDS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}


@click.group("manage", short_help="See and change a running router: costs, connections, subscriptions, settings.")
def manage() -> None:
    """See and change a running router. What there is to see and change stands in docs/management.md.

    Changes hold until the process ends; settings are changed in the router's file, then loaded with `reload`.
    """


def _common(command: Callable[..., None]) -> Callable[..., None]:
    for option in (
        click.option("--json", "as_json", is_flag=True, help="Print one JSON document."),
        login_option,
        network_options,
    ):
        command = option(command)
    return command


_TYPE = click.argument("type_name", metavar="TYPE", type=Noun(list(TYPES)))
_NAME = click.argument("name", metavar="NAME")
_YES = click.option("--yes", "-y", is_flag=True, help="Do not ask before it is done.")


@manage.command("list", short_help="All entities of a type.")
@_TYPE
@_common
def list_entities(type_name: str, url: str | None, user: str | None, as_json: bool) -> None:
    """Show all entities of TYPE that the router at URL knows.

    The table has as many columns as fit. `oncewire manage show` and --json have all attributes.
    """
    from topology.inspector.show_cli import console, shown

    document = asyncio.run(_list(url_of(url), authorization_of(user), type_name))
    if as_json:
        click.echo(json.dumps(document))
        return
    table = TYPES[type_name].table
    if table is None:  # one entity, with more attributes than a line has room for
        for row in document["items"]:
            _print_answer(row, as_json)
        return
    out = console()
    out.print(shown(table, {table: document["items"]}, out.width))


@manage.command("show", short_help="One entity with all its attributes.")
@_TYPE
@click.argument("name", metavar="[NAME]", required=False)
@_common
def show(type_name: str, name: str | None, url: str | None, user: str | None, as_json: bool) -> None:
    """Show the entity NAME of TYPE. Of log and config there is one only."""
    if name is None:
        if TYPES[type_name].table is not None:
            raise CliError(_TYPED, f"which {type_name}? NAME is missing", f"name it by {TYPES[type_name].naming}")
        name = SELF
    row = asyncio.run(_get(url_of(url), authorization_of(user), _path(type_name, name)))
    _print_answer(row, as_json)


@manage.command("set", short_help="Change attributes of an entity.")
@_TYPE
@_NAME
@click.argument("changes", metavar="ATTRIBUTE=VALUE", nargs=-1, required=True)
@click.option("--both", is_flag=True, help="Of a link, both directions: at this router and at the neighbour.")
@_common
def set_attributes(
    type_name: str, name: str, changes: tuple[str, ...], both: bool, url: str | None, user: str | None, as_json: bool
) -> None:
    """Change attributes of the entity NAME of TYPE.

    For example `oncewire manage set link r2 cost=10` or `oncewire manage set log router level=debug`. The value null
    takes an operator's cost of a link back.
    """
    entity = TYPES[type_name]
    if both and type_name != "link":
        raise CliError(_TYPED, f"a {type_name} has no directions", "leave --both out")
    given = _values(entity.settable, changes, f"attribute of a {type_name} that can be set")
    row = asyncio.run(_set(url_of(url), authorization_of(user), type_name, name, given, both=both))
    _print_answer(row, as_json)


@manage.command("delete", short_help="Delete a subscription, or close a connection.")
@_TYPE
@_NAME
@_YES
@_common
def delete(type_name: str, name: str, yes: bool, url: str | None, user: str | None, as_json: bool) -> None:
    """Delete the entity NAME of TYPE, as it stands now."""
    operation = TYPES[type_name].delete
    if operation is None:
        able = ", ".join(each.name for each in TYPES.values() if each.delete is not None)
        raise CliError(_TYPED, f"a {type_name} cannot be deleted", f"what can be: {able}")
    entity, address = TYPES[type_name], url_of(url)
    answer = asyncio.run(_carry_out(address, authorization_of(user), entity, operation, name, {}, yes=yes))
    _print_answer(answer, as_json)


@manage.command("call", short_help="Carry out an operation on an entity.")
@_TYPE
@_NAME
@click.argument("operation", metavar="OPERATION")
@click.argument("given", metavar="[ARGUMENT=VALUE]...", nargs=-1)
@_YES
@_common
def call(
    type_name: str,
    name: str,
    operation: str,
    given: tuple[str, ...],
    yes: bool,
    url: str | None,
    user: str | None,
    as_json: bool,
) -> None:
    """Carry out OPERATION on the entity NAME of TYPE.

    For example `oncewire manage call subscription till/orders expire`, or
    `oncewire manage call router r1 trace on=true topics=orders`. A list is written value,value.
    """
    entity = TYPES[type_name]
    found = entity.operation(operation)
    if found is None:
        known = ", ".join(each.name for each in entity.operations) or "none"
        raise CliError(_TYPED, f"a {type_name} has no operation {operation}", f"its operations: {known}")
    values = _values(found.arguments, given, f"argument of {operation}")
    answer = asyncio.run(_carry_out(url_of(url), authorization_of(user), entity, found, name, values, yes=yes))
    _print_answer(answer, as_json)


@manage.command("reload", short_help="Have the router read its settings again.")
@_common
def reload(url: str | None, user: str | None, as_json: bool) -> None:
    """Have the router at URL read its configuration file again, as SIGHUP does; nothing changes if it has a mistake."""
    answer = asyncio.run(_reload(url_of(url), authorization_of(user)))
    if as_json:
        click.echo(json.dumps(answer))
        return
    for line in answer["changed"]:
        click.echo(f"changed: {line}")
    for line in answer["needs_restart"]:
        click.echo(f"needs a restart: {line}")
    if not answer["changed"] and not answer["needs_restart"]:
        click.echo("nothing has changed")


# --- asking the router ------------------------------------------------------------------------------------------------


def _path(type_name: str, *names: str) -> str:
    if "" in names:
        raise CliError(_TYPED, "a name is empty", f"`oncewire manage list {type_name}` names all")
    try:
        return "/".join([PREFIX, type_name, *(quote(name, safe="") for name in names)])
    except UnicodeEncodeError:
        raise CliError(_TYPED, "a name is no UTF-8 text", f"`oncewire manage list {type_name}` names all") from None


async def _get(url: str, login: Authorization | None, path: str) -> dict[str, Any]:
    async with Api.at(url, login) as api:
        return await api.get(path)


async def _list(url: str, login: Authorization | None, type_name: str) -> dict[str, Any]:
    """All entities, page by page."""
    items: list[Any] = []
    async with Api.at(url, login) as api:
        while True:
            query = {"offset": str(len(items)), "limit": str(MAX_ROWS)}
            answer = await api.get(_path(type_name), query)
            items += answer["items"]
            if not answer["items"] or len(items) >= answer["total"]:
                return {"items": items, "total": answer["total"]}


async def _set(
    url: str, login: Authorization | None, type_name: str, name: str, given: Mapping[str, object], *, both: bool
) -> dict[str, Any]:
    async with Api.at(url, login) as api:
        row = await api.change("PUT", _path(type_name, name), given)
        if not both:
            return row
        other = await api.get(_path("router", str(row["to_rid"])))
    if not other["http"]:
        raise CliError(
            f"only the direction from {row['from']} to {row['to']} has changed",
            f"{row['to']} serves no HTTP",
            "set http.host there, or change the cost in its settings",
        )
    try:
        async with Api.at(str(other["http"]), login) as api:
            back = await api.change("PUT", _path(type_name, str(row["from"])), given)
    except CliError as error:
        changed = f"only the direction from {row['from']} to {row['to']} has changed"
        raise CliError(changed, f"at {row['to']}: {error.what}: {error.why}", error.fix) from None
    return {f"{each['from']} to {each['to']}": each["cost"] for each in (row, back)}


async def _carry_out(
    url: str,
    login: Authorization | None,
    entity: EntityType,
    operation: Operation,
    name: str,
    given: Mapping[str, object],
    *,
    yes: bool,
) -> dict[str, Any]:
    """Show what harm would be done, ask, and do it. What is done belongs to what was shown: its epoch goes with it."""
    has_epoch = any(each.name == "epoch" for each in operation.arguments)
    async with Api.at(url, login) as api:
        key = name
        if operation.is_harmful or has_epoch:
            row = await api.get(_path(entity.name, name))
            key = str(row["key"])
            if operation.is_harmful and not yes:
                _confirm(entity, operation, name, row)
            if has_epoch:
                given = {"epoch": row["epoch"], **given}
        path = _path(entity.name, key)
        if operation is entity.delete:
            return await api.change("DELETE", path, given)
        return await api.change("POST", f"{path}/{operation.name}", given)


async def _reload(url: str, login: Authorization | None) -> dict[str, Any]:
    async with Api.at(url, login) as api:
        state = await api.get("/api/v1/overview")
        return await api.change("POST", f"{_path('router', str(state['router']))}/reload", {})


def _confirm(entity: EntityType, operation: Operation, name: str, row: Mapping[str, object]) -> None:
    """State what happens, and ask.

    Raises:
        CliError: nobody can be asked.
        SystemExit: the answer is no.
    """
    facts = ("topic", "router", "state", "lag", "peer", "links")
    shown = ", ".join(f"{fact} {_word(row[fact])}" for fact in facts if row.get(fact) is not None)
    click.echo(f"{entity.name} {name}: {shown}", err=True)
    click.echo(operation.meaning, err=True)
    click.echo(f"Deliveries: {operation.deliveries}", err=True)
    try:
        agreed = click.confirm(f"{operation.name.capitalize()} it?", err=True)
    except click.Abort:
        raise CliError("nothing was done", "nobody said yes", "give --yes where nobody can be asked") from None
    if not agreed:
        click.echo("nothing was done", err=True)
        raise SystemExit(VERDICT_NO)


# --- words to values, values to words ---------------------------------------------------------------------------------


def _values(known: tuple[Attribute, ...], given: tuple[str, ...], what: str) -> dict[str, object]:
    """What NAME=VALUE words mean, by the schema; the router checks it again.

    Raises:
        CliError: a word cannot be understood.
    """
    by_name = {each.name: each for each in known}
    found: dict[str, object] = {}
    for word in given:
        name, equals, text = word.partition("=")
        if not equals or name not in by_name:
            why = f"{name!r} is no {what}" if equals else f"{word!r} is not NAME=VALUE"
            raise CliError(_TYPED, why, f"known: {', '.join(by_name) or 'none'}")
        try:
            found[name] = _value(by_name[name], text)
        except ValueError:
            raise CliError(_TYPED, f"{word} cannot be used", f"{name} is {allowed(by_name[name])}") from None
    return found


def _value(attribute: Attribute, text: str) -> object:
    if text == "null":
        return None
    if attribute.type is Type.INTEGER:
        return int(text)
    if attribute.type is Type.NUMBER:
        return float(text)
    if attribute.settable is not None and attribute.type in (Type.LIST, Type.MAP):
        return json.loads(text)
    if attribute.type is Type.BOOLEAN:
        if text not in _WORDS:
            raise ValueError
        return _WORDS[text]
    return [each for each in text.split(",") if each] if attribute.type is Type.LIST else text


def _print_answer(answer: Mapping[str, Any], as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(answer))
        return
    for name, value in answer.items():
        click.echo(f"{name}: {_word(value)}")


def _word(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(_word(each) for each in value) or "-"
    if isinstance(value, dict):
        return ", ".join(f"{name} = {_word(each)}" for name, each in value.items()) or "-"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    text = str(value)  # names are what clients call themselves, and no terminal must obey them
    return text if text.isprintable() else json.dumps(text)
