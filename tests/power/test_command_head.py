"""A whole head whose nodes are switched by a program: from config.yaml and the inventory to what
the outlet is."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from headclient import HeadClient
from headinit import init
from hostnode import HeadNamespace

pytestmark = pytest.mark.root
ROOT = Path(__file__).resolve().parents[2]
PASSWORD = "s3cr3t-of-the-pdu"
PROGRAM = """#!/bin/sh
# Outlets are files; a wrong password is told.
IFS= read -r user; IFS= read -r password
[ "$user:$password" = "admin:SECRET" ] || exit 77
outlet="$(dirname "$0")/$(echo "$2" | tr / -)"
case "$1" in
    status) cat "$outlet" ;;
    on|off) echo "$1" > "$outlet" ;;
    *) exit 64 ;;
esac
""".replace("SECRET", PASSWORD)


class Site(HeadClient):
    """A head of its own, and the outlets."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory / "head/api.sock", directory / "head.log")
        self.data, self.outlets, self.namespace = (
            directory / "head",
            directory / "outlets",
            HeadNamespace(),
        )

    def __enter__(self) -> Site:
        self.namespace.up()
        self.outlets.mkdir()
        program = self.outlets / "program"
        program.write_text(PROGRAM)
        program.chmod(0o755)
        programs = {"own": {"path": str(program), "timeout_s": 20}}
        settings = {"socket": str(self.socket), "power": {"poll_s": 1.0, "programs": programs}}
        init(self.data, self.namespace.inside, settings)
        (self.data / "boot").mkdir()
        for name in ("vmlinuz", "minos.img"):  # no machine loads them
            (self.data / "boot" / name).write_bytes(b"-")
        self.secret = self.data / "secrets/pdu"
        self.secret.parent.mkdir(mode=0o700, exist_ok=True)
        self.secret.touch(mode=0o600)
        self.secret.write_text(PASSWORD)
        argv = [
            *self.namespace.inside,
            sys.executable,
            "-m",
            "layercake.cli.main",
            "serve",
            "--data-dir",
            str(self.data),
        ]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        self.serve(
            lambda log: subprocess.Popen(
                argv, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        )
        return self

    def __exit__(self, *_: object) -> None:
        self._end(signal.SIGTERM)
        self.namespace.down()

    def apply(self, **programs: str) -> None:
        """Nodes that are wanted off, each at an outlet of a program."""
        bmc = {"driver": "command", "username": "admin", "password": {"file": str(self.secret)}}
        nodes = {
            name: {
                "mac": f"52:54:00:00:00:{n:02x}",
                "ip": f"10.97.0.{100 + n}",
                "state": "off",
                "bmc": {**bmc, "program": program, "address": f"pdu1/{n}"},
            }
            for n, (name, program) in enumerate(programs.items(), 1)
        }
        for n in range(1, len(nodes) + 1):
            (self.outlets / f"pdu1-{n}").write_text("on\n")
        text = yaml.safe_dump({"defaults": {"images": []}, "nodes": nodes}, sort_keys=False)
        self.api(
            "POST", "/v1/inventory/apply", {"yaml": text, "file": "x.yaml", "allow_remove": False}
        )

    def state(self, name: str) -> Any:
        """The power that the head knows."""
        return {n["name"]: n for n in self.api("GET", "/v1/nodes")["nodes"]}[name]["state"]["power"]

    def outlet(self, number: int) -> str:
        """What it really is."""
        return (self.outlets / f"pdu1-{number}").read_text().strip()


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """A head that runs."""
    with Site(tmp_path) as running:
        yield running


def test_a_head_switches_nodes_by_a_program(site: Site) -> None:
    site.apply(n1="own", n2="none")
    site.wait("n1 is known", lambda: site.state("n1") == "ON", 60)
    text = site.api("GET", "/v1/nodes/n1/explain")["text"]
    assert "not ours" in text, "it was found running"
    site.api("POST", "/v1/power", {"range": "n1", "action": "off", "force": True})
    site.wait("n1 is off", lambda: site.state("n1") == "OFF" and site.outlet(1) == "off", 60)
    site.api("POST", "/v1/power", {"range": "n1", "action": "on"})
    site.wait("n1 is on", lambda: site.state("n1") == "ON" and site.outlet(1) == "on", 60)
    (site.outlets / "pdu1-1").write_text("off\n")  # somebody pulls the plug
    site.wait("n1 is switched on again", lambda: site.outlet(1) == "on", 120)
    site.wait("that is known", lambda: site.state("n1") == "ON", 60)
    rows = {row["node"]: row for row in site.api("GET", "/v1/power?range=@all")["power"]}
    assert (
        rows["n1"]["driver"] == "command"
        and rows["n1"]["address"] == "pdu1/1"
        and rows["n1"]["power"] == "ON"
    )
    assert (
        "config.yaml has no program 'none' in power.programs" in rows["n2"]["error"]
        and site.outlet(2) == "on"
    )
    told = str(site.api("GET", "/v1/events?limit=1000")) + site.log()
    assert PASSWORD not in told
