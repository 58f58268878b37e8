"""The answers of the metadata service, as EC2 gives them (Instance Metadata Service, version 2: a
token first) and as cloud-init's NoCloud source asks for them below /nocloud/. Pure but for the
tokens."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from layercake.base.text import whole_number

FACTS = "/facts.json"
USER_DATA = "/user-data"
VERSIONS = ("2009-04-04", "2016-09-02", "2018-09-24", "2021-03-23", "latest")
"""Those that cloud-init asks for (DataSourceEc2), and that which people ask for."""
TOKEN = "x-aws-ec2-metadata-token"  # noqa: S105 (the name of a header)
TTL = "x-aws-ec2-metadata-token-ttl-seconds"
LONGEST_S = 21600
MOST_TOKENS = 1000
EMPTY = b"#cloud-config\n{}\n"
"""Without user data: NoCloud takes a node without any for none of its own."""


@dataclass(frozen=True, slots=True)
class Answered:
    """An answer. `ttl` goes into a header of that name."""

    status: int = 200
    body: bytes = b""
    ttl: int = 0


class Answers:
    """What is said of one node. `clock` gives seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._tokens: dict[str, float] = {}
        self._files: Mapping[str, bytes] = {}
        self._tree: dict[str, Any] = {}
        self._facts: dict[str, Any] = {}

    def update(self, files: Mapping[str, bytes]) -> None:
        """What the head says: FACTS as a JSON object, and perhaps user-data, vendor-data and
        network-config."""
        facts = json.loads(files.get(FACTS, b"{}"))
        self._files = files
        self._facts = facts if isinstance(facts, dict) else {}
        self._tree = {"meta-data": tree(self._facts), "dynamic": identity(self._facts)}

    def answer(self, method: str, path: str, headers: Mapping[str, str]) -> Answered:
        """Answers a request. Names of headers are in lower case. What came by a proxy is refused:
        that may be somebody who has no place here (AWS, "Use IMDSv2")."""
        if "x-forwarded-for" in headers:
            return Answered(403)
        first, _, rest = path.strip("/").partition("/")
        if first == "nocloud":
            return self._nocloud(rest) if method == "GET" else Answered(405)
        if method == "PUT" and (first, rest) == ("latest", "api/token"):
            return self._token(headers.get(TTL, ""))
        if method != "GET":
            return Answered(405)
        if not self._holds(headers.get(TOKEN, "")):
            return Answered(401)
        if not first:
            return _text("\n".join(VERSIONS))
        return self._ec2(rest) if first in VERSIONS else Answered(404)

    def _token(self, asked: str) -> Answered:
        ttl = whole_number(asked, LONGEST_S)
        if not ttl:
            return Answered(400)
        now = self._clock()
        self._tokens = {token: until for token, until in self._tokens.items() if until > now}
        while len(self._tokens) >= MOST_TOKENS:
            del self._tokens[next(iter(self._tokens))]
        token = os.urandom(32).hex()
        self._tokens[token] = now + ttl
        return Answered(200, token.encode(), ttl)

    def _holds(self, token: str) -> bool:
        return self._tokens.get(token, 0.0) > self._clock()

    def _ec2(self, path: str) -> Answered:
        first, _, rest = path.partition("/")
        if first == "user-data" and not rest:
            return (
                Answered(200, self._files[USER_DATA]) if USER_DATA in self._files else Answered(404)
            )
        if not first:
            return _text(
                "\n".join(
                    (*sorted(self._tree), *(["user-data"] if USER_DATA in self._files else []))
                )
            )
        return _look_up(self._tree, path)

    def _nocloud(self, name: str) -> Answered:
        if name == "meta-data":
            fields = {
                "instance-id": self._facts.get("instance-id"),
                "local-hostname": self._facts.get("local-hostname"),
                "public-keys": self._facts.get("public-keys", []),
            }
            return Answered(200, json.dumps(fields).encode())  # JSON is YAML
        if name in ("user-data", "vendor-data"):
            return Answered(200, self._files.get(f"/{name}", EMPTY if name == "user-data" else b""))
        network = self._files.get("/network-config") if name == "network-config" else None
        return Answered(404) if network is None else Answered(200, network)


def tree(facts: Mapping[str, Any]) -> dict[str, Any]:
    """The tree below meta-data: a text, or another one."""
    entries: dict[str, Any] = {
        key: str(its) for key, its in facts.items() if isinstance(its, str) and its
    }
    if zone := entries.pop("network", ""):
        entries["placement"] = {"availability-zone": zone}
    keys = [key for key in facts.get("public-keys") or () if isinstance(key, str)]
    if keys:
        entries["public-keys"] = {
            str(n): {"openssh-key": key, "": key.split(" ")[-1]} for n, key in enumerate(keys)
        }
    return entries


def identity(facts: Mapping[str, Any]) -> dict[str, Any]:
    """The tree below dynamic: what of EC2's instance identity document there is. Nobody has signed
    it."""
    document = {
        "instanceId": facts.get("instance-id"),
        "privateIp": facts.get("local-ipv4"),
        "availabilityZone": facts.get("network"),
    }
    return {"instance-identity": {"document": json.dumps(document)}}


def _look_up(found: Any, path: str) -> Answered:
    for word in filter(None, path.split("/")):
        if not isinstance(found, dict) or word not in found:
            return Answered(404)
        found = found[word]
    if isinstance(found, str):
        return _text(found)
    return _text("\n".join(_listed(name, its) for name, its in sorted(found.items()) if name))


def _listed(name: str, its: Any) -> str:
    """An entry of a list: of another tree with a slash, of a key with what it is called."""
    if not isinstance(its, dict):
        return name
    return f"{name}={its['']}" if "" in its else f"{name}/"


def _text(text: str) -> Answered:
    return Answered(200, text.encode())
