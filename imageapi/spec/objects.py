"""Attach and mount objects as they are asked for, checked: nested descriptions to plain, complete
ones.

    A = {"kind": "local", "disk": SERIAL or WWID, "partition"} | {"kind": "local", "path"}
      | {"kind": "loopback", "path", "readonly"} | {"kind": "http", "url", "digest", "size"}
      | {"kind": "rbd", ...} (attachment.py) | {"kind": "nbd", "host", "port", "export", "readonly"}
      | {"kind": "iscsi", "portal": "HOST:PORT", "target": IQN, "lun", "user", "secret": NAME}
    M = {"kind": "attach", "attach": A, "fstype", "options", "readonly"}
      | {"kind": "bind", "source", "readonly"}
      | {"kind": "nfs", "source": "HOST:/PATH", "options", "readonly"} | {"kind": "tmpfs", "size"}
      | {"kind": "overlay", "lower": [M, ...] (the topmost first), "size"}
      | {"kind": "uri", "uri", ...}

Wherever an A or an M may stand, {"id": "a7"} may too: an object that is there already.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from imageapi.spec.attachment import parse_rbd
from imageapi.spec.fields import absolute, fail, whole
from imageapi.spec.names import DIGEST
from imageapi.spec.options import FILESYSTEMS, parse_options
from layercake.base.text import whole_number

Spec = dict[str, Any]
HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?|\[[0-9a-fA-F:.]+\]")
SIZE = re.compile(r"[1-9][0-9]{0,15}[kmg]?|[1-9][0-9]?%|100%")
_ID = re.compile(r"[acm][0-9]{1,12}")
_IQN = re.compile(r"(iqn|eui|naa)\.[A-Za-z0-9.:-]{1,200}")
_PRINTABLE = re.compile(r"[!-~]{1,223}")
SECRET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,119}")
_EXPORT = re.compile(r"[A-Za-z0-9._/:-]{0,200}")
_OPTIONS = re.compile(r"[A-Za-z0-9_=.,:%+@/-]{0,500}")
_FSTYPE = re.compile(r"[a-z0-9.]{1,20}")
_EXPORT_PATH = re.compile(r"/[^\x00-\x1f\x7f\\]{0,1000}")
_DEPTH = 4
_URIS = "file, nfs, nbd, iscsi, http or https, then ://"
NBD_PORT = 10809
ISCSI_PORT = 3260


def _text(
    data: Mapping[str, Any],
    name: str,
    pattern: re.Pattern[str],
    expected: str,
    default: str | None = None,
) -> str:
    value = data.get(name, default)
    if not isinstance(value, str) or not pattern.fullmatch(value):
        raise fail(f"object {name}", value, expected)
    return value


def _only(data: Mapping[str, Any], *names: str) -> None:
    for key in data:
        if key not in ("kind", *names):
            raise fail("object field", key, ", ".join(names))


def _id(data: Mapping[str, Any]) -> Spec:
    if len(data) != 1:
        raise fail("object", sorted(map(str, data)), "an id alone, or a description without one")
    return {"id": _text(data, "id", _ID, "the id of an object, as m3")}


def parse_attach(data: object) -> Spec:
    """A, checked and complete. Raises InputError."""
    if not isinstance(data, Mapping):
        raise fail("attach", data, "a mapping")
    if "id" in data:
        return _id(data)
    kind = data.get("kind")
    if kind == "local":
        if "path" in data:
            _only(data, "path")
            return {"kind": kind, "path": absolute(data.get("path"), "attach path")}
        _only(data, "disk", "partition")
        return {
            "kind": kind,
            "disk": _text(data, "disk", _PRINTABLE, "a disk's serial number or WWID"),
            "partition": whole(data, "partition", 0, 0, 255, "object"),
        }
    if kind == "loopback":
        _only(data, "path", "readonly")
        return {
            "kind": kind,
            "path": absolute(data.get("path"), "attach path"),
            "readonly": bool(data.get("readonly")),
        }
    if kind == "http":
        _only(data, "url", "digest", "size")
        return {
            "kind": kind,
            "url": _text(
                data,
                "url",
                re.compile(r"(https?://|file:///)\S{1,2000}"),
                "an http or https address",
            ),
            "digest": _text(data, "digest", DIGEST, "blake2b: and 64 hex digits"),
            "size": whole(data, "size", None, 0, 1 << 60, "object"),
        }
    if kind == "rbd":
        return parse_rbd(data).to_wire()
    if kind == "nbd":
        _only(data, "host", "port", "export", "readonly")
        return {
            "kind": kind,
            "host": _text(data, "host", HOST, "a host"),
            "port": whole(data, "port", NBD_PORT, 1, 65535, "object"),
            "export": _text(data, "export", _EXPORT, "the name of an export", ""),
            "readonly": bool(data.get("readonly")),
        }
    if kind == "iscsi":
        return _parse_iscsi(data)
    raise fail("attach kind", kind, "rbd, nbd, iscsi, local, loopback or http")


def _parse_iscsi(data: Mapping[str, Any]) -> Spec:
    """With a user and the name of its secret, or without both. The secret itself stands in no
    description."""
    _only(data, "portal", "target", "lun", "user", "secret")
    host, port = split_port(_text(data, "portal", re.compile(r"\S+"), "HOST:PORT"), ISCSI_PORT)
    spec = {
        "kind": "iscsi",
        "portal": f"{host}:{port}",
        "target": _text(data, "target", _IQN, "an iSCSI name, iqn...."),
        "lun": whole(data, "lun", 0, 0, 16383, "object"),
    }
    if data.get("user") is None and data.get("secret") is None:
        return spec
    return {
        **spec,
        "user": _text(
            data, "user", _PRINTABLE, "the target's CHAP user, with the name of its secret beside"
        ),
        "secret": _text(
            data,
            "secret",
            SECRET,
            "the name of a file in `images` in the head's directory of secrets",
        ),
    }


def secrets_of(container: Mapping[str, Any]) -> set[str]:
    """The names of the secrets that a container's mounts need, by its description in wire form."""
    names: set[str] = set()
    for mount in container.get("mounts") or ():
        names |= _secrets_in(mount)
    return names


def _secrets_in(mount: Mapping[str, Any]) -> set[str]:
    attach = mount.get("attach") or {}
    names = {attach["secret"]} if attach.get("kind") == "iscsi" and "secret" in attach else set()
    return names.union(*(_secrets_in(inner) for inner in mount.get("lower") or ()))


SHARED_WITH_IMAGES = ("/run/layercake/busy.d",)
"""Directories of the node that are there for its images: that of the BUSY flags."""
_REMOTE_DEVICES = ("http", "iscsi", "nbd", "rbd")


def is_of_node(mount: Mapping[str, Any]) -> bool:
    """Whether a sound mount shows something that is the node's own: a file, a disk, or an object
    that was made on it for somebody else."""
    kind = mount.get("kind")
    if kind == "overlay":
        return any(is_of_node(inner) for inner in mount["lower"])
    if kind == "attach":
        return mount["attach"].get("kind") not in _REMOTE_DEVICES
    if kind == "bind":
        return mount["source"] not in SHARED_WITH_IMAGES
    return kind not in ("nfs", "tmpfs")


def split_port(text: str, default: int) -> tuple[str, int]:
    """(host, port) of HOST or HOST:PORT. Raises InputError."""
    match = re.fullmatch(rf"({HOST.pattern})(?::([0-9]{{1,5}}))?", text)
    if match is None or int(match[3] or default) not in range(1, 65536):
        raise fail("attach portal", text, "HOST:PORT")
    return match[1], int(match[3] or default)


def parse_mount(data: object, depth: int = 0) -> Spec:
    """M, checked and complete; a uri becomes what it stands for. Raises InputError."""
    if not isinstance(data, Mapping) or depth > _DEPTH:
        raise fail("mount", data, f"a mapping, nested at most {_DEPTH} deep")
    if "id" in data:
        return _id(data)
    kind = data.get("kind")
    if kind == "overlay":
        return _parse_overlay(data, depth)
    if kind == "uri":
        return parse_mount(resolve_uri(data), depth + 1)
    parse = _MOUNT_PARSERS.get(kind) if isinstance(kind, str) else None
    if parse is None:
        raise fail("mount kind", kind, "attach, bind, nfs, tmpfs, overlay or uri")
    return parse(data)


def _parse_bind(data: Mapping[str, Any]) -> Spec:
    _only(data, "source", "readonly")
    return {
        "kind": "bind",
        "source": absolute(data.get("source"), "mount source"),
        "readonly": bool(data.get("readonly")),
    }


def _parse_nfs(data: Mapping[str, Any]) -> Spec:
    _only(data, "source", "options", "readonly")
    source = _text(data, "source", re.compile(rf"({HOST.pattern}):/[^\0\n]*"), "HOST:/PATH")
    absolute(source[source.index(":/") + 1 :], "mount source")
    return {
        "kind": "nfs",
        "source": source,
        "readonly": bool(data.get("readonly")),
        "options": _text(data, "options", _OPTIONS, "words with commas between", ""),
    }


def _parse_tmpfs(data: Mapping[str, Any]) -> Spec:
    _only(data, "size")
    return {"kind": "tmpfs", "size": _text(data, "size", SIZE, "a size, as 64m or 50%", "50%")}


def _parse_overlay(data: Mapping[str, Any], depth: int) -> Spec:
    _only(data, "lower", "size")
    lower = data.get("lower")
    if not isinstance(lower, list) or not 1 <= len(lower) <= 16:
        raise fail("mount lower", lower, "a list of 1 to 16 mounts")
    return {
        "kind": "overlay",
        "lower": [parse_mount(m, depth + 1) for m in lower],
        "size": _text(data, "size", SIZE, "a size, as 64m or 50%", "50%"),
    }


def _parse_device(data: Mapping[str, Any]) -> Spec:
    """A mount of a block device. What others see too, or was there before, is not written to unless
    the description says so."""
    _only(data, "attach", "fstype", "options", "readonly")
    attach = parse_attach(data.get("attach"))
    readonly = data.get("readonly")
    if readonly is None:
        readonly = attach.get("kind") in ("iscsi", "local")
    if not isinstance(readonly, bool):
        raise fail("object readonly", readonly, "true or false")
    return {
        "kind": "attach",
        "attach": attach,
        "readonly": readonly,
        "fstype": _text(data, "fstype", _FSTYPE, "the name of a file system", "squashfs"),
        "options": _text(data, "options", _OPTIONS, "words with commas between", ""),
    }


_MOUNT_PARSERS: Mapping[str, Callable[[Mapping[str, Any]], Spec]] = {
    "attach": _parse_device,
    "bind": _parse_bind,
    "nfs": _parse_nfs,
    "tmpfs": _parse_tmpfs,
}


def check_mount(mount: Spec) -> Spec:
    """A sound mount, if it also reaches no further than it says: what is asked for anew, and what
    is going to be made. What an earlier version has taken is read all the same, so that one such
    image ends nothing. Raises InputError."""
    if mount.get("kind") == "nfs":
        path = (
            mount["source"].partition(":/")[2]
            if "]" not in mount["source"]
            else mount["source"].partition("]:/")[2]
        )
        if not _EXPORT_PATH.fullmatch(f"/{path}"):
            raise fail(
                "mount source",
                mount["source"],
                "HOST:/PATH of at most 1000 characters, none of them a control or \\",
            )
        parse_options(mount["options"], "nfs")
    if mount.get("kind") == "attach":
        if mount["fstype"] not in FILESYSTEMS:
            raise fail("object fstype", mount["fstype"], ", ".join(FILESYSTEMS))
        parse_options(mount["options"], mount["fstype"])
    for inner in mount.get("lower", ()):
        check_mount(inner)
    return mount


def resolve_uri(data: Mapping[str, Any]) -> Spec:
    """The mount that a uri stands for.

    - file:///dir: bind; file:///x.squashfs, x.img: loopback
    - nfs://HOST/PATH: nfs; nbd://HOST[:PORT]/EXPORT: nbd; iscsi://HOST[:PORT]/TARGET/LUN: iscsi
    - http://..., https://... with digest and size: http
    """
    _only(data, "uri", "digest", "size", "fstype", "options", "readonly")
    uri = data.get("uri")
    if not isinstance(uri, str) or "://" not in uri:
        raise fail("mount uri", uri, _URIS)
    scheme, _, rest = uri.partition("://")
    authority, slash, path = rest.partition("/")
    more = {name: data[name] for name in ("fstype", "options", "readonly") if name in data}
    if scheme == "file" and not authority and not path.endswith((".squashfs", ".img")):
        return {"kind": "bind", "source": slash + path, "readonly": bool(data.get("readonly"))}
    if scheme == "nfs" and slash:
        more.pop("fstype", None)
        return {"kind": "nfs", "source": f"{authority}:/{path}", **more}
    return {"kind": "attach", "attach": _uri_device(data, scheme, authority, path), **more}


def _uri_device(data: Mapping[str, Any], scheme: str, authority: str, path: str) -> Spec:
    """The attach object that a uri stands for."""
    if scheme == "file" and not authority:
        return {"kind": "loopback", "path": f"/{path}", "readonly": True}
    if scheme == "nbd":
        host, port = split_port(authority, NBD_PORT)
        readonly = bool(data.get("readonly"))
        return {"kind": "nbd", "host": host, "port": port, "export": path, "readonly": readonly}
    if scheme == "iscsi":
        target, _, lun = path.partition("/")
        unit = whole_number(lun or "0", 1 << 16)
        return {
            "kind": "iscsi",
            "portal": authority,
            "target": target,
            "lun": -1 if unit is None else unit,
        }
    if scheme in ("http", "https"):
        facts = {name: data.get(name) for name in ("digest", "size")}
        return {"kind": "http", "url": data["uri"], **facts}
    raise fail("mount uri", data["uri"], _URIS)


def shown(mount: Spec) -> str:
    """What a mount is of, for people: "nfs 10.0.0.1:/home"."""
    if mount.get("kind") == "attach":
        attach = mount["attach"]
        where = next(
            (
                attach[name]
                for name in ("path", "disk", "target", "export", "url", "image")
                if attach.get(name)
            ),
            "",
        )
        return f"{attach.get('kind', attach.get('id', ''))} {where}".strip()
    return f"{mount.get('kind', mount.get('id', ''))} {mount.get('source', '')}".strip()


@dataclass(frozen=True, slots=True)
class MountSpec:
    """Something from outside that a container sees at `target`: an M, as JSON so that two can be
    compared."""

    target: str
    mount: str

    @property
    def spec(self) -> Spec:
        """The M."""
        spec: Spec = json.loads(self.mount)
        return spec

    def to_wire(self) -> Spec:
        """The form that `parse_container_mount` reads."""
        return {"target": self.target, **self.spec}


def parse_container_mount(data: object) -> MountSpec:
    """One of a container's mounts: an M with its target beside. Raises InputError."""
    if not isinstance(data, Mapping):
        raise fail("mounts", data, "a list of mappings")
    rest = {key: value for key, value in data.items() if key != "target"}
    target = absolute(data.get("target"), "mounts target")
    if target == "/":
        raise fail("mounts target", target, "a path below /")
    return MountSpec(target, json.dumps(parse_mount(rest), sort_keys=True))
