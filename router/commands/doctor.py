"""`oncewire doctor`: whether a router can run here, and what to fix."""

from __future__ import annotations

import asyncio
import json
import os
import platform
import time
from dataclasses import replace
from importlib import metadata
from typing import Any

import click

from oncewire.cli import variables
from oncewire.cli.local_registry import running_network
from oncewire.cli.progress import waiting_for
from oncewire.settings.options_cli import setting_options
from router.commands.doctor_checks import Finding, State, check_certificates, check_descriptors, check_etcd, check_ports
from router.settings.config_loading import SETTINGS, SHORT_FLAGS, load

VERDICT_NO = 1
_PARTS = ("etcd_", "listen_", "http_host", "http_port", "tls_", "inter_router_", "max_connections", "standalone")
_SETTINGS = {name: each for name, each in SETTINGS.items() if name.startswith(_PARTS)}
_MARKS = {State.OK: "[green]ok[/]", State.WARNING: "[yellow]warning[/]", State.FAILED: "[bold red]failed[/]"}


@click.command("doctor", short_help="Check etcd, ports, certificates, clocks, limits and versions.")
@click.option("--config", "-c", "file", envvar=variables.CONFIG, metavar="FILE", help="A router's settings.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@setting_options(_SETTINGS, SHORT_FLAGS)
@click.pass_context
def doctor(context: click.Context, /, file: str | None, as_json: bool, **flags: Any) -> None:
    """Check whether a router with these settings can run on this machine, and say what to fix.

    Settings are given as for `oncewire router`; where none names an etcd, that of a running `oncewire local` is
    looked at. Nothing is changed. Exit code 0: nothing failed; 1: something did.
    """
    loaded = load(file, flags, os.environ)
    config = loaded.config
    local = running_network()
    if local is not None and local.etcd and config.etcd_endpoints == _default_etcd():
        config = replace(config, etcd_endpoints=local.etcd)
    installed = metadata.version("oncewire")
    found = [Finding("version", State.OK, f"oncewire {installed}, Python {platform.python_version()}")]
    found += [*check_descriptors(config), *check_ports(config), *check_certificates(config)]
    if config.standalone:
        found.append(Finding("etcd", State.OK, "none is needed: standalone"))
    else:
        with waiting_for("asking etcd ..."):
            found += asyncio.run(check_etcd(config, installed, time.time))
    has_failed = any(each.state is State.FAILED for each in found)
    if as_json:
        checks = [
            {"check": each.check, "state": each.state.value, "found": each.text, "fix": each.fix} for each in found
        ]
        click.echo(json.dumps({"ok": not has_failed, "checks": checks}))
    else:
        _print(found)
    context.exit(VERDICT_NO if has_failed else 0)


def _default_etcd() -> tuple[str, ...]:
    default: tuple[str, ...] = load(None, {}, {}).config.etcd_endpoints
    return default


def _print(found: list[Finding]) -> None:
    from rich.console import Console
    from rich.markup import escape

    console = Console(highlight=False)
    width = max(len(each.check) for each in found)
    for each in found:
        console.print(f"{each.check:{width}}  {_MARKS[each.state]}  {escape(each.text)}", soft_wrap=True)
        if each.fix:
            console.print(f"{'':{width}}  what to do: {escape(each.fix)}", soft_wrap=True)
    failed, warned = (sum(each.state is state for each in found) for state in (State.FAILED, State.WARNING))
    console.print(f"{len(found)} checks, {failed} failed, {warned} warning{'' if warned == 1 else 's'}")
