"""All machines of a site with several heads are lost with what was on them: a backup is restored on
a new machine, heads begin again there, and others join; the nodes run on meanwhile. The steps are
those of docs/howto/second-head.md."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from layercake.heads.member import PROGRAM
from layercake.sim import site as sim
from layercake.sim.inventory import simulated_site
from powerman.drivers.sim import SOCKET as BMCS
from tests.support.several_heads import ROOT, SiteOfHeads
from tests.support.simulated_nodes import Nodes, Options

pytestmark = pytest.mark.root
NODES = 4
INVENTORY = """
defaults: {state: up, images: [one]}
nodes:
  n[1-4]:
    mac: "02:00:00:00:00:01+"
    ip: 10.0.0.101+
    bmc: {driver: sim, address: 10.128.0.1+}
"""
MACHINES = ("head1", "witness1", "head2", "head3", "witness2", "head4")
"""At 10.0.0.1, and so on; the first three are lost."""


class SimulatedNodes:
    """Nodes in the namespace of a site, and what their BMCs and agents saw."""

    def __init__(self, site: SiteOfHeads, options: Options) -> None:
        inside = ["ip", "netns", "exec", site.namespace, sys.executable]
        words = [*inside, "-m", "tests.support.simulated_nodes"]
        with (site.directory / "nodes.log").open("ab") as log:
            self._process = subprocess.Popen(
                [*words, msgspec.json.encode(options).decode()],
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )

    def observe(self) -> Nodes:
        """How they are."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return msgspec.json.decode(self._process.stdout.readline(), type=Nodes)

    def end(self) -> None:
        """Ends them."""
        self._process.kill()
        self._process.communicate()


@pytest.fixture
def site(tmp_path: Path) -> Iterator[SiteOfHeads]:
    """An empty site, in whose namespace nodes have their addresses."""
    if shutil.which(PROGRAM) is None:
        pytest.skip("there is no etcd: install Debian's etcd-server and etcd-client")
    made = SiteOfHeads(tmp_path, "10.0.0")
    made.up()
    try:
        ip = ["ip", "-n", made.namespace]
        subprocess.run([*ip, "route", "add", "local", "default", "dev", "lo"], check=True)
        for name in MACHINES:
            words = ["addr", "add", f"{made.address(name)}/24", "dev", "lo"]
            subprocess.run([*ip, *words], check=True)
        yield made
    finally:
        made.down()


def begin(site: SiteOfHeads) -> SimulatedNodes:
    """The site as it was: head1 leads, its nodes are there."""
    directory = site.data("head1")
    directory.mkdir()
    simulated = simulated_site(INVENTORY, heads=["10.0.0.1/24"])
    settings = sim.settings_of(
        directory,
        simulated,
        address="10.0.0.1/24",
        changes={"guard.site_boots": 1000, "power.poll_s": 1.0},
    )
    sim.prepare(directory, settings, simulated)
    for name in ("files", "ipxe"):  # where images are made; what a package of Debian installs
        (directory / name).rename(site.directory / name)
    change_setting(site, "head1", "boot", {"ipxe_dir": str(site.directory / "ipxe")})
    boot = next(s for s in settings.sections.values() if hasattr(s, "dhcp_port"))
    options = Options(
        INVENTORY,
        [site.address(name) for name in MACHINES],
        str(shutil.copy(directory / "pki/ca.pem", site.directory)),
        str(site.directory / "bmcs.sock"),
        settings.api_port,
        settings.sync.port,
        boot.http_port,
    )
    nodes = SimulatedNodes(site, options)
    nodes.observe()
    connect(site, "head1")
    lead(site, "head1")
    return nodes


def change_setting(site: SiteOfHeads, name: str, key: str, value: Any) -> None:
    """Changes a setting of the head of a machine, or some of a section."""
    path = site.data(name) / "config.yaml"
    config = yaml.safe_load(path.read_text())
    config[key] = {**config[key], **value} if isinstance(value, dict) else value
    path.write_text(yaml.safe_dump(config))


def connect(site: SiteOfHeads, name: str) -> None:
    """The head of a machine reaches the BMCs."""
    (site.data(name) / BMCS).symlink_to(site.directory / "bmcs.sock")


def lead(site: SiteOfHeads, name: str) -> None:
    """Makes a head that is stopped the first of several, and starts it."""
    site.output("heads", "begin", "--data-dir", site.data(name), "--name", name, "--yes")
    site.start("store", name)
    site.start("serve", name)
    site.wait(f"{name} leads", lambda: site.leads(name, name))


def add_image(site: SiteOfHeads, head: str) -> None:
    """Gives the site the image, from where the images are made."""
    file = site.directory / "files/one.squashfs"
    site.output("image", "add", "one", file, head=head)


def converged(site: SiteOfHeads, head: str) -> bool:
    """Whether a head serves, and says that all nodes are as they should be."""
    done = site.run("status", "--json", head=head)
    try:
        return bool(json.loads(done.stdout)["nodes"]["converged"] == NODES)
    except (ValueError, KeyError):
        return False


def follow(site: SiteOfHeads, nodes: SimulatedNodes, head: str, address: str) -> None:
    """Waits until all nodes run what they should, and follow a head."""
    site.wait(f"the nodes run, says {head}", lambda: converged(site, head))
    site.wait(f"the nodes follow {head}", lambda: {*nodes.observe().heads.values()} == {address})


def lose_all(site: SiteOfHeads, *names: str) -> None:
    """All machines are lost."""
    for name in names:
        for what in ("serve", "store"):
            if f"{name}.{what}" in site.processes:
                site.kill(f"{name}.{what}")
    for name in names:
        shutil.rmtree(site.data(name))


def test_all_machines_are_lost_and_a_backup_brings_the_heads_back(site: SiteOfHeads) -> None:
    nodes = begin(site)
    try:
        add_image(site, "head1")
        inventory = site.directory / "nodes.yaml"
        inventory.write_text(INVENTORY)
        site.output("apply", "--yes", "--no-wait", inventory, head="head1")
        site.witness("head1", "witness1")
        site.join("head1", "head2")
        connect(site, "head2")
        follow(site, nodes, "head1", site.address("head1"))
        token = site.document("token", "create", "ci", "--role", "viewer", head="head1")
        shown = site.document("inventory", "show", head="head1")
        passphrase = site.directory / "passphrase"
        passphrase.write_text("a long passphrase")
        words = (site.directory / "head.backup", "--passphrase-file", passphrase, "--data-dir")
        site.output("backup", *words, site.data("head1"))
        shutil.copytree(site.data("head1") / "boot", site.directory / "boot")

        # After the backup another head leads, so nodes know a later epoch than the backup does.
        site.output("heads", "promote", "head2", "--yes", head="head1")
        site.wait("head2 leads", lambda: site.leads("head2", "head2"))
        follow(site, nodes, "head2", site.address("head2"))
        before = nodes.observe()
        lose_all(site, "head1", "head2", "witness1")

        # A new machine, with the address of the head that the backup is of.
        site.output("restore", *words, site.data("head3"))
        shutil.copytree(site.directory / "boot", site.data("head3") / "boot")  # `init` builds it
        connect(site, "head3")
        change_setting(site, "head3", "socket", str(site.socket("head3")))
        site.start("serve", "head3")
        site.wait("it serves", lambda: site.socket("head3").exists())
        add_image(site, "head3")
        follow(site, nodes, "head3", site.address("head1"))
        site.kill("head3.serve", signal.SIGTERM)

        # It is the first of several again, and others join.
        lead(site, "head3")
        site.witness("head3", "witness2")
        site.join("head3", "head4")
        connect(site, "head4")
        assert [one["head"] for one in site.heads("head3")["heads"]] == ["head3", "head4"]
        assert site.document("inventory", "show", head="head3") == shown
        follow(site, nodes, "head3", site.address("head1"))
        site.output("heads", "promote", "head4", "--yes", head="head3")
        site.wait("head4 leads", lambda: site.leads("head4", "head4"))
        follow(site, nodes, "head4", site.address("head4"))
        listed = site.document("image", "list", head="head4")
        assert [one["name"] for one in listed["images"]] == ["one"]
        url = f"https://{site.address('head4')}:8443"
        (site.directory / "token").write_text(token["token"])
        at = ("--url", url, "--token-file", site.directory / "token", "--ca")
        names = site.document(*at, site.directory / "ca.pem", "node", "list")["nodes"]
        assert [one["name"] for one in names] == ["n1", "n2", "n3", "n4"]
        known = [f"{name} is away" for name in ("head1", "head2")]
        status = site.output("status", head="head4")
        assert not any(text in status for text in known), status
        after = nodes.observe()
        assert (after.lives, after.commands) == (before.lives, before.commands)
    finally:
        nodes.end()
