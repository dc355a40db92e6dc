"""`oncewire router` and `oncewire local`."""

from __future__ import annotations

import os
from importlib import metadata
from pathlib import Path
from typing import Any

import click

from oncewire.cli import variables
from oncewire.settings.options_cli import setting_options
from router.settings.config import RouterConfig
from router.settings.config_loading import SETTINGS, SHORT_FLAGS, LoadedConfig, format_config, has_secrets_of, load
from router.settings.worker import Worker


@click.command("router", short_help="Run one router.")
@click.option("--config", "-c", "file", envvar=variables.CONFIG, metavar="FILE", help="Settings as TOML.")
@click.option("--print-config", is_flag=True, help="Print the settings in force as TOML, and stop.")
@click.option("--announce", is_flag=True, help="Print one line of JSON on stdout when the router is ready.")
@click.option("--parent-pid", type=int, hidden=True, help="End with that process.")
@click.option("--worker", type=int, hidden=True, help="Be this worker of the parent process.")
@click.option("--worker-folder", type=Path, hidden=True, help="Where the sockets between workers are.")
@setting_options(SETTINGS, SHORT_FLAGS)
def router(
    file: str | None,
    print_config: bool,
    announce: bool,
    parent_pid: int | None,
    worker: int | None,
    worker_folder: Path | None,
    **flags: Any,
) -> int | None:
    """Run one router until SIGTERM or Ctrl-C; with --workers several processes behind one port.

    The signal drains it: clients are sent to other routers when what they have sent or were sent is settled, at most
    for limits.drain_limit_s. A second signal ends it at once.

    Each setting can be given in the TOML file, as an environment variable (--listen-port is ONCEWIRE_LISTEN_PORT)
    and as a flag; the flag wins over the variable, the variable over the file.
    """
    loaded: LoadedConfig = load(file, flags, os.environ)
    if print_config:
        click.echo(format_config(loaded))
        return None
    if worker is None and loaded.config.workers > 1:
        from router.commands.workers import run_workers

        given = {SETTINGS[name].variable: value for name, value in flags.items() if value is not None}
        return run_workers(loaded.config, file, given, announce=announce, parent_pid=parent_pid)
    from router.commands.running import run_router

    def config_of(found: RouterConfig) -> RouterConfig:
        if worker is None or worker_folder is None:
            return found
        return found.of_worker(Worker(found.node_id, worker, loaded.config.workers, worker_folder))

    again = None if file is None else lambda: config_of(load(file, flags, os.environ).config)
    secrets_in = file if file is not None and has_secrets_of(loaded, file) else ""
    run_router(
        config_of(loaded.config),
        installed_version(),
        announce=announce,
        parent_pid=parent_pid,
        load=again,
        secrets_in=secrets_in,
    )
    return None


@click.group("local", invoke_without_command=True, short_help="Run an etcd and some routers on this machine.")
@click.option("--routers", type=click.IntRange(1, 32), default=3, show_default=True, help="How many routers to run.")
@click.option(
    "--topology",
    type=click.Choice(["mesh", "ring", "chain"]),
    default="mesh",
    show_default=True,
    help="How the routers are linked.",
)
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print one line of JSON when all are ready, as where the output is no terminal.",
)
@click.option(
    "--port",
    type=click.IntRange(1, 65535),
    default=5672,
    show_default=True,
    help="Port of the first router for clients; the others take the next ones. Those in use are left out.",
)
@click.option(
    "--http-port",
    type=click.IntRange(1, 65535),
    default=8672,
    show_default=True,
    help="Port of the first router's page; as --port.",
)
@click.option(
    "--etcd", "etcd_urls", metavar="URL,...", help="Use this etcd. Default: one of its own is started and removed."
)
@click.option(
    "--store",
    type=click.Choice(["gateway", "etcd3"]),
    default="gateway",
    show_default=True,
    envvar=SETTINGS["store"].variable,
    help="How the routers access etcd: see the setting `store`.",
)
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="warning",
    show_default=True,
    envvar=SETTINGS["log_level"].variable,
)
@click.pass_context
def local(
    context: click.Context,
    /,
    routers: int,
    topology: str,
    as_json: bool,
    port: int,
    http_port: int,
    etcd_urls: str | None,
    **settings: str,
) -> None:
    """Run a real network on this machine: an etcd and some routers, each a process of its own.

    Once all are ready it prints where they are: a table on a terminal, one line of JSON elsewhere. `pub`, `sub`,
    `inspect`, `manage` and the others find it without an address. Runs until SIGTERM or Ctrl-C, and leaves nothing
    behind. Variables for settings of `oncewire router` are not used, but for ONCEWIRE_STORE and ONCEWIRE_LOG_LEVEL.
    """
    if context.invoked_subcommand is not None:
        return
    from router.commands.local_network import LocalNetwork, edges_of, following_pairs, run_local
    from router.commands.local_screen import note_unused_variables, starting

    note_unused_variables()
    with starting(routers, as_json=as_json) as announce:
        network = LocalNetwork(
            routers,
            edges=edges_of(topology, routers),
            etcd_urls=None if etcd_urls is None else etcd_urls.split(","),
            settings={"store": settings["store"]},
            log_level=settings["log_level"],
            ports=following_pairs(port, http_port),
        )
        run_local(network, announce)


@local.command("start", short_help="Start routers of the running network again.")
@click.argument("routers", nargs=-1, metavar="[ROUTER]...")
def start(routers: tuple[str, ...]) -> None:
    """Start each ROUTER of the running `oncewire local` that has ended, or all of them, and wait until they are ready.

    A router has its ports as before. It is a new incarnation, as after a restart by Kubernetes or systemd.
    """
    from router.commands.local_start import start_again

    for line in start_again(routers):
        click.echo(line)


def installed_version() -> str:
    """The version of Oncewire that runs."""
    try:
        return metadata.version("oncewire")
    except metadata.PackageNotFoundError:
        return "unknown"
