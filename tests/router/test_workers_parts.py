"""Parts of workers one by one: settings of each, metrics of all, where clients are sent, who is dialed and how."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from prometheus_client.parser import text_string_to_metric_families

from delivery_records.model.view import Change, Kind, RouterRecord, View, router_key
from oncewire.cli.errors import CliError
from router.clients.redirect import other_routers
from router.operator.metrics_merge_core import merged
from router.peers.dialing import Dialing
from router.settings.config import RouterConfig
from router.settings.config_loading import load
from router.settings.worker import Worker
from topology.keys.attachments import decode_record, encode_record

FOLDER = Path("/run/oncewire-x")


def test_each_worker_has_an_id_and_ports_of_its_own_and_all_else_in_common() -> None:
    given = {"id": "r1", "workers": "3", "inter_router_port": "7000", "inter_router_advertise": "public.example:9000"}
    config = load(None, given, {}).config
    found = [config.of_worker(Worker("r1", number, 3, FOLDER)) for number in (1, 2, 3)]
    assert [each.node_id for each in found] == ["r1-1", "r1-2", "r1-3"]
    assert [each.inter_router_port for each in found] == [7000, 7001, 7002]
    assert [each.inter_router_advertise for each in found] == [f"public.example:{port}" for port in (9000, 9001, 9002)]
    assert {(each.listen_port, each.http_port) for each in found} == {(config.listen_port, config.http_port)}
    any_port = load(None, {"workers": "2"}, {}).config.of_worker(Worker("r1", 2, 2, FOLDER))
    assert (any_port.inter_router_port, any_port.inter_router_advertise) == (0, "")


@pytest.mark.parametrize(
    ("given", "reported"),
    [
        ({"standalone": "true"}, "a standalone router keeps all attachments in one process"),
        ({"id": "x" * 63}, "more than 64 characters"),
        ({"inter_router_port": "65535"}, "beyond 65535"),
        ({"inter_router_port": "7000", "inter_router_advertise": "h:65535"}, "beyond 65535"),
        ({"inter_router_advertise": "h:7000"}, "each worker listens on a port of its own"),
    ],
)
def test_settings_that_several_workers_cannot_have_are_refused_and_fit_one(
    given: dict[str, str], reported: str
) -> None:
    with pytest.raises(CliError) as refused:
        load(None, {**given, "workers": "2"}, {})
    assert reported in refused.value.why
    load(None, given, {})


def test_an_id_is_that_of_a_worker_of_ours_only_where_group_and_number_fit() -> None:
    worker = Worker("r1", 1, 2, FOLDER)
    assert worker.number_of("r1-2", "r1") == 2
    for router, group in (("r1-3", "r1"), ("r1-0", "r1"), ("r1-02", "r1"), ("r1-2", ""), ("r1", "r1"), ("r2-2", "r2")):
        assert worker.number_of(router, group) is None, router


# --- metrics ----------------------------------------------------------------------------------------------------------


def test_metrics_of_workers_are_one_page_in_which_each_family_stands_once() -> None:
    page = '# HELP a_total Some\n# TYPE a_total counter\na_total{kind="x y"} %d\n# HELP b B\n# TYPE b gauge\nb %d\n'
    info = '# HELP info I\n# TYPE info gauge\ninfo{router="r1-1",version="1"} 1\n'
    text = merged({"r1-1": page % (1, 2) + info, "r1-2": page % (3, 4)})
    families = {family.name: family.samples for family in text_string_to_metric_families(text)}
    assert {(sample.labels["router"], sample.labels["kind"], sample.value) for sample in families["a"]} == {
        ("r1-1", "x y", 1),
        ("r1-2", "x y", 3),
    }
    assert [(sample.labels, sample.value) for sample in families["b"]] == [
        ({"router": "r1-1"}, 2),
        ({"router": "r1-2"}, 4),
    ]
    assert [sample.labels for sample in families["info"]] == [{"router": "r1-1", "version": "1"}]
    assert text.count("# TYPE b gauge") == 1


# --- keys, redirects, dialing -----------------------------------------------------------------------------------------


def view_of(*records: RouterRecord) -> View:
    view = View()
    for record in records:
        view.apply(Change(Kind.ROUTER, router_key(record), record, 1, 1))
    return view


def test_a_router_key_names_the_group_and_one_without_it_is_read_as_before() -> None:
    record = RouterRecord("r1-2", 7, "h:1", "amqp://h:2", group="r1")
    assert decode_record(Kind.ROUTER, router_key(record), encode_record(record)) == record
    older = encode_record(record).replace(b',"group":"r1"', b"")
    assert cast("RouterRecord", decode_record(Kind.ROUTER, router_key(record), older)).group == ""


def test_a_client_is_sent_to_every_other_address_once_and_never_to_where_it_is() -> None:
    view = view_of(
        RouterRecord("r1-1", 1, amqp="amqp://one:5672", group="r1"),
        RouterRecord("r1-2", 2, amqp="amqp://one:5672", group="r1"),
        RouterRecord("r2-1", 3, amqp="amqp://two:5672", group="r2", draining=True),
        RouterRecord("r2-2", 4, amqp="amqp://two:5672", group="r2"),
        RouterRecord("r2-3", 5, amqp="amqp://two:5672", group="r2"),
        RouterRecord("r3", 6, amqp="amqp://three:5672"),
    )
    assert [record.node_id for record in other_routers(view, 1)] == ["r2-2", "r3"]
    assert [record.node_id for record in other_routers(view, 6)] == ["r1-1", "r2-2"]


class Tasks:
    """Notes who would be dialed."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def create_task(self, work: Any, name: str) -> asyncio.Task[None]:
        work.close()
        self.names.append(name)
        return cast("asyncio.Task[None]", None)


def dialing_of(config: RouterConfig, view: View) -> Dialing:
    neighbours: Any = SimpleNamespace(rid=1)
    records: Any = SimpleNamespace(view=view)
    return Dialing(config, neighbours, records, cast("Any", None), lambda: None)


@pytest.mark.parametrize(("mesh", "dialed"), [("auto", ["dial 2", "dial 3"]), ("configured", ["dial 2"])])
async def test_workers_are_linked_in_every_mesh_and_by_paths_that_no_key_names(mesh: str, dialed: list[str]) -> None:
    others = (
        RouterRecord("r1-2", 2, group="r1"),  # it listens on no TCP port
        RouterRecord("r2", 3, inter_router="unix:/run/oncewire-x/2.links"),  # of no release of ours
    )
    config = RouterConfig(workers=2, mesh=mesh).of_worker(Worker("r1", 1, 2, FOLDER))
    dialing = dialing_of(config, view_of(*others))
    tasks = Tasks()
    await dialing.run(cast("Any", tasks))
    assert tasks.names == dialed
    assert [dialing._path_to(each) for each in others] == [str(FOLDER / "2.links"), None]
    alone = dialing_of(RouterConfig(), View())
    assert [alone._path_to(each) for each in others] == [None, None]
