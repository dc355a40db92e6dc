"""`oncewire context`: names for networks, so that no command needs an address."""

from __future__ import annotations

import json
import re
from pathlib import Path

import click
from click.shell_completion import CompletionItem

from oncewire.cli.contexts import MAX_NAME, Contexts, NetworkContext, contexts_file, load_contexts, save_contexts
from oncewire.cli.errors import CliError
from oncewire.cli.where import http_of
from oncewire.client.errors import UsageError
from oncewire.client.failover import parse_url

_NAME_FORM = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_FILE = click.Path(exists=True, dir_okay=False, resolve_path=True)


@click.group("context", short_help="Name your networks: their routers, TLS files and logins.")
def context() -> None:
    """Name networks, so that `pub`, `sub`, `bench`, `queue`, `inspect`, `manage` and `drain` need no address and login.

    An address is looked for in this order: the flag --url, the environment (ONCEWIRE_URL; ONCEWIRE_HTTP_URL for
    inspect, manage and drain), the context (--context, ONCEWIRE_CONTEXT, or the one in use), a running
    `oncewire local`, the default ports of this machine. With --url or its variable the context in use plays no part,
    so that its login goes to its own routers only; --context NAME beside --url supplies login and TLS.
    """


def _complete(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    try:
        known = load_contexts().by_name
    except CliError:
        return []
    return [CompletionItem(name, help=shown_urls(known[name])) for name in sorted(known) if name.startswith(incomplete)]


json_option = click.option("--json", "as_json", is_flag=True, help="Print one line of JSON.")


@context.command("add", short_help="Add a network, or replace it.")
@click.argument("name")
@click.option(
    "--url",
    "urls",
    multiple=True,
    required=True,
    metavar="URL",
    help="AMQP address of a router, as for `oncewire pub`; may be repeated.",
)
@click.option(
    "--http",
    default="",
    metavar="URL",
    help="HTTP address of a router, for inspect, manage and drain. [the first router's host, port 8672]",
)
@click.option("--user", default="", metavar="NAME", help="Log in as this user.")
@click.option("--password-file", type=_FILE, default=None, metavar="FILE", help="Its password, in a file.")
@click.option("--token-file", type=_FILE, default=None, metavar="FILE", help="Log in with the token in this file.")
@click.option("--ca-file", type=_FILE, default=None, metavar="FILE", help="Authority of the routers' certificates.")
@click.option("--cert-file", type=_FILE, default=None, metavar="FILE", help="Certificate to show to routers.")
@click.option("--key-file", type=_FILE, default=None, metavar="FILE", help="Key of --cert-file.")
@click.option("--vhost", default="", metavar="NAME", help="Virtual host of the routers.")
@click.option("--use", is_flag=True, help="Use it from now on. The first one is used anyway.")
@json_option
def add(
    name: str,
    urls: tuple[str, ...],
    http: str,
    user: str,
    password_file: str | None,
    token_file: str | None,
    ca_file: str | None,
    cert_file: str | None,
    key_file: str | None,
    vhost: str,
    use: bool,
    as_json: bool,
) -> None:
    """Add the network NAME. Files are named in it and read when a command needs them; no secret is copied.

    For example `oncewire context add prod --url amqps://r1.example.com --ca-file ca.pem --user ann --password-file pw`
    """
    made = NetworkContext(
        urls, http, user, password_file or "", token_file or "", ca_file or "", cert_file or "", key_file or "", vhost
    )
    _check(name, made)
    contexts = load_contexts()
    use = use or not contexts.by_name
    path = save_contexts(contexts.with_context(name, made, use=use))
    done = "replaced" if name in contexts.by_name else "added"
    _show(done, name, use, as_json, f"{done} {name} in {path}{'; it is in use' if use else ''}")


@context.command("use", short_help="Use a network from now on.")
@click.argument("name", metavar="[NAME]", required=False, shell_complete=_complete)
@click.option("--none", "use_none", is_flag=True, help="Use none: commands look for a local network again.")
@json_option
def use(name: str | None, use_none: bool, as_json: bool) -> None:
    """Have all commands work on the network NAME, where no flag or variable says otherwise."""
    if (name is None) is not use_none:
        why = "give one of both" if name is None else "NAME and --none contradict each other"
        raise CliError("no context is chosen", why, "`oncewire context list` shows them")
    save_contexts(load_contexts().using(name or ""))
    text = "no context is in use" if name is None else f"using {name}"
    _show("used", name, name is not None, as_json, text)


@context.command("list", short_help="Show the networks you have named.")
@json_option
def list_contexts(as_json: bool) -> None:
    """Show all networks; * marks the one in use. No password is shown."""
    contexts = load_contexts()
    if as_json:
        click.echo(json.dumps(_document(contexts)))
        return
    if not contexts.by_name:
        click.echo(f"no context yet ({contexts_file()}); add one: oncewire context add NAME --url amqp://HOST:PORT")
        return
    width = max(map(len, contexts.by_name))
    for name, each in sorted(contexts.by_name.items()):
        mark = "*" if name == contexts.current else " "
        login = f"  as {each.user}" if each.user else "  with a token" if each.token_file else ""
        click.echo(f"{mark} {name:{width}}  {shown_urls(each)}  {_shown(http_of(each))}{login}")


@context.command("remove", short_help="Forget a network.")
@click.argument("name", shell_complete=_complete)
@json_option
def remove(name: str, as_json: bool) -> None:
    """Forget the network NAME. The files that it names stay."""
    save_contexts(load_contexts().without(name))
    _show("removed", name, False, as_json, f"removed {name}")


def _show(done: str, name: str | None, in_use: bool, as_json: bool, text: str) -> None:
    """What became of a context: a sentence, or one line of JSON."""
    document = {"done": done, "name": name, "in_use": in_use, "file": str(contexts_file())}
    click.echo(json.dumps(document) if as_json else text)


def shown_urls(each: NetworkContext) -> str:
    """Its addresses, without passwords."""
    return ",".join(_shown(url) for url in each.urls)


def _shown(url: str) -> str:
    scheme, separator, rest = url.rpartition("://")
    return scheme + separator + rest.rpartition("@")[2]


def _document(contexts: Contexts) -> dict[str, object]:
    return {
        "current": contexts.current or None,
        "file": str(contexts_file()),
        "contexts": [
            {
                "name": name,
                "urls": [_shown(url) for url in each.urls],
                "http": _shown(http_of(each)),
                "user": each.user,
                "password_file": each.password_file,
                "token_file": each.token_file,
                "ca_file": each.ca_file,
                "cert_file": each.cert_file,
                "key_file": each.key_file,
                "vhost": each.vhost,
            }
            for name, each in sorted(contexts.by_name.items())
        ],
    }


def _check(name: str, made: NetworkContext) -> None:
    """Refuse what no command could use.

    Raises:
        CliError: something is wrong.
    """
    what = f"the context {name!r} cannot be added"
    if not _NAME_FORM.fullmatch(name) or len(name) > MAX_NAME:
        raise CliError(what, f"a name has 1 to {MAX_NAME} letters, digits and . _ -", "choose another name")
    for url in made.urls:
        try:
            parse_url(url)
        except UsageError as error:
            raise CliError(what, f"{error.what}: {error.why}", error.fix) from None
    if made.http and not made.http.startswith(("http://", "https://")):
        raise CliError(what, f"{_shown(made.http)!r} is no HTTP address", "it begins with http:// or https://")
    if bool(made.user) is not bool(made.password_file):
        raise CliError(what, "a user needs a password, and the other way round", "give --user and --password-file")
    if made.user and made.token_file:
        raise CliError(what, "it is not clear who logs in: a user and a token", "leave one of them out")
    if made.key_file and not made.cert_file:
        raise CliError(what, "there is no certificate to the key", "add --cert-file FILE")
    for path in (made.password_file, made.token_file):
        if path and Path(path).stat().st_mode & 0o077:
            click.echo(f"warning: others can read {path}; run chmod 600 {path}", err=True)
