"""Settings: one schema behind file, environment and flags; every mistake is named with what is allowed."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path

import pytest

from oncewire.cli.errors import CliError
from router.settings.config_loading import SETTINGS, LoadedConfig, format_config, load
from router.settings.values import ConnectorSettings
from tests.support.golden import assert_golden

GOLDEN = Path(__file__).parent / "golden"


def loaded(folder: Path, toml: str = "", environment: Mapping[str, str] | None = None, **flags: object) -> LoadedConfig:
    file = folder / "router.toml"
    file.write_text(toml)
    return load(str(file), flags, environment or {})


def test_a_flag_wins_over_the_variable_and_the_variable_over_the_file(tmp_path: Path) -> None:
    toml = '[listen]\nport = 1001\n[http]\nport = 1002\n[log]\nlevel = "debug"\n'
    environment = {"ONCEWIRE_LISTEN_PORT": "2001", "ONCEWIRE_HTTP_PORT": "2002"}
    found = loaded(tmp_path, toml, environment, listen_port="3001")
    assert (found.config.listen_port, found.config.http_port, found.config.log_level) == (3001, 2002, "debug")
    assert found.sources["listen_port"] == "--listen-port"
    assert found.sources["http_port"] == "ONCEWIRE_HTTP_PORT"
    assert found.sources["log_level"].endswith("router.toml")
    assert found.sources["listen_host"] == "default"


def test_every_setting_has_a_flag_a_variable_and_a_reason() -> None:
    flags = [setting.flag for setting in SETTINGS.values()]
    variables = [setting.variable for setting in SETTINGS.values()]
    assert len(set(flags)) == len(set(variables)) == len(SETTINGS)
    assert all(setting.reason.endswith(".") and setting.allowed for setting in SETTINGS.values())


def test_the_printed_settings_are_a_file_that_gives_the_same_settings(tmp_path: Path) -> None:
    first = loaded(tmp_path, "", {}, mesh="configured", connectors="r2=3,r3", etcd_endpoints="http://a:1,http://b:2")
    printed = format_config(first)
    assert tomllib.loads(printed)["inter_router"]["connectors"] == [{"to": "r2", "cost": 3}, {"to": "r3", "cost": 1}]
    second = loaded(tmp_path, printed)
    assert second.config == first.config
    assert second.config.connectors == (ConnectorSettings("r2", 3), ConnectorSettings("r3", 1))


def test_passwords_are_not_printed(tmp_path: Path) -> None:
    toml = '[users]\nann = "s3cret-a"\n[etcd]\npassword = "s3cret-b"\n[inter_router]\npassword = "s3cret-c"\n'
    assert "s3cret" not in format_config(loaded(tmp_path, toml))


def test_sizes_can_be_written_with_units(tmp_path: Path) -> None:
    toml = '[limits]\nwindow_bytes = "2 MiB"\nmax_message_size = 4096\n'
    config = loaded(tmp_path, toml).config
    assert (config.window_bytes, config.max_message_size) == (2 << 20, 4096)


MISTAKES: Mapping[str, tuple[str, Mapping[str, str], Mapping[str, object]]] = {
    "unknown_key": ("[listen]\nprot = 5672\n", {}, {}),
    "unknown_table": ("[lisen]\nport = 5672\n", {}, {}),
    "table_as_value": ("listen = 5672\n", {}, {}),
    "unknown_variable": ("", {"ONCEWIRE_LIMITS_WINDOWS": "5"}, {}),
    "not_toml": ("[listen\n", {}, {}),
    "number_too_long": (f"lease = {'9' * 5000}\n", {}, {}),
    "nested_too_deep": (f"users = {'[' * 3000}\n", {}, {}),
    "keys_too_deep": (f"{'a.' * 2000}a = 1\n", {}, {}),
    "number_too_large": (f"[inter_router]\nheartbeat_s = {'9' * 400}\n", {}, {}),
    "rules_too_deep": ("", {"ONCEWIRE_ACCESS_RULES": "[" * 100_000}, {}),
    "wrong_type": ('[listen]\nport = "amqp"\n', {}, {}),
    "out_of_range": ("", {"ONCEWIRE_LISTEN_PORT": "70000"}, {}),
    "not_a_choice": ("", {}, {"log_level": "loud"}),
    "wrong_connector": ('[inter_router]\nmesh = "configured"\nconnectors = ["r2"]\n', {}, {}),
    "wrong_users": ('users = ["ann"]\n', {}, {}),
    "nobody_can_log_in": ('[listen]\nhost = "0.0.0.0"\n', {}, {}),
    "no_router_can_log_in": ('[inter_router]\nhost = "0.0.0.0"\n', {}, {}),
    "connectors_without_use": ("", {"ONCEWIRE_INTER_ROUTER_CONNECTORS": "r2"}, {}),
    "certificate_without_key": ("", {}, {"etcd_cert_file": "cert.pem"}),
    "timeout_over_cap": ("[limits]\nsubscription_timeout_s = 100\nsubscription_timeout_cap_s = 10\n", {}, {}),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_reported_with_what_is_allowed(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    toml, environment, flags = MISTAKES[name]
    Path("router.toml").write_text(toml)
    with pytest.raises(CliError) as refused:
        load("router.toml", flags, environment)
    assert refused.value.exit_code == 2
    assert_golden(GOLDEN / f"{name}.txt", "\n".join(refused.value.lines()) + "\n")


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(CliError) as refused:
        load(str(tmp_path / "nowhere.toml"), {}, {})
    assert "nowhere.toml" in refused.value.what
    assert refused.value.why == "No such file or directory"


def test_users_let_other_machines_in_without_anonymous(tmp_path: Path) -> None:
    found = loaded(tmp_path, '[listen]\nhost = "0.0.0.0"\n[users]\nann = "x"\n')
    assert found.config.users == (("ann", "x"),)
