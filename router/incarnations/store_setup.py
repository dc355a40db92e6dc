"""The store the settings ask for: a real etcd, or one in this process."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from oncewire.cli.errors import CliError
from oncewire.transport.tls import TlsFiles, TlsFilesError, client_context, rotating_client_context
from router.process.logs import EventLog, RouterEvent
from router.settings.config import RouterConfig
from topology.etcd.gateway_http import GatewayOptions
from topology.etcd.gateway_store import GatewayStore
from topology.etcd.memory_store import MemoryEtcd
from topology.etcd.store import ClusterStore

T = TypeVar("T")


_FIX = "check etcd.ca_file, etcd.cert_file and etcd.key_file: they must be PEM files this process may read"


def store_factory(config: RouterConfig, log: EventLog | None = None) -> Callable[[], ClusterStore]:
    """What makes clients of the store; nothing is connected yet.

    Args:
        config: the settings. TLS files that are replaced hold for new connections.
        log: for files that were replaced and cannot be used; None = nothing is logged.

    Raises:
        CliError: the TLS files or the package etcd3 cannot be used.
    """
    if config.standalone:
        return MemoryEtcd().client

    def on_fault(why: str) -> None:
        if log is not None:
            log.event(RouterEvent.CONFIG_REFUSED, why=f"the TLS files for etcd cannot be used: {why}", fix=_FIX)

    if config.store == "etcd3":
        return _etcd3_factory(config, on_fault)
    tls = _checked(lambda files: rotating_client_context(files, alpn=None, on_fault=on_fault), config)
    options = GatewayOptions(user=config.etcd_user, password=config.etcd_password, tls=tls)
    return lambda: GatewayStore(config.etcd_endpoints, options)


def etcd_tls(config: RouterConfig) -> ssl.SSLContext | None:
    """What connects to etcd with these settings; None = without TLS, or with what this machine trusts.

    Raises:
        CliError: the TLS files cannot be used.
    """
    return _checked(lambda files: rotating_client_context(files, alpn=None), config)


def _etcd3_factory(config: RouterConfig, on_fault: Callable[[str], None]) -> Callable[[], ClusterStore]:
    # Only here: who does not choose it needs none of its modules.
    from topology.etcd.etcd3_rpc import Etcd3Missing, Etcd3Options, load_packages
    from topology.etcd.etcd3_store import Etcd3Store

    try:
        load_packages()
    except Etcd3Missing as error:
        raise CliError(
            "the store etcd3 cannot be used",
            str(error),
            "do that, or leave the setting `store` out: the gateway needs no further package",
        ) from None
    credentials = _checked(_Credentials, config)
    options = Etcd3Options(
        user=config.etcd_user,
        password=config.etcd_password,
        credentials=None if credentials is None else lambda: credentials.read(on_fault),
    )
    return lambda: Etcd3Store(config.etcd_endpoints, options)


class _Credentials:
    """What gRPC is given for the next channel: the contents of the files, the last ones that could be used."""

    def __init__(self, files: TlsFiles) -> None:
        self._files = files
        self._found = self._read()

    def read(self, on_fault: Callable[[str], None]) -> tuple[bytes | None, bytes | None, bytes | None]:
        """Authorities, certificate and key."""
        try:
            self._found = self._read()
        except TlsFilesError as error:
            on_fault(str(error))
        return self._found

    def _read(self) -> tuple[bytes | None, bytes | None, bytes | None]:
        files = self._files
        client_context(files, alpn=None)  # gRPC would say what is wrong with a file only to its own log
        ca, certificate, key = (
            None if file is None else file.read_bytes()
            for file in (files.ca, files.certificate, files.key or files.certificate)
        )
        return ca, certificate, key


def _checked(make: Callable[[TlsFiles], T], config: RouterConfig) -> T | None:
    if not config.etcd_ca_file and not config.etcd_cert_file:
        return None
    ca, certificate, key = (
        Path(file) if file else None for file in (config.etcd_ca_file, config.etcd_cert_file, config.etcd_key_file)
    )
    try:
        return make(TlsFiles(ca, certificate, key))
    except TlsFilesError as error:
        raise CliError("the TLS files for etcd cannot be used", str(error), _FIX) from None
