"""`layercake machine`: list, show, adopt, scan, accept, forget, disks, wipe."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import click

from layercake.base.text import count_of
from layercake.client.command import FAILED, OK, Answer, App, command, nodes_argument, yes_option
from layercake.client.confirm import current_user
from layercake.client.http import path_segment
from layercake.client.output import Column, Output, format_duration
from layercake.inventory.ranges import fold
from layercake.kraken.errors import InputError, NotFound

_LIST = (
    Column("MAC"),
    Column("ADDRESS"),
    Column("MACHINE", flexible=True),
    Column("SERIAL"),
    Column("CPUS", right=True),
    Column("MEMORY", right=True),
    Column("DISKS", right=True),
    Column("SWITCH PORT"),
    Column("BMC"),
    Column("SEEN", right=True),
    Column("CLAIMED BY"),
)
_ADOPT = (
    Column("NODE"),
    Column("MAC"),
    Column("IP"),
    Column("SWITCH PORT"),
    Column("SERIAL", flexible=True),
)
_DISKS = (
    Column("DISK"),
    Column("SERIAL OR WWID", flexible=True),
    Column("SIZE", right=True),
    Column("MODEL", flexible=True),
    Column("BY"),
    Column("LAYOUT"),
    Column("IN THE WAY", flexible=True),
)
_SCAN = (
    Column("ADDRESS"),
    Column("PROTOCOL"),
    Column("SAYS", flexible=True),
    Column("UUID"),
    Column("NODE"),
)
_NODES = re.compile(r"^nodes:[ \t]*(#.*)?$", re.MULTILINE)


@click.group()
def machine() -> None:
    """Machines: those that no inventory knows, and the hardware of nodes."""


def _size(count: int) -> str:
    return f"{count / 2**30:.0f} GiB" if count >= 10 << 30 else f"{count >> 20} MiB"


def _at(one: dict[str, Any]) -> str:
    """Where a machine is, by LLDP or by option 82."""
    place = (
        (one["switch"], one["port"])
        if one["switch"]
        else (one["remote"] or one["relay"], one["circuit"])
    )
    return " ".join(filter(None, place)) or "-"


@command(machine, "list")
def list_(app: App) -> Answer:
    """List the machines that were discovered and that no inventory knows."""
    answer = app.head.get("/v1/machines")
    rows = [
        [
            m["mac"],
            m["address"] if m["on"] else "-",
            f"{m['vendor']} {m['product']}".strip() or "-",
            m["serial"] or "-",
            m["cpus"],
            _size(m["memory"]),
            m["disks"],
            _at(m),
            m["bmc"] or "-",
            format_duration(m["seen_s"]),
            ",".join(m["rivals"][:3]) or "-",
        ]
        for m in answer["machines"]
    ]
    return Answer(
        answer,
        lambda out: out.table(
            _LIST, rows, empty="no unknown machines; see `discovery` of networks"
        ),
    )


@command(machine)
@click.argument("name", metavar="MAC|NODE")
def show(app: App, name: str) -> Answer:
    """Show what a machine has reported of its hardware."""
    answer = app.head.get(f"/v1/machines/{path_segment(name)}")

    def show_facts(out: Output) -> None:
        for label, value in _facts(answer["machine"], answer["report"] or {}):
            out.line(f"{label:<10} {value}")

    return Answer(answer, show_facts)


def _facts(one: dict[str, Any], report: dict[str, Any]) -> list[tuple[str, str]]:
    """What a machine is, and what it has reported, as (label, text)."""
    return [
        *_system_facts(one, report),
        *(("dimm", _dimm(dimm)) for dimm in report.get("dimms", [])),
        *(("disk", _disk(disk)) for disk in report.get("disks", [])),
        *_network_facts(one, report),
        *(("gpu", _device(device)) for device in report.get("gpus", [])),
        *(("fabric", _device(device)) for device in report.get("fabrics", [])),
        ("bmc", _bmc(report.get("bmc"))),
        ("tpm", " ".join((report.get("tpm") or "none", report.get("tpm_ek", "")[:16])).strip()),
        *(("not seen", f"{part}: {why}") for part, why in report.get("failed", {}).items()),
        *(("differs", line) for line in one["drift"]),
        *(("claimed by", name) for name in one["rivals"]),
    ]


def _system_facts(one: dict[str, Any], report: dict[str, Any]) -> list[tuple[str, str]]:
    bios = report.get("smbios", {}).get("bios", {})
    firmware = " ".join(filter(None, (bios.get(key) for key in ("vendor", "version", "date"))))
    boots_by = "UEFI" if one["uefi"] else "BIOS"
    return [
        ("machine", f"{one['vendor']} {one['product']}".strip() or "-"),
        ("node", one["node"] or "none"),
        ("serial", one["serial"] or "none that can be used"),
        ("uuid", one["uuid"] or "-"),
        ("firmware", firmware or "-"),
        ("boots by", boots_by + (", Secure Boot is on" if one["secure_boot"] else "")),
        ("cpus", f"{one['cpus']}: {report.get('cpu', {}).get('model', '-')}"),
        ("memory", _size(one["memory"])),
    ]


def _network_facts(one: dict[str, Any], report: dict[str, Any]) -> list[tuple[str, str]]:
    """Its cards, and what switches say of where they are plugged in."""
    facts = []
    if one["circuit"]:
        keys = [key for key in ("circuit", "remote", "relay") if one[key]]
        facts.append(("option 82", " ".join(f"{key} {one[key]}" for key in keys)))
    neighbours = report.get("neighbours", {})
    for card in report.get("cards", []):
        port = neighbours.get(card["name"], {})
        at = f", at {port['switch']} port {port['port']}" if port else ""
        name = f"{card['name']}: {card['mac']} {card.get('driver', '')}"
        facts.append(("card", f"{name}, {_speed(card)}{at}"))
    return facts


def _speed(card: dict[str, Any]) -> str:
    if card.get("mbps"):
        return f"{card['mbps']} Mb/s"
    return "link" if card.get("link") else "no link"


def _dimm(dimm: dict[str, Any]) -> str:
    return (
        f"{dimm.get('slot', '?')}: {dimm.get('mb', 0)} MB {dimm.get('vendor', '')} "
        f"{dimm.get('part', '')} {dimm.get('serial', '')}"
    )


def _disk(disk: dict[str, Any]) -> str:
    return (
        f"{disk['name']}: {disk['bytes'] / 1e9:.0f} GB {disk.get('model', '')} "
        f"{disk.get('serial', '')}, SMART {disk.get('smart', 'not read')}"
    )


def _device(device: dict[str, Any]) -> str:
    return f"{device.get('slot')}: {device.get('vendor')}:{device.get('device')}"


def _bmc(bmc: dict[str, Any] | None) -> str:
    if not bmc:
        return "none"
    return (
        f"{bmc.get('address') or 'no address'} ({bmc.get('mac', '-')}), firmware "
        f"{bmc.get('firmware', '-')}"
    )


@command(machine)
@click.argument("macs", metavar="[MAC]...", nargs=-1)
@click.option("--name", required=True, help="The names of the nodes: n[01-48].")
@click.option(
    "--ip",
    required=True,
    help="The address of the first one; the others follow, without those that nodes have.",
)
@click.option(
    "--order",
    default="switch-port",
    show_default=True,
    type=click.Choice(("switch-port", "mac", "serial", "seen")),
    help="Which machine gets which name.",
)
@click.option(
    "--group", "groups", multiple=True, help="A group that they are in; several times for several."
)
@click.option(
    "--bmc",
    is_flag=True,
    help="With the addresses of their BMCs; how to speak to them is for a group to say.",
)
@click.option(
    "--into",
    type=click.Path(exists=True, dir_okay=False, writable=True),
    help="The inventory that the entries go into.",
)
@yes_option
def adopt(
    app: App,
    macs: tuple[str, ...],
    name: str,
    ip: str,
    order: str,
    groups: tuple[str, ...],
    bmc: bool,
    into: str | None,
    yes: bool,
) -> Answer:
    """Write the inventory's entries for machines: those named, or all that were discovered. `plan`
    and `apply` follow."""
    body = {
        "macs": list(macs),
        "name": name,
        "ip": ip,
        "order": order,
        "groups": list(groups),
        "bmc": bmc,
    }
    answer = app.head.post("/v1/machines/adopt", body)
    if into is None:
        return Answer(answer, ("nodes:", *(f"  {entry}" for entry in answer["entries"])))
    path = Path(into)
    new_text = inserted(path.read_text(encoding="utf-8"), answer["entries"])
    rows = [
        [m["name"], m["mac"], m["ip"], m["place"] or "-", m["serial"] or "-"]
        for m in answer["machines"]
    ]
    if not yes:
        app.out.table(_ADOPT, rows)
        app.must_confirm(f"Write {count_of(len(rows), 'node')} into {into}?", False)
    _write(path, new_text)
    return Answer(
        answer,
        f"{count_of(len(rows), 'node')} written into {into}; now `layercake plan {into}` and "
        f"`layercake apply {into}`",
    )


def inserted(text: str, entries: list[str]) -> str:
    """An inventory with more entries, first among its nodes; all else is as it was. Raises
    InputError."""
    section = _NODES.search(text)
    if section is None:
        if re.search(r"^[\"']?nodes[\"']?[ \t]*:", text, re.MULTILINE):
            raise InputError(
                "cannot write the entries: `nodes:` of the inventory is not a block",
                hint="put them in by hand",
            )
        return (
            text
            + ("" if not text or text.endswith("\n") else "\n")
            + "nodes:\n"
            + "".join(f"  {entry}\n" for entry in entries)
        )
    after = text[section.end() :].lstrip("\n")
    own = next(
        (line for line in after.splitlines() if line.strip() and not line.lstrip().startswith("#")),
        "",
    )
    indent = own[: len(own) - len(own.lstrip())] or "  "
    return (
        text[: section.end()]
        + "\n"
        + "\n".join(indent + entry for entry in entries)
        + (text[section.end() :] or "\n")
    )


def _write(path: Path, text: str) -> None:
    """In one step, with the rights that the file has."""
    new = path.with_name(f".{path.name}.new")
    new.write_text(text, encoding="utf-8")
    new.chmod(path.stat().st_mode & 0o777)
    os.replace(new, path)  # noqa: PTH105 (the path of a symbolic link is kept by neither)


@command(machine)
@click.argument("network", metavar="NETWORK")
def scan(app: App, network: str) -> Answer:
    """Ask the addresses of NETWORK (10.2.0.0/24) whether a BMC is there, by IPMI and Redfish,
    without a login."""
    bmcs: list[dict[str, Any]] = []
    start = count = 0
    while True:
        answer = app.head.post("/v1/machines/scan", {"network": network, "start": start})
        bmcs = bmcs + answer["found"]
        count = count + answer["scanned"]
        start = answer["more"]
        if not start:
            break
        app.out.note(
            f"{count_of(count, 'address', 'addresses')} asked, {count_of(len(bmcs), 'answer')}"
        )
    rows = [
        [
            one["address"],
            one["protocol"],
            " ".join(filter(None, (one["vendor"], one["product"], one["version"]))) or "-",
            one["uuid"] or "-",
            one["node"] or one["machine"] or "-",
        ]
        for one in bmcs
    ]
    empty = f"no BMC answers at the {count} addresses of {network}"
    return Answer(
        {"found": bmcs, "scanned": count}, lambda out: out.table(_SCAN, rows, empty=empty)
    )


@command(machine)
@nodes_argument
@yes_option
def accept(app: App, nodes: str, yes: bool) -> Answer:
    """Accept the hardware of RANGE as it is now: what differs later is held against that."""
    app.must_confirm(f"The hardware of {nodes} is right as it is now?", yes)
    answer = app.head.post("/v1/machines/accept", {"range": nodes, "by": current_user()})
    return Answer(
        answer,
        f"accepted: {fold(answer['nodes'])}"
        if answer["nodes"]
        else "none of them has reported yet",
    )


@command(machine)
@click.argument("mac")
def forget(app: App, mac: str) -> Answer:
    """Forget a machine that no inventory knows."""
    return Answer(
        answer := app.head.delete(f"/v1/machines/{path_segment(mac)}"),
        f"forgotten: {answer['forgotten']}",
    )


@command(machine)
@click.argument("node")
def disks(app: App, node: str) -> Answer:
    """Show the disks of NODE: what the inventory makes of them, and what is in the way."""
    answer = app.head.get(f"/v1/nodes/{path_segment(node)}/disks")
    rows = [
        [
            d["name"],
            ", ".join(sorted(d["names"], key=len)) or "-",
            _size(d["bytes"]),
            d["model"] or "-",
            d["transport"] + (", turns" if d["rotational"] else ""),
            d["layout"] or "-",
            d["holds"],
        ]
        for d in answer["disks"]
    ]

    def show(out: Output) -> None:
        out.table(
            _DISKS,
            rows,
            empty=f"{node} has said nothing of its disks: it does when it boots with `disks` in "
            "the inventory",
        )
        for one in answer["layouts"]:
            out.line(
                f"layout {one['name']}: {one['state']}" + (f", {one['why']}" if one["why"] else "")
            )
        for order in answer["words"]:
            out.line(
                f"disk {order['disk']} was given free by {order['by']}, and is not made anew yet"
            )

    return Answer(answer, show, FAILED if answer["state"] in ("FOREIGN", "ERROR") else OK)


@command(machine)
@click.argument("node")
@click.argument("disk")
@yes_option
def wipe(app: App, node: str, disk: str, yes: bool) -> Answer:
    """Give DISK of NODE free, by its serial number or WWID: it is made anew, and what it holds is
    lost. The inventory has to name it too (`wipe` of its layout)."""
    status = app.head.get(f"/v1/nodes/{path_segment(node)}/disks")
    one: dict[str, Any] | None = next((d for d in status["disks"] if disk in d["names"]), None)
    if one is None:
        raise NotFound(
            f"cannot find disk {disk[:120]!r} of {node}",
            hint=f"see `layercake machine disks {node}`",
        )
    what = (
        f"Disk {one['name']} of {node} ({one['model']}, {_size(one['bytes'])}) holds "
        f"{one['holds'] or 'nothing in the way'}."
    )
    app.must_confirm(f"{what} All of it is lost when the disk is made anew. Do that?", yes)
    answer = app.head.post(
        f"/v1/nodes/{path_segment(node)}/disks/wipe",
        {"disk": disk, "mark": one["mark"], "by": current_user()},
    )
    return Answer(answer, f"disk {disk} of {node} is made anew as soon as the node has heard of it")
