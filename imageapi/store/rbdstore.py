"""Contents in a Ceph cluster, as RBD images that nodes attach: nothing is copied to a node but the
blocks that it reads.

    POOL/image.HEX@v1       the squashfs and its hash tree; the snapshot is protected
    DIR/cluster.json        which contents are there, and where the monitors are; the head's
                            loop asks its copy in memory
    DIR/node.key            the key of a client that may only read this pool; nodes without one
                            of their own get it over TLS
    DIR/node-keys.json      the nodes' own keys (nodekeys.py)
    DIR/signing.key         signs manifests (manifest.py)

Everything that talks to the cluster is a job of a helper process (rbdworker.py says why), with
a limit on how long it may make no progress. A cluster that is away costs a clear error and nothing
else.
"""

from __future__ import annotations

import errno
import json
import os
import re
import selectors
import subprocess
import tempfile
import threading
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from imageapi.spec.attachment import RbdSource, parse_verity
from imageapi.spec.image import manifest
from imageapi.store.content import Attachment, open_squashfs
from imageapi.store.manifest import Signer
from imageapi.store.nodekeys import NodeKeys
from layercake.base.files import read_json, write_atomic, write_json
from layercake.kraken.errors import InputError, LayercakeError, OperationFailed, Unreachable

PYTHON = "/usr/bin/python3"
ROOT = Path(__file__).resolve().parents[2]
ANSWER_S = 15
STALL_S = 50.0
"""How long librados waits for an answer, and how long a job may say nothing: above that,
because it may wait twice."""

_KEY = re.compile(r"\[client\.([^\]\s]+)\]|^\s*key\s*=\s*([A-Za-z0-9+/=]+)\s*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Cluster:
    """An existing cluster: its ceph.conf, the head's keyring, the pool; `node_keyring` is the
    nodes', "" to ask the cluster for it.

    `user` is the head's client without "client.", "" for the first one in the keyring.
    """

    conf: str
    keyring: str
    pool: str
    user: str = ""
    node_keyring: str = ""

    @property
    def node_user(self) -> str:
        """The client that nodes use when the head makes it."""
        return f"layercake-node-{self.pool}"


def read_keyring(path: Path) -> dict[str, str]:
    """{client: key} of a keyring file, in its order. Raises InputError; the keys are in no
    message."""
    try:
        text = path.read_text()
    except OSError as error:
        raise InputError(f"cannot read the Ceph keyring {path}: {error.strerror}") from None
    keys = {}
    client = ""
    for match in _KEY.finditer(text):
        if match[1]:
            client = match[1]
        elif client:
            keys[client] = match[2]
    if not keys:
        raise InputError(
            f"cannot use the Ceph keyring {path}: it holds no client's key",
            hint="write one: ceph auth get client.NAME -o FILE",
        )
    return keys


class RbdJobs:
    """Runs the helper process. Blocks; from any thread."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        python: str = PYTHON,
        answer_s: int = ANSWER_S,
        stall_s: float = STALL_S,
    ) -> None:
        self._cluster = cluster
        self._python = python
        self._answer = answer_s
        self._stall = stall_s

    def run(self, op: str, what: str, *, source: int = -1, **more: Any) -> dict[str, Any]:
        """One job; `what` names it in errors ("add image x"). `source` is the descriptor of the
        file that is taken in, which the process reads as its own. Raises LayercakeError."""
        cluster = self._cluster
        user = cluster.user or next(iter(read_keyring(Path(cluster.keyring))))
        request = {
            "op": op,
            "conf": cluster.conf,
            "keyring": cluster.keyring,
            "user": user,
            "pool": cluster.pool,
            "limit_s": self._answer,
            **({"path": f"/proc/self/fd/{source}"} if source >= 0 else {}),
            **more,
        }
        command = [self._python, "-m", "imageapi.store.rbdworker"]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        with tempfile.TemporaryFile() as trouble:
            process = subprocess.Popen(
                command,
                cwd=ROOT,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=trouble,
                pass_fds=(source,) if source >= 0 else (),
            )
            try:
                answer = self._converse(process, json.dumps(request).encode())
            finally:
                process.kill()
                process.wait()
                for pipe in (process.stdin, process.stdout):
                    if pipe:
                        pipe.close()
            if answer is None:
                raise Unreachable(
                    f"cannot {what}: the Ceph cluster did not answer for {self._stall:.0f} s",
                    hint=f"look at it: ceph -c {cluster.conf} -s",
                )
            if "ok" in answer:
                return dict(answer["ok"])
            if "errno" in answer:
                raise self._explain(what, answer)
            trouble.seek(0)
            last = (
                trouble.read().decode("utf-8", "replace").strip().splitlines()
                or ["it said nothing"]
            )[-1][:300]
        raise OperationFailed(
            f"cannot {what}: the helper process ended early: {last}",
            hint="apt-get install python3-rados python3-rbd",
        )

    def _converse(self, process: subprocess.Popen[bytes], request: bytes) -> dict[str, Any] | None:
        """The last line of the answer, {} if there is none, None if nothing came in time."""
        stdin = process.stdin
        stdout = process.stdout
        if stdin is None or stdout is None:
            raise OperationFailed("cannot talk to the helper process: it has no pipes")
        try:
            stdin.write(request)
            stdin.close()
        except BrokenPipeError:
            return {}
        return _last_line(stdout, self._stall)

    def _explain(self, what: str, answer: Mapping[str, Any]) -> LayercakeError:
        """An error of the cluster in words. librados' messages hold no keys."""
        cluster = self._cluster
        number = int(answer["errno"])
        text = str(answer["error"])[:300]
        if (
            number in (errno.ETIMEDOUT, errno.ENOTCONN, errno.ECONNREFUSED, errno.ESHUTDOWN)
            or answer.get("kind") == "TimedOut"
        ):
            return Unreachable(
                f"cannot {what}: the Ceph cluster does not answer in time",
                hint=f"look at it: ceph -c {cluster.conf} -s",
            )
        if number in (errno.EACCES, errno.EPERM):
            return OperationFailed(
                f"cannot {what}: the Ceph cluster refuses the key in {cluster.keyring}",
                hint=f"it needs: mon 'profile rbd' osd 'profile rbd pool={cluster.pool}'",
            )
        if number in (errno.ENOSPC, errno.EDQUOT):
            return OperationFailed(
                f"cannot {what}: pool {cluster.pool} is full",
                hint="remove images that are not needed, or give the cluster more disks",
            )
        if number == errno.ENOENT:
            return OperationFailed(
                f"cannot {what}: {text}",
                hint=f"are pool {cluster.pool}, {cluster.conf} and the keyring there?",
            )
        return OperationFailed(f"cannot {what}: {text}")


def _last_line(stream: IO[bytes], stall: float) -> dict[str, Any] | None:
    """Reads JSON lines until the stream ends; None if it is silent for `stall` seconds."""
    last = b""
    buffer = b""
    deadline = time.monotonic() + stall
    with selectors.DefaultSelector() as selector:
        selector.register(stream, selectors.EVENT_READ)
        while True:
            if not selector.select(max(0.0, deadline - time.monotonic())):
                return None
            data = os.read(stream.fileno(), 1 << 16)
            if not data:
                break
            deadline = time.monotonic() + stall
            *lines, buffer = (buffer + data).split(b"\n")
            last = lines[-1] if lines else last
    try:
        answer = json.loads(last or b"{}")
    except ValueError:
        return {}
    return answer if isinstance(answer, dict) else {}


class RbdContent:
    """The backend (content.Content) over one pool."""

    def __init__(self, directory: Path, cluster: Cluster, *, jobs: RbdJobs | None = None) -> None:
        self._directory = directory
        self._cluster = cluster
        self._jobs = jobs or RbdJobs(cluster)
        self._signer = Signer(directory / "signing.key")
        self._lock = threading.Lock()
        self._file = directory / "cluster.json"
        self._facts = self._load()
        own = not cluster.node_keyring  # else somebody else makes the clients
        self.keys = (
            NodeKeys(directory / "node-keys.json", cluster.pool, self._jobs) if own else None
        )

    def _load(self) -> dict[str, Any]:
        """What is known of the cluster. Facts of another pool are not."""
        nothing: dict[str, Any] = {
            "pool": self._cluster.pool,
            "monitors": [],
            "node_user": "",
            "contents": {},
        }
        try:
            stored = read_json(self._file) or nothing
        except ValueError as error:
            raise InputError(
                f"cannot read {self._file}: {error}", hint="remove it and add the images again"
            ) from None
        return dict(stored) if stored.get("pool") == self._cluster.pool else nothing

    def _learn(self, **facts: Any) -> None:
        with self._lock:
            self._facts = {**self._facts, **facts}
            write_json(self._file, self._facts)

    @property
    def secret_name(self) -> str:
        """What attachments call the nodes' key."""
        return f"ceph-{self._cluster.pool}"

    def add(self, path: Path) -> tuple[str, int]:
        """Pushes a squashfs; what is there already is checked and used."""
        with open_squashfs(path) as file:
            return self._push(file.fileno(), f"add {path}")

    def _push(self, source: int, what: str) -> tuple[str, int]:
        """Pushes what is open as `source`."""
        self._directory.mkdir(parents=True, exist_ok=True)
        self._ensure_node_key(what)
        with tempfile.NamedTemporaryFile(dir=self._directory, prefix=".tree-") as tree:
            measured = self._jobs.run("measure", what, source=source, tree=tree.name)
            digest = str(measured["digest"])
            size = int(measured["size"])
            verity = measured["verity"]
            text = manifest(digest, size, verity)
            answer = self._jobs.run(
                "put",
                what,
                source=source,
                tree=tree.name,
                hex=digest.partition(":")[2],
                manifest=text,
                signature=self._signer.sign(text),
                hash_offset=verity["hash_offset"],
            )
        if answer["manifest"] != text or not self._signer.signed(text, answer["signature"]):
            raise OperationFailed(
                f"cannot {what}: the pool holds an image of this digest that this head has not "
                "signed",
                hint="another head's, or a forged one: remove "
                f"{self._cluster.pool}/image.{digest[8:20]}..., "
                "or use that head's signing.key",
            )
        self._learn(
            monitors=answer["monitors"],
            contents={**self._facts["contents"], digest: {"size": size, "verity": verity}},
        )
        return digest, size

    def _ensure_node_key(self, what: str) -> None:
        """Has the nodes' key in DIR/node.key, from the keyring that the settings name or from the
        cluster."""
        if self._cluster.node_keyring:
            user, key = next(iter(read_keyring(Path(self._cluster.node_keyring)).items()))
        else:
            user = self._cluster.node_user
            if self._facts["node_user"] == user and self._key_file.exists():
                return
            try:
                key = str(self._jobs.run("node_key", what, node_user=user)["key"])
            except OperationFailed:
                raise OperationFailed(
                    f"cannot {what}: the head may not make a key for the nodes, and the settings "
                    "name none",
                    hint=f"ceph auth get-or-create client.{user} mon 'profile rbd-read-only' osd "
                    "'profile rbd-read-only "
                    f"pool={self._cluster.pool}' -o FILE; then set images.node_keyring: FILE",
                ) from None
        write_atomic(self._key_file, key)
        self._learn(node_user=user)

    @property
    def _key_file(self) -> Path:
        return self._directory / "node.key"

    def prune(self, keep: Collection[str]) -> list[str]:
        """Removes images and their snapshots: those that this head has signed. Another head's in
        the same pool stay."""
        if not self._facts["contents"]:
            return []
        what = "remove unused images"
        images = self._jobs.run(
            "listing", what, keep=[digest.partition(":")[2] for digest in keep]
        )["images"]
        ours = sorted(
            i["hex"] for i in images if self._signer.signed(i["manifest"], i["signature"])
        )
        if ours:
            self._jobs.run("remove", what, images=ours)
        deleted = {d for d in self._facts["contents"] if d not in keep} | {
            f"blake2b:{name}" for name in ours
        }
        self._learn(contents={d: c for d, c in self._facts["contents"].items() if d not in deleted})
        return sorted(deleted)

    def verify(self, digest: str) -> None:
        """Reads an image's snapshot again, all of it."""
        content = self._facts["contents"][digest]
        what = "read it again"
        try:
            answer = self._jobs.run(
                "verify", what, hex=digest.partition(":")[2], size=content["size"]
            )
        except OperationFailed as error:
            raise OperationFailed(
                error.message.removeprefix(f"cannot {what}: "), hint="add it again"
            ) from None
        text = manifest(digest, content["size"], content["verity"])
        if (
            answer["digest"] != digest
            or answer["manifest"] != text
            or not self._signer.signed(text, answer["signature"])
        ):
            raise OperationFailed(
                "its image in the cluster was changed or damaged", hint="add it again"
            )

    def file(self, digest: str, spare: Path) -> Path:
        """A copy: the squashfs without its hash tree."""
        size = self._facts["contents"][digest]["size"]
        self._jobs.run(
            "get",
            f"read content {digest[:24]}",
            hex=digest.partition(":")[2],
            size=size,
            path=str(spare),
        )
        return spare

    def attachment(self, digest: str, node: str = "") -> Attachment | None:
        """How a node attaches a content that is in the cluster: with a key of its own, or else with
        the one that all share."""
        facts = self._facts
        content = facts["contents"].get(digest)
        if content is None:
            return None
        own = self.keys.of(node) if self.keys else None
        user, secret = (own[0], f"ceph-{own[0]}") if own else (facts["node_user"], self.secret_name)
        source = RbdSource(
            tuple(facts["monitors"]),
            self._cluster.pool,
            f"image.{digest.partition(':')[2]}",
            "v1",
            user,
            secret,
        )
        return Attachment(source.to_wire(), parse_verity(content["verity"]).to_wire())

    def secret(self, name: str, node: str = "") -> str:
        """A node's own key, or the one that all share."""
        own = self.keys.of(node) if self.keys else None
        if own is not None and name == f"ceph-{own[0]}":
            return own[1]
        if name != self.secret_name:
            raise OperationFailed(f"cannot hand out secret {name[:80]!r}: there is no such secret")
        try:
            return self._key_file.read_text()
        except OSError as error:
            raise OperationFailed(
                f"cannot hand out secret {name}: {error.strerror}", hint="add an image again"
            ) from None

    def check(self) -> str:
        """Asks the cluster whether the pool can be used, and where its monitors are now."""
        what = f"use pool {self._cluster.pool}"
        answer = self._jobs.run("check", what)
        self._directory.mkdir(parents=True, exist_ok=True)
        if self._cluster.node_keyring:
            self._ensure_node_key(what)  # it may have been changed since
        if answer["monitors"] != self._facts["monitors"]:
            self._learn(monitors=answer["monitors"])
        return f"Ceph pool {self._cluster.pool}, monitors {', '.join(answer['monitors'])}"
