"""One job to a Ceph cluster, as a process of its own: a request in JSON on stdin, answers in
JSON lines on stdout.

A process, for three reasons. librados ends the process it is in when one of its own assertions
fails; a call that waits for a monitor waits in C, where no thread can be called off, while a
process can be killed; and python3-rados and python3-rbd are Debian's, for Debian's Python: this
file runs under /usr/bin/python3 whatever environment the head lives in, and imports nothing else
from outside the standard library.

    {"op": ..., "conf", "keyring", "user", "pool", "limit_s", ...}
    -> {"progress": bytes}...  {"ok": {...}} or {"errno": n, "error": text}

The images: one for each content, named by its digest, with one protected snapshot. What stands
behind the squashfs is its hash tree (hashtree.py). The image's metadata says what it is, signed by
the head that made it (rbdstore.py).
"""

from __future__ import annotations

import errno
import hashlib
import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import rados
import rbd

from imageapi.store.hashtree import BLOCK, SALT, HashTree

CHUNK = 4 << 20
SNAPSHOT = "v1"
PREFIX = "image."
PARTIAL = "partial."
MANIFEST = "layercake.manifest"
SIGNATURE = "layercake.signature"
STALE_S = 3600.0
LIMITS = ("client_mount_timeout", "rados_mon_op_timeout", "rados_osd_op_timeout")
"""What librados waits for, by default for ever."""

QUIET = {"log_to_stderr": "false", "err_to_stderr": "false", "log_file": ""}


def answer(**what: Any) -> None:
    """One line of the answer."""
    print(json.dumps(what), flush=True)  # noqa: T201 (stdout is the answer)


@contextmanager
def _cluster(request: dict[str, Any]) -> Iterator[Any]:
    options = {
        **QUIET,
        **dict.fromkeys(LIMITS, str(request["limit_s"])),
        "keyring": request["keyring"],
    }
    cluster = rados.Rados(conffile=request["conf"], name=f"client.{request['user']}", conf=options)
    try:
        cluster.connect(timeout=request["limit_s"])
        yield cluster
    finally:
        cluster.shutdown()


@contextmanager
def _pool(request: dict[str, Any]) -> Iterator[tuple[Any, Any]]:
    """(the cluster, the pool)."""
    with _cluster(request) as cluster:
        ioctx = cluster.open_ioctx(request["pool"])
        try:
            # a full pool says so at once; without it, a write waits until there is room
            ioctx.set_osdmap_full_try()
            yield cluster, ioctx
        finally:
            ioctx.close()


def _monitors(cluster: Any, limit_s: int) -> list[str]:
    """Where the monitors listen, as a kernel's client wants it: the first protocol's address where
    there is one."""
    status, out, error = cluster.mon_command(
        json.dumps({"prefix": "mon dump", "format": "json"}), b"", timeout=limit_s
    )
    if status:
        raise OSError(-status, error)
    monitors = []
    for monitor in json.loads(out)["mons"]:
        vector = {a["type"]: a["addr"] for a in monitor["public_addrs"]["addrvec"]}
        monitors.append(vector.get("v1") or vector["v2"])
    return monitors


def measure(request: dict[str, Any]) -> dict[str, Any]:
    """The digest, the size and the hash tree of a file; the tree is written to `tree`. Needs no
    cluster."""
    hasher = hashlib.blake2b(digest_size=32)
    tree = HashTree()
    size = 0
    with Path(request["path"]).open("rb") as file:
        while chunk := file.read(CHUNK):
            hasher.update(chunk)
            tree.feed(chunk)
            size += len(chunk)
            answer(progress=size)
    root, levels = tree.finish()
    Path(request["tree"]).write_bytes(levels)
    verity = {
        "root_hash": root,
        "hash_offset": tree.blocks * BLOCK,
        "data_blocks": tree.blocks,
        "salt": SALT.hex(),
        "block_size": BLOCK,
    }
    return {"digest": f"blake2b:{hasher.hexdigest()}", "size": size, "verity": verity}


def check(request: dict[str, Any]) -> dict[str, Any]:
    """Whether the pool can be used; where the monitors are."""
    with _pool(request) as (cluster, ioctx):
        rbd.RBD().list(ioctx)
        return {"monitors": _monitors(cluster, request["limit_s"])}


def node_key(request: dict[str, Any]) -> dict[str, Any]:
    """The key of a client that may read this pool's images and nothing else; made if it is not
    there. Needs the right to."""
    with _cluster(request) as cluster:
        return {"key": _client(cluster, request["node_user"], request)}


def _client(cluster: Any, user: str, request: dict[str, Any]) -> str:
    caps = ["mon", "profile rbd-read-only", "osd", f"profile rbd-read-only pool={request['pool']}"]
    command = {
        "prefix": "auth get-or-create",
        "entity": f"client.{user}",
        "caps": caps,
        "format": "json",
    }
    status, out, error = cluster.mon_command(json.dumps(command), b"", timeout=request["limit_s"])
    if status:
        raise OSError(-status, error)
    return str(json.loads(out)[0]["key"])


def node_keys(request: dict[str, Any]) -> dict[str, Any]:
    """The same for several clients, on one connection: {client: key}."""
    keys = {}
    with _cluster(request) as cluster:
        for user in request["users"]:
            keys[user] = _client(cluster, user, request)
            answer(progress=len(keys))
    return {"keys": keys}


def drop_keys(request: dict[str, Any]) -> dict[str, Any]:
    """Takes clients away; one that is not there is fine. Needs the right to."""
    with _cluster(request) as cluster:
        for number, user in enumerate(request["users"]):
            command = {"prefix": "auth rm", "entity": f"client.{user}"}
            status, _, error = cluster.mon_command(
                json.dumps(command), b"", timeout=request["limit_s"]
            )
            if status not in (0, -errno.ENOENT):
                raise OSError(-status, error)
            answer(progress=number)
    return {}


def _manifest(ioctx: Any, name: str) -> dict[str, str] | None:
    """The manifest and signature of an image that is whole, None if there is none."""
    try:
        with rbd.Image(ioctx, name, read_only=True) as image:
            if not any(
                s["name"] == SNAPSHOT for s in image.list_snaps()
            ) or not image.is_protected_snap(SNAPSHOT):
                return None
            return {
                "manifest": image.metadata_get(MANIFEST),
                "signature": image.metadata_get(SIGNATURE),
            }
    except (rbd.ImageNotFound, KeyError):
        return None


def push(request: dict[str, Any]) -> dict[str, Any]:
    """Brings a file and its tree into the pool, under another name first: half an image is never
    found under its own."""
    name = PREFIX + request["hex"]
    with _pool(request) as (cluster, ioctx):
        monitors = _monitors(cluster, request["limit_s"])
        manifest = _manifest(ioctx, name)
        if manifest:
            return {"monitors": monitors, **manifest}
        _remove(ioctx, name)
        partial = f"{PARTIAL}{time.time_ns()}.{request['hex'][:16]}"
        offset = request["hash_offset"]
        tree = Path(request["tree"]).read_bytes()
        rbd.RBD().create(
            ioctx,
            partial,
            max(offset + len(tree), BLOCK),
            old_format=False,
            features=rbd.RBD_FEATURE_LAYERING,
        )
        try:
            with rbd.Image(ioctx, partial) as image:
                if _write(image, Path(request["path"]), tree, offset) != request["hex"]:
                    raise OSError(errno.ESTALE, "the file was changed while it was read")
                image.metadata_set(MANIFEST, request["manifest"])
                image.metadata_set(SIGNATURE, request["signature"])
                image.create_snap(SNAPSHOT)
                image.protect_snap(SNAPSHOT)
            rbd.RBD().rename(ioctx, partial, name)
        except BaseException:
            _remove(ioctx, partial)
            raise
        return {
            "monitors": monitors,
            "manifest": request["manifest"],
            "signature": request["signature"],
        }


def _write(image: Any, path: Path, tree: bytes, offset: int) -> str:
    """Writes a file and its tree; the digest of what was written of the file, in hex."""
    hasher = hashlib.blake2b(digest_size=32)
    at = 0
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            hasher.update(chunk)
            image.write(chunk, at)
            at += len(chunk)
            answer(progress=at)
    if tree:
        image.write(tree, offset)
    image.flush()
    return hasher.hexdigest()


def _remove(ioctx: Any, name: str) -> None:
    """Removes an image with its snapshots; one that is not there is fine."""
    try:
        with rbd.Image(ioctx, name) as image:
            for snap in list(image.list_snaps()):
                if image.is_protected_snap(snap["name"]):
                    image.unprotect_snap(snap["name"])
                image.remove_snap(snap["name"])
        rbd.RBD().remove(ioctx, name)
    except rbd.ImageNotFound:
        return


def listing(request: dict[str, Any]) -> dict[str, Any]:
    """Our images but those to be kept, with what they say of themselves. Takes away what a push
    left that was cut short."""
    keep = {PREFIX + name for name in request["keep"]}
    images = []
    with _pool(request) as (_, ioctx):
        for name in rbd.RBD().list(ioctx):
            if name.startswith(PARTIAL) and time.time() - int(name.split(".")[1]) / 1e9 > STALE_S:
                _remove(ioctx, name)
            elif name.startswith(PREFIX) and name not in keep:
                images.append({"hex": name.removeprefix(PREFIX), **_labels(ioctx, name)})
            answer(progress=len(images))
    return {"images": images}


def _labels(ioctx: Any, name: str) -> dict[str, str]:
    """Manifest and signature of an image, whole or not; "" for what it does not have."""
    try:
        with rbd.Image(ioctx, name, read_only=True) as image:
            present = dict(image.metadata_list())
    except rbd.ImageNotFound:
        present = {}
    return {"manifest": present.get(MANIFEST, ""), "signature": present.get(SIGNATURE, "")}


def remove(request: dict[str, Any]) -> dict[str, Any]:
    """Removes images with their snapshots."""
    with _pool(request) as (_, ioctx):
        for number, name in enumerate(request["images"]):
            _remove(ioctx, PREFIX + name)
            answer(progress=number)
    return {}


def verify(request: dict[str, Any]) -> dict[str, Any]:
    """Reads an image's snapshot: its digest and its manifest."""
    hasher = hashlib.blake2b(digest_size=32)
    at = 0
    name = PREFIX + request["hex"]
    size = request["size"]
    with _pool(request) as (_, ioctx):
        manifest = _manifest(ioctx, name)
        if manifest is None:
            raise OSError(errno.ENOENT, "there is no such image, or it has no protected snapshot")
        with rbd.Image(ioctx, name, snapshot=SNAPSHOT, read_only=True) as image:
            while at < size and (chunk := image.read(at, min(CHUNK, size - at))):
                hasher.update(chunk)
                at += len(chunk)
                answer(progress=at)
    return {"digest": f"blake2b:{hasher.hexdigest()}", **manifest}


def get(request: dict[str, Any]) -> dict[str, Any]:
    """Writes the first `size` bytes of an image's snapshot to `path`."""
    at = 0
    size = request["size"]
    with (
        _pool(request) as (_, ioctx),
        rbd.Image(ioctx, PREFIX + request["hex"], snapshot=SNAPSHOT, read_only=True) as image,
        Path(request["path"]).open("wb") as file,
    ):
        while at < size and (chunk := image.read(at, min(CHUNK, size - at))):
            at += file.write(chunk)
            answer(progress=at)
    if at < size:
        raise OSError(errno.EIO, "the image is shorter than it should be")
    return {}


OPERATIONS: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "measure": measure,
    "check": check,
    "node_key": node_key,
    "node_keys": node_keys,
    "drop_keys": drop_keys,
    "put": push,
    "listing": listing,
    "remove": remove,
    "verify": verify,
    "get": get,
}


def _text(error: Exception) -> str:
    """An error's own words; those of OSError begin with its number, which is said on its own."""
    return str(error.strerror) if isinstance(error, OSError) and error.strerror else str(error)


def main() -> int:
    """The job; returns the exit status."""
    request = json.load(sys.stdin)
    try:
        answer(ok=OPERATIONS[request["op"]](request))
    except (rados.Error, rbd.Error, OSError) as error:
        answer(
            errno=abs(int(getattr(error, "errno", 0) or 0)),
            error=_text(error),
            kind=type(error).__name__,
        )
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
