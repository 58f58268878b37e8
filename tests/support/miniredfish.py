"""A Redfish service on loopback with the virtual drives that a test gives it, or none; it fetches
nothing."""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

ROOT = "/redfish/v1"
SYSTEM = f"{ROOT}/Systems/1"


def drive(kinds: list[str], **facts: Any) -> dict[str, Any]:
    """What a virtual drive for media of these kinds says of itself."""
    return {"MediaTypes": kinds, "Inserted": False, "Image": None, "ImageName": None, **facts}


@dataclass
class MiniRedfish:
    """`drives` are those of the `owner`: Systems, or Managers as services before 2020 have it.
    `targets` are what the next boot can be set to; `boot` is what it was set to; `accounts` are the
    users' passwords. `deaf`: an insertion is taken, and nothing comes of it. `facts` are more of
    the system, `sockets` are paths of WebSockets."""

    drives: dict[str, dict[str, Any]] = field(default_factory=dict)
    owner: str = "Systems"
    targets: tuple[str, ...] = ("Pxe", "Cd", "Usb", "UefiHttp")
    more: dict[str, Any] = field(default_factory=dict)
    deaf: bool = False
    accounts: dict[str, str] = field(default_factory=dict)
    boot: dict[str, Any] = field(default_factory=dict)
    asked: list[tuple[str, Any]] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)
    others: dict[str, dict[str, Any]] = field(
        default_factory=dict
    )  # more resources, by their paths below ROOT
    sockets: dict[str, Callable[[web.Request], Awaitable[web.StreamResponse]]] = field(
        default_factory=dict
    )

    async def open(self) -> str:
        """Its URL, once it listens."""
        app = web.Application()
        for path, serve in self.sockets.items():
            app.router.add_get(path, serve)
        app.router.add_route("*", "/{path:.*}", self._answer)
        self._runner = web.AppRunner(app)
        await self._runner.setup()
        listener = socket.create_server(("127.0.0.1", 0))
        await web.SockSite(self._runner, listener).start()
        return f"http://127.0.0.1:{listener.getsockname()[1]}"

    async def close(self) -> None:
        """Ends it."""
        await self._runner.cleanup()

    async def _answer(self, request: web.Request) -> web.Response:
        path = "/" + request.match_info["path"].rstrip("/")
        if request.method == "GET":
            found = self._resources().get(path)
            return web.json_response(found or {}, status=200 if found else 404)
        body = await request.json() if request.can_read_body else {}
        self.asked.append((path.removeprefix(f"{ROOT}/"), body))
        if request.method == "PATCH" and "/Accounts/" in path:
            if request.headers.get("If-Match") != "W/7":
                return web.Response(status=428)
            self.accounts[path.rpartition("/")[2]] = body["Password"]
        elif request.method == "PATCH" and path.removeprefix(f"{ROOT}/") in self.others:
            _merge(self.others[path.removeprefix(f"{ROOT}/")], {} if self.deaf else body)
        elif request.method == "PATCH":
            self.boot |= body.get("Boot", {})
        else:
            name, _, action = path.partition("/VirtualMedia/")[2].partition(
                "/Actions/VirtualMedia."
            )
            if action == "InsertMedia" and not self.deaf:
                self.drives[name] |= {
                    "Inserted": True,
                    "Image": body["Image"],
                    "ImageName": body["Image"].rpartition("/")[2],
                }
            elif action == "EjectMedia":
                self.drives[name] |= {"Inserted": False, "Image": None, "ImageName": None}
        return web.Response(status=204)

    def _resources(self) -> dict[str, Any]:
        media = f"{ROOT}/{self.owner}/1/VirtualMedia"
        link = {"VirtualMedia": {"@odata.id": media}} if self.drives else {}
        boot = {
            "BootSourceOverrideEnabled": "Once",
            "BootSourceOverrideTarget": "Pxe",
            "BootSourceOverrideMode": "UEFI",
            "BootSourceOverrideTarget@Redfish.AllowableValues": list(self.targets),
            **self.more,
        }
        found: dict[str, Any] = {
            ROOT: {
                "Id": "Root",
                "Name": "Root",
                "RedfishVersion": "1.6.0",
                "Systems": {"@odata.id": f"{ROOT}/Systems"},
                "Managers": {"@odata.id": f"{ROOT}/Managers"},
            },
            SYSTEM: {
                "Id": "1",
                "Name": "1",
                "PowerState": "Off",
                "Boot": boot | self.boot,
                "Links": {"ManagedBy": [{"@odata.id": f"{ROOT}/Managers/1"}]},
                "Actions": {
                    "#ComputerSystem.Reset": {"target": f"{SYSTEM}/Actions/ComputerSystem.Reset"}
                },
                **self.facts,
            },
            f"{ROOT}/Managers/1": {"Id": "1", "Name": "1"},
        }
        for collection in ("Systems", "Managers"):
            found[f"{ROOT}/{collection}"] = {
                "Name": collection,
                "Members": [{"@odata.id": f"{ROOT}/{collection}/1"}],
            }
        found[f"{ROOT}/{self.owner}/1"] |= link
        if self.drives:
            found[media] = {
                "Name": "Media",
                "Members": [{"@odata.id": f"{media}/{name}"} for name in self.drives],
            }
        if self.accounts:
            place = f"{ROOT}/AccountService/Accounts"
            found[place] = {"Members": [{"@odata.id": f"{place}/{name}"} for name in self.accounts]}
            found |= {
                f"{place}/{name}": {"UserName": name, "@odata.etag": "W/7"}
                for name in self.accounts
            }
        found |= {f"{ROOT}/{path}": facts for path, facts in self.others.items()}
        for name, facts in self.drives.items():
            actions = {
                f"#VirtualMedia.{action}": {
                    "target": f"{media}/{name}/Actions/VirtualMedia.{action}"
                }
                for action in ("InsertMedia", "EjectMedia")
            }
            found[f"{media}/{name}"] = {"Id": name, "Name": name, "Actions": actions, **facts}
        return {path: {"@odata.id": path, **facts} for path, facts in found.items()}


def _merge(facts: Any, changes: Any) -> None:
    """Puts what a PATCH says over what there is; entries of a list by their place."""
    for key, value in enumerate(changes) if isinstance(changes, list) else changes.items():
        if isinstance(value, dict | list):
            _merge(facts[key], value)
        else:
            facts[key] = value
