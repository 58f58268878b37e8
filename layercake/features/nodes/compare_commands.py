"""`layercake node compare`: in what two nodes differ."""

from __future__ import annotations

import click

from layercake.client.command import FAILED, OK, Answer, App, command
from layercake.client.http import path_segment
from layercake.client.output import Column, Output, short_digest
from layercake.kraken.errors import NotFound, Refused

_BY_NATURE = frozenset(
    ("name", "id", "ip", "mac", "macs", "address", "serial", "uuid", "asset", "tpm_ek", "wwid")
)
"""What two nodes never have in common."""
_LIVE = ("temperature", "mbps", "link", "seen_s", "first_seen")
"""What a report has that is so at its time."""
_COMPARED = (Column("OF"), Column("WHAT", flexible=True))


@command()
@click.argument("first", metavar="A")
@click.argument("second", metavar="B")
@click.option(
    "--all",
    "everything",
    is_flag=True,
    help="Also what two nodes never have in common: addresses, serial numbers and the like.",
)
def compare(app: App, first: str, second: str, everything: bool) -> Answer:
    """Show in what the nodes A and B differ: their entries in the inventory, images, boot set,
    kernel, firmware and hardware. The exit code is 0 if they are alike, and 1 if not."""
    kernels = {s["name"]: s["kernel"] for s in app.head.get("/v1/boot")["sets"]}
    a, b = (_described(app, name, kernels) for name in (first, second))
    rows = [
        {"of": key[0], "what": ".".join(key[1:]), "a": a.get(key, ""), "b": b.get(key, "")}
        for key in sorted(a.keys() | b.keys())
        if a.get(key, "") != b.get(key, "") and (everything or not _BY_NATURE.intersection(key))
    ]

    def show_differences(out: Output) -> None:
        columns = (*_COMPARED, *(Column(n.upper(), flexible=True) for n in (first, second)))
        shown = [[r["of"], r["what"], r["a"] or "-", r["b"] or "-"] for r in rows]
        out.table(columns, shown, empty=f"{first} and {second} are alike")

    return Answer({"differences": rows}, show_differences, FAILED if rows else OK)


def _described(app: App, name: str, kernels: dict[str, str]) -> dict[tuple[str, ...], str]:
    """All that is compared of a node, by what it is."""
    from layercake.inventory.problems import Problems
    from layercake.inventory.yaml_marks import parse, plain

    node = app.head.get(f"/v1/nodes/{path_segment(name)}")["node"]
    boots = node["boots"]
    found: dict[tuple[str, ...], str] = {
        ("node", "status"): str(node["status"]),
        ("node", "wanted"): str(node["wanted"]),
        ("software", "boot set"): str(boots["runs"] or ""),
        ("software", "next boot set"): str(boots["next"] or ""),
        ("software", "kernel"): kernels.get(boots["runs"], ""),
        ("software", "agent"): str(boots["agent"] or ""),
    }
    for which, images in node["images"].items():
        found["software", f"images {which}"] = ", ".join(
            f"{i['name']} {short_digest(i['digest'])}" for i in images
        )
    yaml = app.head.get("/v1/inventory/show", range=name)["yaml"]
    parsed = parse(yaml, Problems("the inventory"))
    entry = {} if parsed is None else (plain(parsed).get("nodes") or {}).get(name) or {}
    found |= _flat(("inventory",), entry)
    try:
        report = app.head.get(f"/v1/machines/{path_segment(name)}")["report"]
    except NotFound:
        report = None
    except Refused as error:
        report = None
        app.out.note(f"not compared: {error.message}")
    return found | _flat(("hardware",), report or {})


def _flat(path: tuple[str, ...], value: object) -> dict[tuple[str, ...], str]:
    """What is in a document, each by its path; parts of a list by their slots or names."""
    if path[-1] in _LIVE or value in ("", [], {}, None):
        return {}
    parts = _parts(value)
    if parts:
        return {k: v for key, inner in parts for k, v in _flat((*path, key), inner).items()}
    return {path: ", ".join(map(str, value)) if isinstance(value, list) else str(value)}


def _parts(value: object) -> list[tuple[str, object]]:
    """What a mapping, or a list of mappings, consists of; nothing for another value."""
    if isinstance(value, dict):
        return [(str(key), inner) for key, inner in value.items()]
    if not isinstance(value, list) or not all(isinstance(one, dict) for one in value):
        return []
    return [(str(one.get("slot") or one.get("name") or n), one) for n, one in enumerate(value)]
