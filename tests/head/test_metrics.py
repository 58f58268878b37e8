"""The head's numbers for Prometheus, read by Prometheus' own checker."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import msgspec
import pytest
import yaml
from promtool import promtool

from layercake.base.histogram import Histogram
from layercake.features.nodes.lists.metrics import BUCKETS, Page
from layercake.features.power.readings import NodeReadings
from layercake.features.status.metrics import Metrics
from layercake.fleet.events import MUTATION_DONE
from layercake.kraken.converge import Discovered
from layercake.kraken.errors import Unreachable
from layercake.kraken.events import MUTATION_FAILED
from powerman.inspect.latency import Latencies
from tests.support.world import World

HERE = Path(__file__).parent
RULES = HERE.parents[1] / "examples/prometheus/layercake.rules.yml"
BOARD = RULES.with_name("layercake.grafana.json")


def checked(text: str) -> str:
    """What promtool says of a page; "" if it is well. It finds that no unit is missing, and no
    help."""
    done = subprocess.run(
        [promtool(), "check", "metrics"],
        input=text,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return (done.stdout + done.stderr).strip() if done.returncode else ""


async def page(world: World) -> str:
    return await world.head.part(Metrics).page()


async def pages(world: World) -> str:
    """All metrics that there are: those of the head, and those of each node."""
    return await page(world) + await world.head.part(NodeReadings).page()


def value(text: str, name: str) -> float:
    return float(
        next(
            line.rpartition(" ")[2]
            for line in text.splitlines()
            if line.startswith(f"layercake_{name} ")
        )
    )


async def test_a_page_is_what_prometheus_reads(world: World) -> None:
    record = world.node("n0")
    world.head.engine.post(record, Discovered({"power": "ON"}, "the test says so"))
    world.head.store.event(record, MUTATION_DONE, "", data={"mutation": "power-on", "seconds": 3.0})
    world.head.store.event(
        record, MUTATION_FAILED, "", data={"mutation": "boot-wait", "attempt": 1}
    )
    text = await page(world)
    assert checked(text) == ""
    assert value(text, 'nodes_state{variable="power",value="ON"}') == 1
    assert value(text, 'mutation_seconds_bucket{mutation="power-on",le="2"}') == 0
    assert value(text, 'mutation_seconds_bucket{mutation="power-on",le="5"}') == 1
    assert value(text, 'mutation_failures_total{mutation="boot-wait"}') == 1
    assert value(text, "process_resident_memory_bytes") > 10 << 20
    assert (
        sum(
            float(line.rpartition(" ")[2])
            for line in text.splitlines()
            if line.startswith("layercake_nodes{")
        )
        == 2
    )


async def test_how_long_nodes_were_not_as_wanted_is_counted(world: World) -> None:
    record = world.node("n0")
    before = value(await page(world), "convergence_seconds_count")
    world.tick(40)
    world.head.engine.post(record, Discovered(record.goal_values, "the test says so"))
    text = await page(world)
    assert value(text, "convergence_seconds_count") == before + 1
    assert value(text, 'convergence_seconds_bucket{le="30"}') == before
    assert value(text, 'convergence_seconds_bucket{le="60"}') == before + 1


async def test_bmcs_are_timed_by_driver_and_the_last_numbers_stay(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    latencies = Latencies()
    for seconds in (0.02, 0.04, 7.0):
        latencies.of("ipmi")(seconds, True)
    latencies.of("redfish")(2.0, False)

    async def answers(module: str, method: str, params: object, timeout: float = 0.0) -> object:
        counted = {"nodes": 2, "dhcp.offered": 7, "dhcpv6.offered": 1, "http.2xx": 3}
        return msgspec.to_builtins(latencies.view()) if module == "powerman" else counted

    async def silent(module: str, method: str, params: object, timeout: float = 0.0) -> object:
        raise Unreachable("cannot ask: it does not run")

    metrics = world.head.part(Metrics)
    for how in (answers, silent):
        monkeypatch.setattr(world.head.modules.host, "call", how)
        text = await metrics.page()
        assert checked(text) == ""
        assert value(text, 'bmc_seconds_bucket{driver="ipmi",le="0.05"}') == 2
        assert value(text, 'bmc_seconds_count{driver="ipmi"}') == 3
        assert value(text, 'bmc_failures_total{driver="redfish"}') == 1
        assert value(text, 'dhcp_packets_total{what="offered"}') == 7, "and not that of IPv6"
        assert value(text, 'boot_http_requests_total{what="2xx"}') == 3


def test_what_others_have_said_breaks_no_line() -> None:
    made = Page()
    made.add("x", "gauge", "A test.", [({"cause": 'a "b"\\\nlayercake_nodes 9'}, 1.5)])
    made.histograms("y_seconds", "A test.", [({}, Histogram(BUCKETS))])
    assert checked(made.text()) == ""
    assert 'layercake_x{cause="a \\"b\\"\\\\\\nlayercake_nodes 9"} 1.5' in made.text().splitlines()


async def test_labels_are_bounded(world: World) -> None:
    """A node's name, address or MAC is no label: ten thousand would be ten thousand series."""
    world.head.store.event(
        world.node("n0"), MUTATION_FAILED, "", data={"mutation": "a node's own idea"}
    )
    text = await page(world)
    assert value(text, 'mutation_failures_total{mutation="other"}') == 1
    labels = re.findall(r'="([^"]*)"', text)
    assert labels
    assert not {"n0", "n1", "10.1.0.10", "52:54:00:00:00:10"} & set(labels)


def test_the_alerts_are_prometheus_own_and_go_off_when_they_should(tmp_path: Path) -> None:
    for file in (RULES, HERE / "layercake.rules.test.yml"):
        shutil.copy(file, tmp_path)
    for words in (("check", "rules", RULES.name), ("test", "rules", "layercake.rules.test.yml")):
        done = subprocess.run(
            [promtool(), *words],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr


async def test_alerts_are_about_what_there_is(world: World) -> None:
    text = await pages(world)
    names = {
        name
        for group in yaml.safe_load(RULES.read_text())["groups"]
        for rule in group["rules"]
        for name in map(of_histogram, re.findall(r"layercake_\w+", rule["expr"]))
    }
    assert names
    for name in names:
        assert f"# TYPE {name} " in text, name


def of_histogram(name: str) -> str:
    """A histogram's own name."""
    return re.sub("_seconds_(bucket|sum|count)$", "_seconds", name)


def expressions() -> list[str]:
    """What the panels of the Grafana dashboard ask, with its variables filled in."""
    panels = json.loads(BOARD.read_text())["panels"]
    return [
        target["expr"].replace("$job", "layercake")
        for panel in panels
        for target in panel["targets"]
    ]


def test_the_panels_ask_what_prometheus_understands(tmp_path: Path) -> None:
    rules = [
        {"record": f"panel:{number}", "expr": expression}
        for number, expression in enumerate(expressions())
    ]
    (tmp_path / "panels.yml").write_text(
        yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]})
    )
    done = subprocess.run(
        [promtool(), "check", "rules", "panels.yml"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0 and f"{len(rules)} rules found" in done.stdout, (
        done.stdout + done.stderr
    )


def test_what_is_down_is_counted_also_where_no_more_is_known_of_a_head(tmp_path: Path) -> None:
    (panel,) = (p for p in json.loads(BOARD.read_text())["panels"] if "down" in p["title"])
    expression = panel["targets"][0]["expr"].replace("$job", "layercake")
    one = 'layercake_service_up{job="layercake",service="%s"}'
    series = {
        'up{job="layercake"}': "1 1 0",
        'layercake_database_up{job="layercake"}': "1 0 stale",
        one % "pxe": "1 0 stale",
        one % "power": "1 0 stale",
    }
    expected = [
        {
            "expr": expression,
            "eval_time": f"{minute}m",
            "exp_samples": [{"labels": "{}", "value": down}],
        }
        for minute, down in enumerate((0, 3, 1))
    ]
    group = {
        "interval": "1m",
        "input_series": [{"series": s, "values": v} for s, v in series.items()],
        "promql_expr_test": expected,
    }
    (tmp_path / "test.yml").write_text(yaml.safe_dump({"rule_files": [], "tests": [group]}))
    done = subprocess.run(
        [promtool(), "test", "rules", "test.yml"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


async def test_panels_are_about_what_there_is(world: World) -> None:
    text = await pages(world)
    names = {
        of_histogram(name)
        for expression in expressions()
        for name in re.findall(r"layercake_\w+", expression)
    }
    assert len(names) > 10
    for name in names:
        assert f"# TYPE {name} " in text, name
    assert len({panel["id"] for panel in json.loads(BOARD.read_text())["panels"]}) == len(
        json.loads(BOARD.read_text())["panels"]
    )


@pytest.mark.parametrize("seconds", [0.0, 0.5, 1e9])
def test_a_histogram_takes_all(seconds: float) -> None:
    found = Histogram(BUCKETS)
    found.add(seconds)
    assert sum(found.counts) == 1
