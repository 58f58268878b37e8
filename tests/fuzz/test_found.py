"""What fuzzing has found, as it was found: each input once ended in an exception that nobody
expected."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.fuzz.harness import replay
from tests.fuzz.targets import TARGETS
from tests.fuzz.targets.desired import DOCUMENT
from tests.fuzz.targets.spec import IMAGE
from tests.minos.test_agent_state import ANSWER


def post(body: bytes) -> bytes:
    return b"POST /v1/exec HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % len(body) + body


def changed(document: dict[str, Any], **fields: Any) -> bytes:
    return json.dumps({**document, **fields}).encode()


CONTAINER = {
    "name": "one",
    "digest": "",
    "state": "",
    "health": "",
    "pid": 7,
    "retries": 0,
    "last_error": "",
    "error": "",
}
FOUND: dict[str, tuple[str, bytes]] = {
    "a span that the parser of ranges asserts not to be": ("ranges", b"n[1-60000]99999"),
    "digits before a bracket, which made 600 million names": ("ranges", b"n-1.6553[0-65535]"),
    "brackets within brackets, which were counted as 2500 names": (
        "ranges",
        b"n[0-9999-1999n[0-3,7]999-1999n[0-3,7]999-1999n[0-3,7]999-1999n[0-3,7]999-1999n[0-3,7]",
    ),
    "an image that is no mapping": ("image-spec", b'{"images": [true]}'),
    "a container that is a number": ("image-spec", changed({}, images=[{**IMAGE, "container": 3}])),
    "namespaces that are a number, with a host name": (
        "image-spec",
        b'{"container": {"namespaces": 7, "hostname": "a"}}',
    ),
    "JSON without a bottom to a node": ("node-api", post(b"[" * 20_000)),
    "a length of 5000 digits": (
        "node-api",
        b"GET /v1/status HTTP/1.1\r\nContent-Length: " + b"9" * 5000 + b"\r\n\r\n",
    ),
    "a description of a boot set that is a list": ("manifests", b"[]"),
    "a boot set whose modules are a number": (
        "manifests",
        b'{"profile": {"name": "gpu", "modules": 3}}',
    ),
    "a description of a boot set without a bottom": ("manifests", b"[" * 20_000),
    "containers without a time": (
        "events",
        changed({}, kind="image.containers", data={"containers": [CONTAINER]}),
    ),
    "a desired state that is a list": ("desired", b"[]"),
    "an answer to a join that is a number": ("join-answer", b"7"),
    "a desired state without a revision": ("desired", b'{"images": []}'),
    "a desired state whose images are none": ("desired", changed(DOCUMENT, images=7)),
    "a request without a number": ("desired", changed(DOCUMENT, requests=[{"kind": "clear"}])),
    "a session without a bound": ("join-answer", changed(ANSWER, epoch=float("inf"))),
}


@pytest.mark.parametrize("what", FOUND)
def test_it_does_no_harm_any_more(what: str, tmp_path: Path) -> None:
    name, data = FOUND[what]
    with TARGETS[name](tmp_path) as target:
        assert not replay(target, data)
