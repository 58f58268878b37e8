"""The resource agent for Pacemaker, on an installed machine under its systemd, called as Pacemaker
calls it: by its actions and their exit codes, in the order in which ocf-tester does.

Each test goes on where the one before it left the machine.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest
from cleanroot import SUITES, CleanRoot, base
from headrun import CACHE

from layercake.debian.build import OCF_AGENT

pytestmark = pytest.mark.root
SUCCESS = 0
FAILED = 1
ARGUMENTS = 2
UNIMPLEMENTED = 3
INSTALLED = 5
CONFIGURED = 6
STOPPED = 7
CONFIG = "/var/lib/layercake/config.yaml"
ACTIONS = {"start", "stop", "monitor", "meta-data", "validate-all"}


@pytest.fixture(scope="module")
def machine(package: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[CleanRoot]:
    """The package is installed, and the site made; the cluster is what starts the head."""
    clean = base(CACHE / "images", SUITES["12"])
    with CleanRoot(tmp_path_factory.mktemp("ocf"), clean) as made:
        made.apt("install", made.put(package))
        made.run("layercake", "init", "--no-boot", "--yes")
        yield made


def agent(machine: CleanRoot, action: str, **parameters: str) -> subprocess.CompletedProcess[str]:
    """An action, with parameters of the resource."""
    words = [f"OCF_RESKEY_{name}={value}" for name, value in parameters.items()]
    standard = ("OCF_ROOT=/usr/lib/ocf", "OCF_RESOURCE_INSTANCE=head")
    return machine.run("env", *standard, *words, f"/{OCF_AGENT}", action, check=False)


def code(machine: CleanRoot, action: str, **parameters: str) -> int:
    return agent(machine, action, **parameters).returncode


def answers(machine: CleanRoot) -> bool:
    return machine.run("layercake", "status", check=False).returncode == 0


def test_meta_data_says_all_that_can_be_set_and_done(machine: CleanRoot) -> None:
    """By whoever asks: a cluster's shells do as nobody."""
    words = ("setpriv", "--reuid=65534", "--clear-groups", f"/{OCF_AGENT}", "meta-data")
    root = ElementTree.fromstring(machine.run(*words).stdout)  # noqa: S314 - our own
    assert (root.tag, root.get("name")) == ("resource-agent", "layercake")
    assert [child.tag for child in root] == [
        "version",
        "longdesc",
        "shortdesc",
        "parameters",
        "actions",
    ]
    parameters = {str(one.get("name")): one for one in root.iter("parameter")}
    for one in parameters.values():
        assert [child.tag for child in one] == ["longdesc", "shortdesc", "content"]
        assert one[2].get("type") in ("string", "integer") and one[2].get("default")
    script = (machine.root / OCF_AGENT).read_text()
    assert parameters.keys() == {"unit", "socket", "answer_s"}
    assert all(
        f"OCF_RESKEY_{name}:-{one[2].get('default')}" in script for name, one in parameters.items()
    )
    actions = {one.get("name"): one for one in root.iter("action")}
    assert actions.keys() == ACTIONS and all(one.get("timeout") for one in actions.values())


def test_what_cannot_be_is_refused(machine: CleanRoot) -> None:
    enabled = agent(machine, "validate-all")
    assert enabled.returncode == INSTALLED and "systemctl disable layercake" in enabled.stderr
    assert code(machine, "start") == INSTALLED and not answers(machine)
    machine.run("systemctl", "disable", "layercake")
    assert code(machine, "validate-all") == SUCCESS
    for bad in ("", "0", "-1", "soon", "1; reboot", "99999"):
        assert code(machine, "validate-all", answer_s=bad or " ") == CONFIGURED
    assert code(machine, "validate-all", unit="layercake") == CONFIGURED
    assert code(machine, "validate-all", unit="other.service") == INSTALLED
    assert code(machine, "promote") == UNIMPLEMENTED
    assert machine.run(f"/{OCF_AGENT}", check=False).returncode == ARGUMENTS


def test_a_head_that_is_one_of_several_or_has_no_storage_is_not_started(machine: CleanRoot) -> None:
    own = machine.run("cat", CONFIG).stdout
    machine.run("cp", "--dereference", CONFIG, "/root/config.yaml")
    machine.run("sh", "-c", f"printf 'heads:\\n  name: head1\\n' >> {CONFIG}")
    assert code(machine, "start") == CONFIGURED
    machine.run("cp", "/root/config.yaml", CONFIG)
    machine.run("mv", CONFIG, f"{CONFIG}.away")
    assert code(machine, "validate-all") == SUCCESS  # it is mounted on the other machine
    assert code(machine, "monitor") == STOPPED
    assert code(machine, "start") == INSTALLED
    machine.run("mv", f"{CONFIG}.away", CONFIG)
    assert machine.run("cat", CONFIG).stdout == own and not answers(machine)


def test_the_walk_of_a_cluster_over_its_actions(machine: CleanRoot) -> None:
    assert code(machine, "monitor") == STOPPED
    for _ in range(2):
        assert code(machine, "start") == SUCCESS and answers(machine)
        assert code(machine, "monitor") == SUCCESS
        assert code(machine, "start") == SUCCESS
        assert machine.limits("layercake", ["Restart", "ActiveState"]) == {
            "Restart": "no",
            "ActiveState": "active",
        }
        assert code(machine, "stop") == SUCCESS
        assert code(machine, "monitor") == STOPPED and not answers(machine)
        assert code(machine, "stop") == SUCCESS
    assert machine.limits("layercake", ["Restart"]) == {"Restart": "on-failure"}


def test_a_head_that_hangs_is_no_stopped_one_and_is_stopped_all_the_same(
    machine: CleanRoot,
) -> None:
    assert code(machine, "start") == SUCCESS
    elsewhere = agent(machine, "monitor", socket="/run/layercake/other.sock", answer_s="5")
    assert elsewhere.returncode == FAILED
    pid = machine.limits("layercake", ["MainPID"])["MainPID"]
    machine.run("sh", "-c", f"kill -STOP {pid}")
    hung = agent(machine, "monitor", answer_s="2")
    assert hung.returncode == FAILED and "does not answer within 2 s" in hung.stderr
    assert code(machine, "stop") == SUCCESS and code(machine, "monitor") == STOPPED
    assert not (machine.root / "proc" / pid).exists()


def test_a_head_that_died_is_a_stopped_one_and_systemd_does_not_start_it_again(
    machine: CleanRoot,
) -> None:
    assert code(machine, "start") == SUCCESS
    pid = machine.limits("layercake", ["MainPID"])["MainPID"]
    machine.run("sh", "-c", f"kill -KILL {pid}")
    while code(machine, "monitor") == FAILED:  # the unit ends what is left of it
        pass
    assert code(machine, "monitor") == STOPPED
    assert machine.limits("layercake", ["ActiveState", "NRestarts"]) == {
        "ActiveState": "failed",
        "NRestarts": "0",
    }
    assert code(machine, "start") == SUCCESS and answers(machine)
    assert code(machine, "stop") == SUCCESS
