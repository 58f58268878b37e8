"""NFS without mount.nfs: the kernel does it all, but wants the server's address in `addr` (nfs(5)).

A server that does not answer must hold up nobody but who reads there. So a child does the mount,
which can be killed; what is only read gives an error after half a minute (`softerr`), where what is
written waits until the server is back (`hard`): an error would lose data. Who waits so can be
killed, and `unmount_away` (mount.py) ends it.
"""

from __future__ import annotations

import errno
import os
import socket
from pathlib import Path

from imageapi.node import modules
from imageapi.node.mount import MS_NODEV, MS_RDONLY, known_filesystems, mount_away, split_options
from layercake.kraken.errors import LayercakeError, OperationFailed, Unreachable

MOUNT_LIMIT = 30.0
"""Seconds for the server to answer."""

SOFT = ("softerr", "timeo=100", "retrans=2")
"""Where nothing is written: three tries in 30 seconds, then an error."""

_AWAY = (
    errno.ETIMEDOUT,
    errno.ECONNREFUSED,
    errno.EHOSTUNREACH,
    errno.ENETUNREACH,
    errno.EHOSTDOWN,
    errno.ECONNRESET,
    errno.EIO,
)
_VERSION = (errno.EPROTONOSUPPORT, errno.EPROTO, errno.EOPNOTSUPP, errno.EPFNOSUPPORT)


def mount(source: str, target: Path, options: str = "", *, readonly: bool = False) -> None:
    """Mounts HOST:/PATH; without `vers` among the options it is NFS 4.2. Raises Unreachable if its
    server does not answer, OperationFailed for what it refuses, or this kernel does not have."""
    flags, rest = split_options(options)
    flags |= MS_NODEV | (MS_RDONLY if readonly else 0)
    data = ",".join(kernel_options(rest, _address(source), readonly=bool(flags & MS_RDONLY)))
    _client(source)
    if code := mount_away(source, target, "nfs", flags, data, MOUNT_LIMIT):
        raise explain(code, source, data)


def kernel_options(options: str, address: str, *, readonly: bool) -> list[str]:
    """The options for the kernel. NFS 3 has its locks on this node alone: between nodes they need a
    program that minOS does not have (rpc.statd); those of NFS 4 need none."""
    given_options = [option for option in options.split(",") if option]
    names = {option.partition("=")[0] for option in given_options}
    if not names & {"vers", "nfsvers"}:
        given_options.append("vers=4.2")
    if not names & {"hard", "soft", "softerr"}:
        given_options += (
            [option for option in SOFT if option.partition("=")[0] not in names]
            if readonly
            else ["hard"]
        )
    if {"vers=3", "nfsvers=3"} & set(given_options) and not names & {"nolock", "local_lock"}:
        given_options.append("nolock")
    return [*given_options, f"addr={address}"]


def _address(source: str) -> str:
    host = source[: source.index(":/")].strip("[]")
    try:
        return str(socket.getaddrinfo(host.encode(), None, type=socket.SOCK_STREAM)[0][4][0])
    except OSError as error:
        raise Unreachable(
            f"cannot mount nfs {source}: its host is not known: {error.strerror}",
            hint="name it by its address, or see that the node's name servers know it",
        ) from None


def _client(source: str) -> None:
    """Has the kernel's client there."""
    if {"nfs", "nfs4"} & known_filesystems():
        return
    try:
        modules.need("nfs", Path("/proc/fs/nfsfs"))
    except OperationFailed as error:
        raise OperationFailed(
            f"cannot mount nfs {source}: this kernel has no NFS client ({error.message})",
            hint="its modules are in the boot profile `server`",
        ) from None


def explain(number: int, source: str, options: str) -> LayercakeError:
    """What the kernel's error number means here."""
    why = os.strerror(number)
    hint = ""
    if number in _AWAY:
        text = f"cannot mount nfs {source}: its server does not answer ({why})"
        return Unreachable(
            text,
            hint="is it up, and does it take port 2049 from this node? NFS 3: those of rpcbind and "
            "mountd too",
        )
    if number in (errno.EACCES, errno.EPERM):
        why = "its server refuses this node"
        hint = "does its list of exports have this path for the node's address, and for root?"
    elif number in (errno.ENOENT, errno.ESTALE, errno.ENOTDIR):
        why = "its server has no such export"
        hint = "NFS 4 counts paths from the server's root of exports"
    elif number in _VERSION:
        why = "its server does not speak this version"
        hint = "say another in `options`: vers=4.1, or vers=3"
    elif number == errno.EINVAL:
        why = f"the kernel does not take the options {options}"
    return OperationFailed(f"cannot mount nfs {source}: {why}", hint=hint)
