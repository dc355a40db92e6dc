"""The Helm chart: its manifests are Kubernetes', and a real router and a real etcd start with what they contain."""

from __future__ import annotations

import asyncio
import re
import signal
import tomllib
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from bridges.edge.settings_loading import load as load_edge
from oncewire.cli.users_file import line_of, write
from oncewire.client import AuthenticationFailed, connect
from router.settings.config_loading import load
from tests.docs.code_blocks import blocks_of, commands_of
from tests.router.processes import running_router
from tests.support.helm import CHART, KUBERNETES, helm, rendered
from topology.etcd.server import EtcdServer, find_etcd, free_port, is_healthy

ROOT = Path(__file__).resolve().parents[2]
USERS = "users.existingSecret=mq-users"
WITH_TLS = (
    USERS,
    "workers=3",
    "replicas=2",
    "tls.certManager.enabled=true",
    "tls.certManager.issuerRef.name=routers",
    "etcd.tlsSecret=etcd-tls",
    "etcd.storage.className=fast",
    "etcd.replicas=5",
    "service.type=LoadBalancer",
    "tls.certManager.dnsNames={mq.example.org}",
    "advertise=$(POD_NAME).mq.example.org:5671",
)
EXTERNAL_ETCD = (
    "users.anonymous=true",
    "etcd.enabled=false",
    "etcd.external.endpoints={https://e1:2379,https://e2:2379}",
    "etcd.external.tlsSecret=etcd-ca",
    "etcd.external.loginSecret=etcd-login",
    "networkPolicy.enabled=false",
    "interRouter.existingSecret=mq-routers",
    "etcd.external.clientCertificate=true",
)
WITH_EDGE = (
    USERS,
    "edge.enabled=true",
    "edge.loginSecret=mq-edge",
    "serviceMonitor.enabled=true",
    "http.anonymousRole=viewer",
)
WITH_EDGES = (*WITH_TLS, "edge.enabled=true", "edge.loginSecret=e", "edge.storeSecret=mq-database", "edge.replicas=3")
EACH_KIND_OF_RELEASE = pytest.mark.parametrize(
    "values",
    [(USERS,), WITH_TLS, EXTERNAL_ETCD, WITH_EDGE, WITH_EDGES],
    ids=["plain", "tls", "external", "edge", "edges"],
)
POD = "test-oncewire-0"
DOMAIN = "mq.svc.cluster.local"
SERVES_S = 60.0

pytestmark = pytest.mark.needs("helm")


def container(manifests: dict[tuple[str, str], Any], name: str = "test-oncewire") -> Any:
    (found,) = manifests["StatefulSet", name]["spec"]["template"]["spec"]["containers"]
    return found


def environment(manifests: dict[tuple[str, str], Any]) -> dict[str, str]:
    """Of a router's container, as Kubernetes would fill it in; secrets are `secret`."""
    found: dict[str, str] = {"POD_NAME": POD}
    for entry in container(manifests)["env"]:
        if entry["name"] != "POD_NAME":
            found[entry["name"]] = entry.get("value", "secret").replace("$(POD_NAME)", POD)
    return found


# --- manifests ----------------------------------------------------------------------------------------------------


@EACH_KIND_OF_RELEASE
def test_helm_finds_no_fault_in_the_chart(values: tuple[str, ...]) -> None:
    sets = [word for value in values for word in ("--set", value)]
    done = helm("lint", "--strict", "--kube-version", f"{KUBERNETES[-1]}.0", str(CHART), *sets)
    assert done.returncode == 0, done.stdout + done.stderr


@EACH_KIND_OF_RELEASE
@pytest.mark.parametrize("kubernetes", KUBERNETES)
def test_every_manifest_satisfies_the_schema_of_kubernetes(values: tuple[str, ...], kubernetes: str) -> None:
    import kubernetes_validate

    found = rendered(*values, kubernetes=kubernetes)
    kinds = {kind for kind, _ in found}
    assert {"StatefulSet", "Service", "PodDisruptionBudget", "ConfigMap"} <= kinds
    for (kind, _), manifest in found.items():
        if kind not in ("Certificate", "ServiceMonitor"):  # of cert-manager, and of the Prometheus operator
            kubernetes_validate.validate(manifest, kubernetes, strict=True)


def test_the_validator_would_see_a_misspelled_field() -> None:
    import kubernetes_validate

    manifest = rendered(USERS)["StatefulSet", "test-oncewire"]
    manifest["spec"]["replica"] = 3
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(manifest, KUBERNETES[-1], strict=True)


def test_the_chart_asks_for_logins_and_says_what_is_missing() -> None:
    done = helm("template", "test", str(CHART), "--kube-version", f"{KUBERNETES[-1]}.0")
    assert done.returncode != 0
    assert "users.existingSecret" in done.stderr
    done = helm("template", "test", str(CHART), "--set", USERS, "--set", "replica=3")
    assert "replica" in done.stderr, "a misspelled value is taken"


def test_the_values_on_the_page_of_kubernetes_are_values_of_the_chart(tmp_path: Path) -> None:
    blocks = list(blocks_of(ROOT / "docs" / "how-to" / "kubernetes.md"))
    texts = [block.text for block in blocks if block.run_by == "tests/deploy/test_chart.py"]
    flags = ["--kube-version", f"{KUBERNETES[-1]}.0", "--set", USERS]
    for number, text in enumerate(texts):
        (tmp_path / f"{number}.yaml").write_text(text)
        flags += ["--values", str(tmp_path / f"{number}.yaml")]
    done = helm("template", "test", str(CHART), *flags)
    assert 'value: "$(POD_NAME).mq.example.org:5671"' in done.stdout, done.stderr
    assert "kind: ServiceMonitor" in done.stdout
    commands = [words for block in blocks if block.language == "sh" for words in commands_of(block.text)]
    sets = [command[place + 1] for command in commands for place, word in enumerate(command) if word == "--set"]
    assert len(sets) > 2
    rendered(*sets)


def test_chart_and_project_have_one_version() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    versions = re.findall(r"^(?:version|appVersion): (\S+)$", (CHART / "Chart.yaml").read_text(), re.MULTILINE)
    assert versions == [project, project]


# --- how pods behave ----------------------------------------------------------------------------------------------


@EACH_KIND_OF_RELEASE
def test_the_settings_of_the_chart_are_settings_of_the_router(values: tuple[str, ...], tmp_path: Path) -> None:
    manifests = rendered(*values)
    file = tmp_path / "router.toml"
    file.write_text(manifests["ConfigMap", "test-oncewire"]["data"]["router.toml"])
    known = {name: value for name, value in environment(manifests).items() if name.startswith("ONCEWIRE_")}
    loaded = load(str(file), {}, known)
    assert (loaded.config.id, loaded.config.listen_host, loaded.config.log_format) == (POD, "0.0.0.0", "json")
    assert loaded.config.http_loopback_role == "none"
    unknown = [name for name in known if name not in _names_of_settings()]
    assert unknown == []
    if values != (USERS,):
        return
    host = f"{POD}.test-oncewire-pods.{DOMAIN}"
    assert loaded.config.listen_advertise == f"{host}:5672"
    assert loaded.config.inter_router_advertise == f"{host}:5673"


def _names_of_settings() -> set[str]:
    from router.settings.config_loading import SETTINGS

    return {"ONCEWIRE_" + re.sub(r"[.-]", "_", setting.key).upper() for setting in SETTINGS.values()}


def test_a_pod_is_killed_only_after_it_could_drain() -> None:
    manifests = rendered(USERS)
    pod = manifests["StatefulSet", "test-oncewire"]["spec"]["template"]["spec"]
    (waits,) = [int(word) for word in container(manifests)["lifecycle"]["preStop"]["exec"]["command"][1:]]
    assert pod["terminationGracePeriodSeconds"] > waits + 2 * load(None, {}, {}).config.drain_limit_s


def test_pods_have_no_privileges_and_one_at_a_time_may_be_evicted() -> None:
    manifests = rendered(USERS)
    for name in ("test-oncewire", "test-oncewire-etcd"):
        pod = manifests["StatefulSet", name]["spec"]["template"]["spec"]
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["automountServiceAccountToken"] is False
        security = container(manifests, name)["securityContext"]
        assert security["readOnlyRootFilesystem"] is True
        assert security["capabilities"] == {"drop": ["ALL"]}
        assert manifests["PodDisruptionBudget", name]["spec"]["maxUnavailable"] == 1


@pytest.mark.parametrize("workers", [1, 3])
def test_only_routers_reach_the_ports_of_routers_and_etcd(workers: int) -> None:
    manifests = rendered(USERS, f"workers={workers}")
    router = {"podSelector": manifests["StatefulSet", "test-oncewire"]["spec"]["selector"]}
    rules = manifests["NetworkPolicy", "test-oncewire"]["spec"]["ingress"]
    linked = [rule["from"] for rule in rules if any(port.get("endPort") for port in rule["ports"])]
    assert linked == [[router]]
    (ports,) = [port for rule in rules for port in rule["ports"] if port.get("endPort")]
    assert (ports["port"], ports["endPort"]) == (5673, 5672 + workers)
    for rule in manifests["NetworkPolicy", "test-oncewire-etcd"]["spec"]["ingress"]:
        (peer,) = rule["from"]
        assert peer in (router, {"podSelector": manifests["StatefulSet", "test-oncewire-etcd"]["spec"]["selector"]})


def test_the_certificate_names_whatever_routers_and_clients_connect_to() -> None:
    names = rendered(*WITH_TLS)["Certificate", "test-oncewire"]["spec"]["dnsNames"]
    assert {f"test-oncewire.{DOMAIN}", f"*.test-oncewire-pods.{DOMAIN}", "mq.example.org"} <= set(names)
    assert {"test-oncewire-0", "test-oncewire-1"} <= set(names), "as routers name each other's HTTP"


# --- edges --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("values", "kind"), [(WITH_EDGE, "StatefulSet"), (WITH_EDGES, "Deployment")])
def test_the_settings_of_the_charts_edges_are_settings_of_an_edge(
    values: tuple[str, ...], kind: str, tmp_path: Path
) -> None:
    manifests = rendered(*values)
    (edge,) = manifests[kind, "test-oncewire-edge"]["spec"]["template"]["spec"]["containers"]
    file = tmp_path / "edge.toml"
    file.write_text(manifests["ConfigMap", "test-oncewire-edge"]["data"]["edge.toml"])
    given = {"POD_NAME": "test-oncewire-edge-0", "EDGE_USER": "ann", "EDGE_PASSWORD": "a-long-password"}
    for entry in edge["env"]:
        if entry["name"].startswith("ONCEWIRE_"):
            value = entry.get("value", "postgresql://db/work")
            given[entry["name"]] = re.sub(r"\$\((\w+)\)", lambda found: given[found[1]], value)
    found = load_edge(str(file), {"tls_ca_file": ""}, given)
    assert [part.key for part in found.parts] == [("queue", "work")]
    first = found.values["edge.routers"][0]
    port = 5671 if kind == "Deployment" else 5672
    assert first.endswith(f"ann:a-long-password@test-oncewire-0.test-oncewire-pods.{DOMAIN}:{port}")
    assert (found.is_alone, found.values["http.host"]) == (kind == "StatefulSet", "0.0.0.0")
    # What the image has for routers does not concern it.
    assert load_edge(str(file), {"tls_ca_file": ""}, {"ONCEWIRE_HTTP_ANONYMOUS_ROLE": "none", **given}) == found
    assert edge["command"] == ["oncewire", "edge", "serve"]
    policy = manifests["NetworkPolicy", "test-oncewire-edge"]["spec"]
    assert [port["port"] for rule in policy["ingress"] for port in rule["ports"]] == ["http"]
    clients = manifests["NetworkPolicy", "test-oncewire"]["spec"]["ingress"][0]["from"]
    assert {"podSelector": manifests[kind, "test-oncewire-edge"]["spec"]["selector"]} in clients


@pytest.mark.parametrize(
    ("values", "why"),
    [(("edge.enabled=true",), "edge.loginSecret"), ((*WITH_EDGE, "edge.replicas=2"), "edge.storeSecret")],
)
def test_an_edge_that_could_not_work_is_refused(values: tuple[str, ...], why: str) -> None:
    sets = [word for value in (USERS, *values) for word in ("--set", value)]
    done = helm("template", "test", str(CHART), "--kube-version", f"{KUBERNETES[-1]}.0", *sets)
    assert done.returncode != 0
    assert why in done.stderr


# --- processes ----------------------------------------------------------------------------------------------------


async def test_a_router_with_the_charts_settings_asks_for_a_login_and_drains_when_its_pod_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifests = rendered(USERS)
    config, users = tmp_path / "router.toml", tmp_path / "users"
    config.write_text(manifests["ConfigMap", "test-oncewire"]["data"]["router.toml"])
    write(str(users), [line_of("ann", "a long password")])
    for name, value in environment(manifests).items():
        monkeypatch.setenv(name, value)
    probes = {kind: container(manifests)[f"{kind}Probe"]["httpGet"]["path"] for kind in ("readiness", "liveness")}
    async with EtcdServer() as etcd:
        # What is different here: this machine's ports, and no name of a cluster.
        flags = (
            "--config",
            str(config),
            "--users-file",
            str(users),
            "--etcd-endpoints",
            etcd.urls[0],
            "--etcd-memory-folder",
            str(tmp_path),
            "--inter-router-port",
            "0",
            "--listen-advertise=",
            "--inter-router-advertise=",
            "--listen-host",
            "127.0.0.1",
            "--inter-router-host",
            "127.0.0.1",
            "--http-host",
            "127.0.0.1",
        )
        async with running_router(*flags) as router, aiohttp.ClientSession() as session:
            for path in probes.values():
                async with session.get(router.http + path) as answer:
                    assert answer.status == 200, path
            async with session.get(f"{router.http}/metrics") as answer:
                assert answer.status == 401
            with pytest.raises(AuthenticationFailed):
                async with asyncio.timeout(SERVES_S), connect([router.url], container_id="nobody") as client:
                    await client.subscriber("orders", name="nobody")
            url = router.url.replace("amqp://", "amqp://ann:a%20long%20password@")
            async with connect([url], container_id="ann") as client:
                await client.subscriber("orders", name="ann")
            log = await router.stop(signal.SIGTERM)
    assert router.process.returncode == 0
    assert log.index('"drain_started"') < log.index('"router_stopped"')


async def test_etcd_starts_with_the_charts_flags(tmp_path: Path) -> None:
    manifests = rendered(USERS, "etcd.replicas=1")
    ports = {"2379": str(free_port()), "2380": str(free_port()), "2381": str(free_port())}
    flags = []
    for flag in container(manifests, "test-oncewire-etcd")["args"]:
        here = flag.replace("$(POD_NAME)", "test-oncewire-etcd-0").replace("0.0.0.0", "127.0.0.1")
        here = here.replace(f"test-oncewire-etcd-0.test-oncewire-etcd.{DOMAIN}", "127.0.0.1")
        here = here.replace("/var/lib/etcd", str(tmp_path))
        flags.append(re.sub(r":(23\d\d)\b", lambda found: f":{ports[found[1]]}", here))
    process = await asyncio.create_subprocess_exec(
        find_etcd().path, *flags, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL
    )
    try:
        async with asyncio.timeout(SERVES_S):
            while not await is_healthy(f"http://127.0.0.1:{ports['2381']}"):
                assert process.returncode is None, "etcd refused a flag"
                await asyncio.sleep(0.1)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
