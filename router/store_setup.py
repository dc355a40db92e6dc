"""The store the settings ask for: a real etcd, or one in this process."""

from __future__ import annotations

import ssl
from collections.abc import Callable

from oncewire.cli.errors import CliError
from router.config import RouterConfig
from topology.gateway_http import GatewayOptions
from topology.gateway_store import GatewayStore
from topology.memory_store import MemoryEtcd
from topology.store import Store


def store_factory(config: RouterConfig) -> Callable[[], Store]:
    """What makes clients of the store; nothing is connected yet.

    Raises:
        CliError: the TLS files cannot be used.
    """
    if config.standalone:
        return MemoryEtcd().client
    options = GatewayOptions(user=config.etcd_user, password=config.etcd_password, tls=_tls(config))
    return lambda: GatewayStore(config.etcd_endpoints, options)


def _tls(config: RouterConfig) -> ssl.SSLContext | None:
    if not config.etcd_ca_file and not config.etcd_cert_file:
        return None
    try:
        context = ssl.create_default_context(cafile=config.etcd_ca_file or None)
        if config.etcd_cert_file:
            context.load_cert_chain(config.etcd_cert_file, config.etcd_key_file)
    except (OSError, ssl.SSLError) as error:
        raise CliError(
            "the TLS files for etcd cannot be used",
            str(error),
            "check etcd.ca_file, etcd.cert_file and etcd.key_file: they must be PEM files this process may read",
        ) from None
    return context
