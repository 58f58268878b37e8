"""What comes over a network is bounded before it is unpacked: servers, WebSockets and clients are
made in one place each, or say themselves that nothing is unpacked."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("layercake", "pxe", "powerman", "imageapi", "minos")
WEB = "layercake/moduleapi/web.py"
ONE_PLACE = {
    "AppRunner": WEB,
    "ServerRunner": WEB,
    "run_app": WEB,
    "WebSocketResponse": WEB,
    "start_server": "",
    "start_unix_server": "layercake/sim/fleet/bmc.py",
}
"""{what makes a server: the one file that may}."""
OF_A_PERSON = "layercake/client/websocket.py"
"""The command line's own: it speaks with the head that a person has named."""


def calls(tree: ast.AST) -> Iterator[tuple[str, ast.Call]]:
    """The calls in a module by the last word of what is called."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            what = node.func
            name = what.attr if isinstance(what, ast.Attribute) else getattr(what, "id", "")
            yield name, node


def faults(path: str, tree: ast.AST) -> Iterator[str]:
    for name, call in calls(tree):
        if name in ONE_PLACE and path != ONE_PLACE[name]:
            yield f"{path}:{call.lineno}: {name} is for {ONE_PLACE[name] or 'nobody'}"
        is_client = name == "ClientSession" or (name == "session" and call.keywords)
        given = {word.arg: ast.unparse(word.value) for word in call.keywords}
        handed_on = None in given  # **settings of whoever asks
        plain = given.get("auto_decompress") == "False"
        if is_client and not plain and not handed_on and path != OF_A_PERSON:
            yield f"{path}:{call.lineno}: {name} without auto_decompress=False"


def in_product(check: Callable[[str, ast.AST], Iterator[str]]) -> list[str]:
    """What a check of one file, by its path and tree, finds in all files of the product."""
    files = (file for package in PACKAGES for file in (ROOT / package).rglob("*.py"))
    return [
        one
        for file in files
        for one in check(str(file.relative_to(ROOT)), ast.parse(file.read_text()))
    ]


def test_nothing_is_unpacked_before_it_is_bounded() -> None:
    found = in_product(faults)
    assert not found, "\n".join(found)


def test_the_check_sees_what_it_should() -> None:
    text = (
        "web.AppRunner(app)\nweb.WebSocketResponse()\naiohttp.ClientSession()\n"
        "aiohttp.ClientSession(timeout=3)\nconnections.session(timeout=3)\n"
        "aiohttp.ClientSession(auto_decompress=False)\nasyncio.start_server(f)\n"
    )
    assert [fault.split(":")[1] for fault in faults("x.py", ast.parse(text))] == list("123457")
