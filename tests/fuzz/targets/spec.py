"""Descriptions of images and containers: container.yaml as it is typed, and the documents that
nodes get."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from imageapi.spec.container import parse_container
from imageapi.spec.image import parse_images
from imageapi.spec.objects import parse_attach, parse_mount, resolve_uri
from layercake.kraken.errors import InputError
from tests.fuzz import mutate
from tests.fuzz.harness import Target

CONTAINER: dict[str, Any] = {
    "systemd": False,
    "command": ["/bin/serve", "-v"],
    "env": {"A": "b"},
    "stop_timeout_s": 5.0,
    "restart": "always",
    "depends": ["two"],
    "health": {"kind": "http", "port": 80, "path": "/", "interval_s": 1.0},
    "resources": {"memory": 1 << 30, "cpus": 1.5, "pids": 9},
    "devices": ["/dev/null"],
    "hooks": {"poststart": [["/bin/true"]]},
    "workdir": "/srv",
    "namespaces": ["pid", "network"],
    "hostname": "a.b",
    "mounts": [{"kind": "tmpfs", "size": "1m", "at": "/x"}],
}
RBD = {
    "kind": "rbd",
    "monitors": ["10.0.0.1:6789"],
    "pool": "p",
    "image": "i",
    "user": "u",
    "secret": "s",
}
IMAGE = {
    "name": "one:1",
    "digest": "blake2b:" + "0" * 64,
    "size": 9,
    "url": "http://h/x",
    "container": CONTAINER,
}
MOUNTS: list[dict[str, Any]] = [
    {
        "kind": "attach",
        "attach": {"kind": "loopback", "path": "/x", "readonly": True},
        "fstype": "squashfs",
        "options": "",
    },
    {"kind": "bind", "source": "/a"},
    {"kind": "nfs", "source": "h:/p", "options": "vers=3,ro"},
    {"kind": "tmpfs", "size": "10%"},
    {"id": "m3"},
    {"kind": "overlay", "lower": [{"id": "m1"}, {"kind": "tmpfs"}], "size": "1g"},
    {"kind": "uri", "uri": "nfs://h/p"},
    {"kind": "uri", "uri": "https://h/x?digest=blake2b:" + "0" * 64},
    {"kind": "uri", "uri": "iscsi://[::1]:3260/iqn.2000:x/1"},
]
ATTACHES = [
    {"kind": "local", "path": "/dev/x"},
    {"kind": "nbd", "host": "h", "port": 1, "export": ""},
    RBD,
    {"kind": "http", "url": "http://h/x", "digest": "blake2b:" + "0" * 64, "size": 1},
    {
        "kind": "iscsi",
        "portal": "h:3260",
        "target": "iqn.2000:x",
        "lun": 0,
        "user": "u",
        "secret": "s",
    },
    {"kind": "local", "disk": "S-1", "partition": 2},
]


@contextlib.contextmanager
def target(directory: Path) -> Iterator[Target]:
    """A document {"what": ..., "is": ...}: the same again from its form on the wire."""

    def container(value: Any) -> None:
        found = parse_container(value) if isinstance(value, dict) else None
        assert found is None or parse_container(json.loads(json.dumps(found.to_wire()))) == found

    def images(value: Any) -> None:
        found = parse_images(value) if isinstance(value, list) else ()
        assert parse_images([json.loads(json.dumps(image.to_wire())) for image in found]) == found

    def uri(value: Any) -> None:
        if isinstance(value, dict):
            resolve_uri(value)

    whats: dict[str, Callable[[Any], object]] = {
        "container": container,
        "images": images,
        "mount": parse_mount,
        "attach": parse_attach,
        "uri": uri,
    }

    def take(data: bytes) -> None:
        try:
            document = json.loads(data)
        except (ValueError, RecursionError):
            return
        if isinstance(document, dict):
            for name, check in whats.items():
                if name in document:
                    check(document[name])

    seeds = [
        {"container": CONTAINER},
        {"container": {"health": "none"}},
        {"images": [IMAGE, {**IMAGE, "name": "two", "attach": RBD}]},
        *({"mount": m} for m in MOUNTS),
        *({"attach": a} for a in ATTACHES),
        *({"uri": m} for m in MOUNTS),
    ]
    yield Target(mutate.documents(seeds, 0.05), take, (InputError,))
