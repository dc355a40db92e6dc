"""The chart takes what users of other charts set, and helm renders it without a cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.helm import CHART, KUBERNETES, helm, rendered

VALUES = Path(__file__).with_name("values-of-other-charts.yaml")
USERS = "users.existingSecret=mq-users"
ROUTERS, ETCD = ("StatefulSet", "test-oncewire"), ("StatefulSet", "test-oncewire-etcd")
SELECTOR = {"app.kubernetes.io/name": "oncewire", "app.kubernetes.io/instance": "test"}

pytestmark = pytest.mark.needs("helm")


@pytest.fixture(scope="module")
def manifests() -> dict[tuple[str, str], Any]:
    return rendered(files=(VALUES,))


def values() -> dict[str, Any]:
    import yaml

    found: dict[str, Any] = yaml.safe_load(VALUES.read_text())
    return found


def pod(manifests: dict[tuple[str, str], Any], name: tuple[str, str]) -> Any:
    return manifests[name]["spec"]["template"]["spec"]


def test_helm_renders_the_chart_without_a_cluster_and_without_a_flag_for_its_version() -> None:
    done = helm("template", "test", str(CHART), "--set", USERS)
    assert done.returncode == 0, f"{done.stderr}\nbuild another helm: make tools"


def test_strict_lint_and_the_schemas_of_kubernetes_take_all_these_values(manifests: dict[tuple[str, str], Any]) -> None:
    import kubernetes_validate

    done = helm("lint", "--strict", str(CHART), "--values", str(VALUES))
    assert done.returncode == 0, done.stdout + done.stderr
    for (kind, _), manifest in manifests.items():
        if kind != "ServiceMonitor":  # the Prometheus operator's own
            for kubernetes in KUBERNETES:
                kubernetes_validate.validate(manifest, kubernetes, strict=True)


def test_pods_run_where_and_as_the_values_say(manifests: dict[tuple[str, str], Any]) -> None:
    given = values()
    for name, part in ((ROUTERS, given), (ETCD, given["etcd"])):
        found = pod(manifests, name)
        assert found["imagePullSecrets"] == given["imagePullSecrets"]
        for key in {"priorityClassName", "nodeSelector", "affinity", "tolerations"} & part.keys():
            assert found[key] == part[key], key
        repository = part["image"].get("repository", "quay.io/coreos/etcd")
        assert found["containers"][0]["image"] == f"{repository}@{part['image']['digest']}"
        template = manifests[name]["spec"]["template"]["metadata"]
        assert template["labels"].items() >= part["podLabels"].items()
        assert template["annotations"].items() >= part["podAnnotations"].items()
    zones, hosts = pod(manifests, ROUTERS)["topologySpreadConstraints"]
    assert zones["labelSelector"]["matchLabels"] == {**SELECTOR, "app.kubernetes.io/component": "router"}
    assert hosts == given["topologySpreadConstraints"][1], "a selector of the user's own stays"
    assert "--initial-cluster-token=after-the-flood" in pod(manifests, ETCD)["containers"][0]["args"]


def test_the_routers_account_has_the_annotations_and_no_token(manifests: dict[tuple[str, str], Any]) -> None:
    account = manifests["ServiceAccount", "mq"]
    assert account["metadata"]["annotations"]["example.org/role"] == "routers"
    assert account["automountServiceAccountToken"] is False
    found = pod(manifests, ROUTERS)
    assert (found["serviceAccountName"], found["automountServiceAccountToken"]) == ("mq", False)
    assert "serviceAccountName" not in pod(manifests, ETCD)
    kept = rendered(USERS, "serviceAccount.create=false")
    assert pod(kept, ROUTERS)["serviceAccountName"] == "default"
    assert "ServiceAccount" not in {kind for kind, _ in kept}


def test_routers_get_further_variables_and_volumes_but_none_that_the_chart_sets(
    manifests: dict[tuple[str, str], Any],
) -> None:
    given, found = values(), pod(manifests, ROUTERS)
    (container,) = found["containers"]
    assert container["env"][-2:] == given["extraEnv"]
    assert container["volumeMounts"][-1:] == given["extraVolumeMounts"]
    assert found["volumes"][-1:] == given["extraVolumes"]
    for name in ("ONCEWIRE_ID", "ONCEWIRE_USERS_FILE"):
        done = helm("template", "test", str(CHART), "--set", f"{USERS},extraEnv[0].name={name},extraEnv[0].value=x")
        assert done.returncode != 0
        assert f"extraEnv: the chart sets {name} itself" in done.stderr


def test_labels_and_annotations_for_all_are_on_every_manifest_and_leave_selectors_alone(
    manifests: dict[tuple[str, str], Any],
) -> None:
    given = values()
    for name, manifest in manifests.items():
        assert manifest["metadata"]["labels"].items() >= given["commonLabels"].items(), name
        assert manifest["metadata"]["annotations"].items() >= given["commonAnnotations"].items(), name
    service = manifests["Service", "test-oncewire"]
    assert service["metadata"]["annotations"]["example.org/pool"] == "inside"
    assert service["metadata"]["labels"]["example.org/exposed"] == "no"
    assert service["spec"]["selector"] == {**SELECTOR, "app.kubernetes.io/component": "router"}
    kept = manifests["Secret", "test-oncewire-routers"]["metadata"]["annotations"]
    assert kept["helm.sh/resource-policy"] == "keep"
    for value in ("commonLabels", "podLabels", "etcd.podLabels"):
        done = helm("template", "test", str(CHART), "--set", USERS, "--set", rf"{value}.app\.kubernetes\.io/name=x")
        assert done.returncode != 0, value


def test_a_service_monitor_scrapes_each_router_once_over_its_tls_and_with_its_login(
    manifests: dict[tuple[str, str], Any],
) -> None:
    given, monitor = values()["serviceMonitor"], manifests["ServiceMonitor", "test-oncewire"]
    assert monitor["metadata"]["labels"]["release"] == "prometheus"
    wanted = monitor["spec"]["selector"]["matchLabels"].items()
    services = [each for (kind, _), each in manifests.items() if kind == "Service"]
    (service,) = [each for each in services if each["metadata"]["labels"].items() >= wanted]
    (endpoint,) = monitor["spec"]["endpoints"]
    assert endpoint["port"] in {port["name"] for port in service["spec"]["ports"]}
    assert service["spec"]["clusterIP"] == "None"
    assert monitor["spec"]["namespaceSelector"] == {"matchNames": ["mq"]}
    assert (endpoint["scheme"], endpoint["tlsConfig"]["ca"]["secret"]["name"]) == ("https", "mq-tls")
    for key in ("interval", "scrapeTimeout", "basicAuth", "relabelings", "metricRelabelings"):
        assert endpoint[key] == given[key], key


def test_a_service_monitor_that_routers_would_refuse_is_refused() -> None:
    done = helm("template", "test", str(CHART), "--set", USERS, "--set", "serviceMonitor.enabled=true")
    assert done.returncode != 0
    assert "http.anonymousRole = viewer, or serviceMonitor.basicAuth" in done.stderr
    found = rendered(USERS, "serviceMonitor.enabled=true", "http.anonymousRole=viewer")
    assert "scheme" not in found["ServiceMonitor", "test-oncewire"]["spec"]["endpoints"][0]
