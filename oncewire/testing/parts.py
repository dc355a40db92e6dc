"""What the fixtures use of the server's package, which an application need not have."""

from __future__ import annotations

import importlib
from types import ModuleType


class ServerPackageMissing(ImportError):
    """Only the client is installed. The text says what to install."""


def server_part(module: str) -> ModuleType:
    """Import a module of the server's package.

    Raises:
        ServerPackageMissing: the package is not installed.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise ServerPackageMissing(
            f"oncewire.testing cannot start routers: {error}. The client of Oncewire is installed; routers are in the "
            'package oncewire-server. Add them to the environment of the tests: pip install "oncewire[router]"'
        ) from error
