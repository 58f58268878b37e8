"""The main path and its failures on a rack of real firmware, real BMC protocols, a real kernel and
real containers."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import sys
import time
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml
from headrun import ROOT
from patience import patience
from vrack import netns

from layercake import __version__
from minos.build import sets
from tests.vm import beside, relay
from tests.vm.conftest import BOOT_S, Site

pytestmark = pytest.mark.vm
BOTH = ("n0", "n1")
OLD_VERSION = Path(__file__).resolve().parents[1] / "versions" / "layercake-0.1.0-py3-none-any.whl"


def kinds(site: Site, node: str, since: float = 0.0) -> list[str]:
    return [e["kind"] for e in site.head.history(node) if e["at"] >= since]


def on_node(site: Site, node: str, path: str) -> str:
    """What a file on a node says. An agent that has just begun does not serve yet."""

    def asked() -> bool:
        return site.head.cli("node", "exec", node, "--", "id", check=False).returncode == 0

    site.head.wait(f"{node} serves", asked, 60)
    return site.head.cli("node", "exec", node, "--", "cat", path).stdout


def test_cold_boot_takes_every_step_and_records_it(site: Site) -> None:
    site.told(*BOTH)
    for name in BOTH:
        seen = kinds(site, name)
        for kind in (
            "boot.discover-seen",
            "boot.script-sent",
            "boot.kernel-sent",
            "boot.initrd-sent",
            "node.joined",
            "sync.attached",
            "image.started",
        ):
            assert kind in seen, f"{name} has no {kind} in its history"
    assert "init: Python" in site.rack.console(0)
    assert "iPXE" in site.rack.console(1)
    assert "boot.nbp-sent" in kinds(site, "n1"), "OVMF's own PXE fetched a boot program by TFTP"


def said(site: Site, name: str, words: str) -> None:
    """Returns when a node's container has said something: it may have been started a moment ago."""
    site.head.wait(
        f"{name} says {words}", lambda: words in site.head.cli("node", "logs", name).stdout, 60
    )


def test_defect_8_logs_of_a_container_are_readable_from_the_head(site: Site) -> None:
    for name in BOTH:
        said(site, name, "plain-1 line")


def test_roll_prepares_the_new_image_while_the_old_one_runs(site: Site) -> None:
    before = site.facts()
    start = time.time()
    site.head.cli("image", "roll", "n[0-1]", "plain-2")
    site.told(*BOTH)
    for name in BOTH:
        events = [e for e in site.head.history(name) if e["at"] >= start]
        order = [e["kind"] for e in events if e["kind"] in ("image.prepared", "image.rolled")]
        assert order == ["image.prepared", "image.rolled"]
        rolled = next(e for e in events if e["kind"] == "image.rolled")
        assert rolled["data"]["gap_ms"] < patience(3000)
        assert site.head.nodes()[name]["images"]["running"][0]["name"] == "plain-2"
        said(site, name, "plain-2 line")
    after = site.facts()
    assert [after[n][0::2] for n in BOTH] == [before[n][0::2] for n in BOTH], (
        "a roll must not boot a node"
    )
    site.head.cli("image", "roll", "n[0-1]", "plain-1")


def test_systemd_image_reaches_multi_user(site: Site) -> None:
    site.head.cli("image", "roll", "n0", "debian-1")
    site.head.wait("systemd is up", lambda: "multi-user reached" in site.rack.console(0), 120)
    assert "LAYERCAKE-IMAGE version=debian-1" in site.head.cli("node", "logs", "n0").stdout
    site.head.cli("image", "roll", "n0", "plain-1")


def test_files_are_there_at_the_start_and_change_live(site: Site) -> None:
    """In minOS, in an image without systemd, and in one with it, whose unit is reloaded."""

    def of(node: str, path: str, container: str = "") -> str:
        which = ("--container", container) if container else ()
        return site.head.cli("node", "exec", node, *which, "--", "cat", path, check=False).stdout

    def entry(text: str) -> str:
        return site.inventory(
            images=["debian-1"],
            files={
                "/etc/motd": {"source": "motd.j2", "on_change": "write"},
                "minos:/etc/site.conf": {"content": f"{text}\n"},
                "debian-1:/etc/app.conf": {
                    "content": f"{text}\n",
                    "on_change": "reload dbus.service",
                },
            },
        )

    (site.files / "motd.j2").write_text("one on {{ node.name }} beside {{ nodes | length - 1 }}\n")
    site.head.apply(entry("first"))
    site.head.wait_converged(180)
    site.head.wait("minOS has its file", lambda: of("n1", "/etc/site.conf") == "first\n", 60)
    assert (
        of("n1", "/etc/motd", "debian-1") == "one on n1 beside 1\n"
        and of("n1", "/etc/hostname", "debian-1") == "n1\n"
    )
    assert len(of("n1", "/etc/machine-id", "debian-1")) == 33
    before, start = site.facts(), time.time()
    (site.files / "motd.j2").write_text("two on {{ node.name }}\n")
    plan = site.head.api("POST", "/v1/inventory/plan", {"yaml": entry("second")})
    assert plan["files"] == [
        {"path": "motd.j2", "action": "change", "added": 1, "removed": 1, "nodes": 1}
    ]
    site.head.apply(entry("second"))
    site.head.wait(
        "it is told", lambda: kinds(site, "n1", start).count("node.files-written") >= 2, 60
    )
    assert (
        of("n1", "/etc/motd", "debian-1") == "two on n1\n"
        and of("n1", "/etc/site.conf") == "second\n"
    )
    written = [
        e["data"]
        for e in site.head.history("n1")
        if e["kind"] == "node.files-written" and e["at"] >= start
    ]
    assert ["reload dbus.service"] in [data.get("done") for data in written], site.head.history(
        "n1"
    )[-5:]
    assert "two on n1" in site.head.cli("files", "show", "n1", "/etc/motd").stdout
    assert site.facts() == before, "nothing was started anew"
    site.head.apply(site.inventory())
    site.head.wait_converged(180)


def test_head_killed_touches_no_healthy_node(site: Site) -> None:
    before = site.facts()
    time.sleep(1)  # the last half second of the history is lost with a head that is killed
    site.head.kill()
    time.sleep(3)
    site.head.start()
    site.head.wait_converged(180)
    time.sleep(
        15
    )  # longer than the grace: what was going to be done by mistake would be done by now
    site.head.wait_converged(180)
    assert site.facts() == before
    for name in BOTH:
        assert "mutation.started" not in kinds(site, name, time.time() - 15)


@pytest.mark.parametrize("service", ["pxe", "powerman", "imageapi"])
def test_service_killed_is_started_again_and_touches_no_node(site: Site, service: str) -> None:
    before = site.facts()

    def status() -> dict[str, Any]:
        return next(
            s for s in site.head.api("GET", "/v1/status")["services"] if s["name"] == service
        )

    pid = status()["pid"]
    os.kill(pid, signal.SIGKILL)
    site.head.wait(
        f"{service} runs again",
        lambda: status()["pid"] not in (None, pid) and status()["state"] == "running",
        120,
    )
    site.head.wait_converged(180)
    assert site.facts() == before


def test_bmc_unreachable_for_a_while_stalls_nobody(site: Site) -> None:
    before, start = site.facts(), time.time()
    site.rack.pause_bmc(0)
    try:
        site.head.wait(
            "it is noticed", lambda: "power.unreachable" in kinds(site, "n0", start), 120
        )
        asked = time.monotonic()
        rows = {r["node"]: r for r in site.head.api("GET", "/v1/power?range=n1")["power"]}
        assert rows["n1"]["power"] == "ON"
        assert time.monotonic() - asked < patience(3)
        assert site.head.nodes()["n0"]["status"] == "converged", (
            "a dead BMC is no reason to touch a node that runs"
        )
    finally:
        site.rack.resume_bmc(0)
    site.head.wait("it is well again", lambda: "power.recovered" in kinds(site, "n0", start), 120)
    assert site.facts() == before


def test_machine_killed_from_outside_boots_again_and_the_other_is_left_alone(site: Site) -> None:
    before = site.facts()
    site.rack.kill_vm(0)
    site.head.wait(
        "it boots anew",
        lambda: site.head.nodes()["n0"]["boot_id"] not in ("", None, before["n0"][0]),
        BOOT_S,
    )
    site.head.wait_converged(BOOT_S)
    after = site.facts()
    assert after["n0"][2] == before["n0"][2] + 1
    assert after["n1"] == before["n1"]


def test_a_hundred_seconds_without_network_touch_no_node(site: Site) -> None:
    before, start = site.facts(), time.time()
    for index in (0, 1):
        site.rack.unplug(index)
    try:
        time.sleep(100)  # a switch that restarts: power actions would have begun after 70
        assert site.head.api("GET", "/v1/guard")["outages"], "all nodes at once are an outage"
        assert "OUTAGE" in site.head.cli("status").stdout
    finally:
        for index in (0, 1):
            site.rack.plug(index)
    site.head.wait_converged(120)
    assert site.facts() == before
    for name in BOTH:
        assert not [
            e
            for e in site.head.history(name)
            if e["at"] >= start and "power-" in e["text"] and "mutation" in e["kind"]
        ]
    site.head.wait(
        "the outage is over", lambda: not site.head.api("GET", "/v1/guard")["outages"], 60
    )


def test_a_frozen_rack_stays_as_it_is(site: Site) -> None:
    before, start = site.facts(), time.time()
    site.head.cli("freeze", "--reason", "the auditors are here")
    try:
        refused = (
            ["power", "cycle", "n0", "--force", "--yes"],
            ["power", "off", "n[0-1]", "--yes"],
            ["node", "off", "n1", "--yes"],
            ["image", "roll", "n[0-1]", "plain-2", "--yes"],
            ["node", "take", "n0", "--yes"],
            ["boot", "roll", "n0", sets.all_of(site.head.data / "boot")[0].name, "--yes"],
        )
        for command in refused:
            done = site.head.cli(*command, check=False)
            assert done.returncode == 4 and "the auditors are here" in done.stderr, (
                command,
                done.stderr,
            )
        site.head.cli("node", "clear", "n[0-1]")
        os.kill(
            next(
                s["pid"]
                for s in site.head.api("GET", "/v1/status")["services"]
                if s["name"] == "powerman"
            ),
            signal.SIGKILL,
        )
        site.head.kill()
        site.head.start()
        for index in (0, 1):
            site.rack.unplug(index)
        site.head.wait(
            "they are missed", lambda: site.head.api("GET", "/v1/guard")["silent"] == 2, 120
        )
        for index in (0, 1):
            site.rack.plug(index)
        site.rack.pause_bmc(0)
        site.head.wait(
            "they are back", lambda: site.head.api("GET", "/v1/guard")["silent"] == 0, 120
        )
        site.rack.resume_bmc(0)
        assert "FROZEN" in site.head.cli("status").stdout
        assert site.facts() == before
    finally:
        site.rack.resume_bmc(0)
        site.head.cli("thaw", "--yes")
    site.head.wait_converged(120)
    assert site.facts() == before
    assert not [
        e
        for name in BOTH
        for e in site.head.history(name)
        if e["at"] >= start
        and e["kind"] == "mutation.started"
        and e["data"]["mutation"] in ("power-on", "power-off", "power-reset", "boot-arm")
    ]


def test_a_head_upgrade_and_an_agent_swap_restart_no_container(site: Site, tmp_path: Path) -> None:
    before = site.facts()
    with zipfile.ZipFile(OLD_VERSION) as wheel:
        wheel.extractall(tmp_path)
    for code, version in ((tmp_path, "0.1.0"), (ROOT, __version__)):
        site.head.stop()
        site.head.code = code
        site.head.start()
        site.head.wait_converged(180)
        assert site.head.api("GET", "/v1/status")["version"] == version
        assert site.facts() == before, f"with the head of {version}"

    name = site.head.boot_set({"etc/second": b"yes\n"})
    agents = {n: on_node(site, n, "/run/layercake/agent.pid") for n in BOTH}
    site.head.cli("boot", "roll", "n[0-1]", name, "--agent-only", "--health-timeout", "1")
    for node in BOTH:
        assert (
            site.head.nodes()[node]["boots"]["agent"]
            == name
            != site.head.nodes()[node]["boots"]["runs"]
        )
        assert on_node(site, node, "/run/layercake/agent.pid") != agents[node]
    assert site.facts() == before

    site.head.cli("boot", "roll", "n0", name, "--yes", "--health-timeout", "1")
    after = site.facts()
    assert after["n0"][0] != before["n0"][0] and after["n1"] == before["n1"]
    assert on_node(site, "n0", "/etc/second") == "yes\n"
    assert f"layercake.boot={name}" in on_node(site, "n0", "/proc/cmdline")
    assert ["boot", "set", name] in [
        line.split() for line in site.head.cli("node", "show", "n0").stdout.splitlines()
    ]
    assert name in site.head.cli("boot", "list").stdout


def test_a_cycle_stops_images_first(site: Site) -> None:
    before, start = site.facts(), time.time()
    site.head.cli("power", "cycle", "n0", "--yes")
    site.head.wait("it was off", lambda: "power.cycled" in kinds(site, "n0", start), 120)
    site.head.wait_converged(BOOT_S)
    events = [e for e in site.head.history("n0") if e["at"] >= start]
    steps = [
        e["data"]["mutation"] if e["kind"] == "mutation.done" else e["kind"]
        for e in events
        if e["kind"] in ("mutation.done", "image.stopped")
    ]
    # A node may have stopped its image before a busy head had begun `image-stop` itself.
    order = [steps.index(s) for s in ("image.stopped", "detach", "power-off", "power-on")]
    assert order == sorted(order), steps
    assert site.facts()["n1"] == before["n1"]


def test_node_that_never_answers_dhcp_is_quarantined_and_explained(site: Site) -> None:
    site.head.api("POST", "/v1/nodes/state", {"range": "n1", "state": "off"})
    site.head.wait_converged(180, {"n1"})
    assert not site.rack.vm_alive(1)
    site.rack.unplug(1)
    starts = site.rack.machine(1)["starts"]
    try:
        site.head.apply(site.inventory(boot_timeout=10))
        site.head.wait(
            "n1 is quarantined", lambda: site.head.nodes()["n1"]["status"] == "quarantined", 180
        )
        assert site.rack.machine(1)["starts"] - starts == 2, "attempts are bounded by the settings"
        text = site.head.cli("node", "explain", "n1").stdout
        assert "quarantine" in text
        assert "DHCPDISCOVER" in text, "explain says how far the boot got"
        time.sleep(12)
        assert site.rack.machine(1)["starts"] - starts == 2, "and then nothing more is tried"
        assert site.head.nodes()["n0"]["status"] == "converged"
    finally:
        site.rack.plug(1)
        site.head.apply(site.inventory())
    site.head.cli("node", "clear", "n1")
    site.head.wait_converged(BOOT_S, {"n1"})


def switch_on(site: Site, index: int, what: str) -> None:
    """A person's own way to a machine that no inventory knows."""
    node, secret = site.rack.nodes[index], site.rack.secrets
    assert secret is not None
    tool = [
        "ipmitool",
        "-I",
        "lanplus",
        "-C",
        "3",
        "-H",
        node.bmc_address,
        "-U",
        "admin",
        "-f",
        str(secret.password_file),
    ]
    assert site.rack.run([*tool, "chassis", "power", what]).returncode == 0


def test_unknown_mac_gets_nothing_and_is_shown(site: Site) -> None:
    start = time.time()
    node = site.rack.nodes[2]
    switch_on(site, 2, "on")
    try:

        def shown() -> list[dict[str, Any]]:
            events = site.head.api("GET", "/v1/events?kind=dhcp.unknown-mac")["events"]
            return [
                e for e in events if e["at"] >= start and node.mac in e["text"] + repr(e["data"])
            ]

        site.head.wait("the unknown MAC is shown", shown, 120)
        assert "minos:" not in site.rack.console(2)
    finally:
        switch_on(site, 2, "off")


ANNOUNCE = """
import socket, sys, time
def tlv(kind, value):
    return (kind << 9 | len(value)).to_bytes(2, "big") + value
frame = bytes.fromhex("0180c200000e5254000000fe88cc") + tlv(1, b"\\x07sw") + tlv(2, b"\\x05Gi1/0/7") + tlv(3, b"\\0\\x78") + tlv(
    5, b"rack-sw\\x1b[31m") + tlv(0, b"")
with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as card:
    card.bind((sys.argv[1], 0))
    while True:
        card.send(frame)
        time.sleep(1)
"""
"""A switch with a hostile name, at the other end of a machine's cable."""


def test_unknown_machine_is_discovered_adopted_and_boots_as_a_node(site: Site) -> None:
    """It reports what it is made of and where it is cabled, and is a node once the inventory has
    its entry."""
    node, before = site.rack.nodes[2], yaml.safe_load(site.inventory())
    network = {
        "rack": {"subnet": "10.99.0.0/24", "guests": ["10.99.0.200-10.99.0.209"], "discovery": 2}
    }
    site.head.apply(yaml.safe_dump(before | {"networks": network}))
    switch = site.rack.exec([sys.executable, "-c", ANNOUNCE, netns.tap(2)])
    switch_on(site, 2, "on")
    try:

        def reported() -> bool:
            found = site.head.api("GET", "/v1/machines")["machines"]
            return any(m["mac"] == node.mac and m["port"] for m in found)

        site.head.wait("n2 has reported, and knows its switch", reported, BOOT_S)
        (seen,) = site.head.api("GET", "/v1/machines")["machines"]
        assert (seen["serial"], seen["switch"], seen["port"], seen["on"]) == (
            "SN-TWO",
            "rack-sw?[31m",
            "Gi1/0/7",
            True,
        )
        assert seen["memory"] > 300 << 20 and "joining" not in site.rack.console(2)
        entries = site.head.api("POST", "/v1/machines/adopt", {"name": "n[2-9]", "ip": node.ip})[
            "entries"
        ]
        more = yaml.safe_load("\n".join(entries))
        assert more["n2"]["mac"] == node.mac and more["n2"]["place"] == {
            "switch": "rack-sw?[31m",
            "port": "Gi1/0/7",
        }
        assert (
            seen["secure_boot"] and more["n2"]["secure_boot"] and more["n2"]["firmware"] == "uefi"
        )
        written = yaml.safe_load(site.rack.inventory())["nodes"]["n2"]
        own = {key: written[key] for key in ("bmc", "groups") if key in written}
        nodes = {**before["nodes"], "n2": {**more["n2"], "images": ["plain-1"], **own}}
        site.head.apply(yaml.safe_dump({**before, "networks": network, "nodes": nodes}))
        site.head.wait_converged(BOOT_S, {"n2"})
        assert site.head.api("GET", "/v1/machines")["machines"] == []
        site.head.wait("n2 hands its survey in", lambda: _surveyed(site, "n2"), 60)
    finally:
        switch.kill()
        switch.wait()
        switch_on(site, 2, "off")
        site.head.apply(yaml.safe_dump(before), allow_remove=True)


def _surveyed(site: Site, name: str) -> bool:
    found = site.head.cli("machine", "show", name, check=False)
    return found.returncode == 0 and "SN-TWO" in found.stdout


def test_image_whose_init_exits_at_once_ends_in_a_readable_state(site: Site) -> None:
    site.head.api("POST", "/v1/images/roll", {"range": "n0", "image": "crash"})
    site.head.wait("n0 gives up", lambda: site.head.nodes()["n0"]["state"]["image"] == "FATAL", 120)
    site.told("n0")
    text = site.head.cli("node", "explain", "n0").stdout
    assert "exit status 3" in text
    assert "cannot find its configuration" in text, "the end of its log is there"
    exits = [e for e in site.head.history("n0") if e["kind"] == "container.exited"]
    assert 3 <= len(exits) <= 4
    site.head.cli("image", "roll", "n0", "plain-1")
    assert site.head.nodes()["n0"]["state"]["image"] == "ACTIVE"


def test_node_whose_images_were_given_up_can_be_switched_off(site: Site) -> None:
    site.head.api("POST", "/v1/images/roll", {"range": "n0", "image": "crash"})
    site.head.wait("n0 gives up", lambda: site.head.nodes()["n0"]["state"]["image"] == "FATAL", 120)
    site.head.cli("node", "off", "n0", "--yes")
    site.head.wait_converged(180, {"n0"})
    assert not site.rack.vm_alive(0)
    site.head.api("POST", "/v1/images/roll", {"range": "n0", "image": "plain-1"})
    site.head.cli("node", "up", "n0")
    site.head.wait_converged(BOOT_S, {"n0"})


def test_image_whose_digest_does_not_match_never_runs(site: Site) -> None:
    stored = site.head.data / "images"
    added = site.head.api("GET", "/v1/images")["images"]
    digest = next(i["digest"] for i in added if i["name"] == "plain-2").partition(":")[2]
    file = next(p for p in stored.rglob(f"*{digest}*") if p.suffix == ".squashfs")
    good = site.head.data / "good.squashfs"
    shutil.copy(file, good)
    altered = bytearray(good.read_bytes())
    altered[-100] ^= 1
    file.chmod(0o600)
    file.write_bytes(altered)
    try:
        start = time.time()
        site.head.api("POST", "/v1/images/roll", {"range": "n1", "image": "plain-2"})
        site.head.wait(
            "it is refused", lambda: "image.digest-mismatch" in kinds(site, "n1", start), 120
        )
        assert "image.started" not in kinds(site, "n1", start)
        assert "digest" in site.head.cli("node", "explain", "n1").stdout
    finally:
        shutil.copy(good, file)
    site.head.cli("image", "roll", "n1", "plain-1")


def test_garbage_on_every_port_disturbs_nothing(site: Site) -> None:
    before = site.facts()
    code = (
        "import os, random, socket\n"
        "dice = random.Random(1)\n"
        "for port in (67, 69, 31415):\n"
        "    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:\n"
        "        for n in range(300):\n"
        "            s.sendto(dice.randbytes(dice.randrange(600)), ('10.99.0.1', port))\n"
        "        s.sendto(b'\\0\\1../../etc/passwd\\0octet\\0', ('10.99.0.1', port))\n"
        "        s.sendto(b'LC\\1\\1' + dice.randbytes(120), ('10.99.0.1', port))\n"
    )
    import sys

    done = site.rack.run([sys.executable, "-c", code])
    assert done.returncode == 0, done.stderr
    time.sleep(3)
    assert all(
        s["state"] == "running" and s["restarts"] <= 3
        for s in site.head.api("GET", "/v1/status")["services"]
    )
    assert all(n["status"] == "converged" for n in site.head.nodes().values())
    assert site.facts() == before


def test_join_over_tls_with_a_wrong_token_is_refused_and_shown(site: Site) -> None:
    node = site.head.nodes()["n0"]
    body = f'{{"node":"{node["id"]}","token":"wrong","boot_id":"b","mac":"m","version":"1"}}'
    done = site.rack.run(
        [
            "curl",
            "-s",
            "--cacert",
            str(site.head.data / "pki/ca.pem"),
            "-w",
            "%{http_code}",
            "-d",
            body,
            "https://10.99.0.1:8443/node/v1/join",
        ]
    )
    assert done.stdout.endswith("403"), done.stdout + done.stderr
    assert "join.refused" in kinds(site, "n0")
    assert site.head.nodes()["n0"]["status"] == "converged"


def test_network_api_needs_a_token(site: Site) -> None:
    def status(*arguments: str) -> str:
        ca = str(site.head.data / "pki/ca.pem")
        url = "https://10.99.0.1:8443/v1/nodes"
        return site.rack.run(
            ["curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", "--cacert", ca, *arguments, url]
        ).stdout

    token = (site.head.data / "admin.token").read_text().strip()
    assert status() == "401"
    assert status("-H", "Authorization: Bearer wrong") == "401"
    assert status("-H", f"Authorization: Bearer {token}") == "200"


def test_shutdown_stops_images_first_and_comes_back(site: Site) -> None:
    start = time.time()
    site.head.cli("power", "off", "n0", "--soft", "--yes")
    site.head.wait_converged(180, {"n0"})
    assert not site.rack.vm_alive(0), "its own system has done it: nobody cuts the power for --soft"
    seen = kinds(site, "n0", start)
    assert "image.stopped" in seen
    assert "sync.lost" not in seen, "it was detached before it was switched off"
    start = time.time()
    site.head.cli("node", "up", "n0")
    site.head.wait_converged(BOOT_S, {"n0"})
    site.head.wait(
        "it has the driver of its button",
        lambda: "node.drivers-fetched" in kinds(site, "n0", start),
        120,
    )


def test_the_power_button_stops_images_first(site: Site) -> None:
    """That of the case: the node is wanted up, and is switched on again."""
    start, starts = time.time(), site.rack.machine(0)["starts"]
    site.rack.press(0)
    site.head.wait("it was off", lambda: site.rack.machine(0)["starts"] > starts, 180)
    site.head.wait_converged(BOOT_S, {"n0"})
    seen = kinds(site, "n0", start)
    assert seen.index("node.power-button") < seen.index("image.stopped") < seen.index("node.joined")


def test_secrets_are_in_no_log_event_or_answer(site: Site) -> None:
    secret = site.rack.secrets
    assert secret is not None
    password = secret.password_file.read_text().strip()
    told = (
        repr(site.head.api("GET", "/v1/events?limit=5000"))
        + repr(site.head.nodes())
        + site.head.log()
    )
    told += "".join(p.read_text(errors="replace") for p in (site.head.data / "log").iterdir())
    assert password not in told
    arguments = [p / "cmdline" for p in Path("/proc").iterdir() if p.name.isdigit()]
    assert not any(password.encode() in _read(p) for p in arguments)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""  # the process has ended since


def test_nodes_in_other_networks_boot_to_a_running_image(site: Site) -> None:
    relay.nodes_in_other_networks_boot(site)


def test_nodes_boot_beside_a_dhcp_server_of_the_site(site: Site) -> None:
    beside.nodes_boot_beside_the_sites_server(site)


def test_socket_of_the_api_is_private(site: Site) -> None:
    assert site.head.socket.stat().st_mode & 0o777 == 0o600
    with socket.socket(socket.AF_UNIX) as s:
        s.connect(str(site.head.socket))
