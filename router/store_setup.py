"""The store the settings ask for: a real etcd, or one in this process."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from pathlib import Path

from oncewire.cli.errors import CliError
from oncewire.transport.tls import TlsFiles, TlsFilesError, client_context
from router.config import RouterConfig
from topology.gateway_http import GatewayOptions
from topology.gateway_store import GatewayStore
from topology.memory_store import MemoryEtcd
from topology.store import ClusterStore


def store_factory(config: RouterConfig) -> Callable[[], ClusterStore]:
    """What makes clients of the store; nothing is connected yet.

    Raises:
        CliError: the TLS files or the package etcd3 cannot be used.
    """
    if config.standalone:
        return MemoryEtcd().client
    if config.store == "etcd3":
        return _etcd3_factory(config)
    options = GatewayOptions(user=config.etcd_user, password=config.etcd_password, tls=_tls(config))
    return lambda: GatewayStore(config.etcd_endpoints, options)


def _etcd3_factory(config: RouterConfig) -> Callable[[], ClusterStore]:
    # Only here: who does not choose it needs none of its modules.
    from topology.etcd3_rpc import Etcd3Missing, Etcd3Options, load_packages
    from topology.etcd3_store import Etcd3Store

    try:
        load_packages()
    except Etcd3Missing as error:
        raise CliError(
            "the store etcd3 cannot be used", str(error),
            "do that, or leave the setting `store` out: the gateway needs no further package",
        ) from None  # fmt: skip
    _tls(config)  # gRPC would say what is wrong with a file only to its own log
    options = Etcd3Options(
        user=config.etcd_user,
        password=config.etcd_password,
        ca=_content(config.etcd_ca_file),
        certificate=_content(config.etcd_cert_file),
        key=_content(config.etcd_key_file),
    )
    return lambda: Etcd3Store(config.etcd_endpoints, options)


def _content(file: str) -> bytes | None:
    return Path(file).read_bytes() if file else None


def _tls(config: RouterConfig) -> ssl.SSLContext | None:
    if not config.etcd_ca_file and not config.etcd_cert_file:
        return None
    ca, certificate, key = (
        Path(file) if file else None for file in (config.etcd_ca_file, config.etcd_cert_file, config.etcd_key_file)
    )
    try:
        return client_context(TlsFiles(ca, certificate, key), alpn=None)
    except TlsFilesError as error:
        raise CliError(
            "the TLS files for etcd cannot be used",
            str(error),
            "check etcd.ca_file, etcd.cert_file and etcd.key_file: they must be PEM files this process may read",
        ) from None
