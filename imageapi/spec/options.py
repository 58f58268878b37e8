"""The options that a mount may have: words that change how it is used, and reach no other device,
host or program than those that its description names. (btrfs' `device=`, xfs' `logdev=` and nfs'
`mountaddr=` would; ext4's `errors=panic` ends the node.)

Sources: mount(8), nfs(5), ext4(5), xfs(5), btrfs(5).
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from imageapi.spec.fields import fail

GENERAL = (
    "defaults",
    "ro",
    "rw",
    "nosuid",
    "nodev",
    "noexec",
    "noatime",
    "nodiratime",
    "relatime",
    "strictatime",
    "sync",
    "dirsync",
)
"""What every file system knows."""

FILESYSTEMS = (
    "squashfs",
    "erofs",
    "ext2",
    "ext3",
    "ext4",
    "xfs",
    "btrfs",
    "vfat",
    "exfat",
    "iso9660",
    "udf",
    "f2fs",
)
"""Those of block devices."""

_NUMBER = "[0-9]{1,9}"
_OCTAL = "[0-7]{1,4}"
_WORD = "[A-Za-z0-9_-]{1,40}"
_DOS = {
    "uid": _NUMBER,
    "gid": _NUMBER,
    "umask": _OCTAL,
    "fmask": _OCTAL,
    "dmask": _OCTAL,
    "iocharset": _WORD,
}
_EXT = {
    "noload": "",
    "norecovery": "",
    "discard": "",
    "nodiscard": "",
    "data": "ordered|writeback|journal",
    "commit": _NUMBER,
    "errors": "remount-ro|continue",
    "acl": "",
    "noacl": "",
    "user_xattr": "",
    "nouser_xattr": "",
    "lazytime": "",
}
_OF: Mapping[str, Mapping[str, str]] = {
    "ext2": {
        k: v
        for k, v in _EXT.items()
        if k in ("errors", "acl", "noacl", "user_xattr", "nouser_xattr")
    },
    "ext3": _EXT,
    "ext4": _EXT,
    "xfs": {
        "norecovery": "",
        "nouuid": "",
        "discard": "",
        "nodiscard": "",
        "inode64": "",
        "largeio": "",
        "logbufs": _NUMBER,
        "allocsize": r"[0-9]{1,9}[kmg]?",
    },
    "btrfs": {
        "subvol": r"/?[A-Za-z0-9@_.-]+(/[A-Za-z0-9@_.-]+)*",
        "subvolid": _NUMBER,
        "compress": "(zlib|lzo|zstd|no)(:[0-9]{1,2})?",
        "discard": "async",
        "nodiscard": "",
        "ssd": "",
        "nossd": "",
        "rescue": "nologreplay",
        "degraded": "",
    },
    "vfat": {
        **_DOS,
        "codepage": _NUMBER,
        "utf8": "",
        "shortname": "lower|win95|winnt|mixed",
        "quiet": "",
    },
    "exfat": _DOS,
    "udf": {k: v for k, v in _DOS.items() if k not in ("fmask", "dmask")},
    "iso9660": {
        "uid": _NUMBER,
        "gid": _NUMBER,
        "mode": _OCTAL,
        "dmode": _OCTAL,
        "iocharset": _WORD,
        "norock": "",
        "nojoliet": "",
    },
    "f2fs": {"discard": "", "nodiscard": "", "norecovery": ""},
    "nfs": {
        "vers": "3|4|4[.][012]",
        "nfsvers": "3|4|4[.][012]",
        "proto": "tcp|tcp6|rdma",
        "port": _NUMBER,
        "mountport": _NUMBER,
        "mountproto": "tcp|tcp6|udp|udp6",
        "sec": "sys|none",
        "hard": "",
        "soft": "",
        "softerr": "",
        "timeo": _NUMBER,
        "retrans": _NUMBER,
        "rsize": _NUMBER,
        "wsize": _NUMBER,
        "ac": "",
        "noac": "",
        "actimeo": _NUMBER,
        "acregmin": _NUMBER,
        "acregmax": _NUMBER,
        "acdirmin": _NUMBER,
        "acdirmax": _NUMBER,
        "cto": "",
        "nocto": "",
        "nolock": "",
        "local_lock": "none|all|flock|posix",
        "lookupcache": "all|none|pos|positive",
        "nconnect": "[1-9]|1[0-6]",
        "rdirplus": "",
        "nordirplus": "",
        "resvport": "",
        "noresvport": "",
        "sharecache": "",
        "nosharecache": "",
        "acl": "",
        "noacl": "",
    },
}
"""For each file system {option: what may stand behind its =, "" for nothing}."""

_NO_JOURNAL = {
    "ext3": "noload",
    "ext4": "noload",
    "xfs": "norecovery",
    "btrfs": "rescue=nologreplay",
    "f2fs": "norecovery",
}


def parse_options(value: object, fstype: str) -> str:
    """The options of a mount, as they were given. Raises InputError that names the one that cannot
    be used."""
    if not isinstance(value, str) or len(value) > 500:
        raise fail("object options", value, "words with commas between, 500 characters at most")
    allowed = _OF.get(fstype, {})
    for option in filter(None, value.split(",")):
        name, equals, argument = option.partition("=")
        pattern = allowed.get(name)
        fits = (
            pattern is not None
            and bool(equals) == bool(pattern)
            and re.fullmatch(pattern, argument, re.ASCII)
        )
        if option in GENERAL or (fits and ".." not in argument.split("/")):
            continue
        raise fail(
            f"object options of {fstype}", option, f"some of {', '.join((*GENERAL, *allowed))}"
        )
    return value


def writes_nothing(fstype: str) -> str:
    """What keeps a file system that is mounted read-only from writing to its device all the same,
    to repeat its journal."""
    return _NO_JOURNAL.get(fstype, "")
