"""Archives that somebody gives for an image, and a container's description as YAML."""

from __future__ import annotations

import contextlib
import io
import tarfile
from collections.abc import Iterator
from pathlib import Path

from imageapi.build.source import detect
from imageapi.spec.container import parse_container
from layercake.features.images.build_commands import container_file
from layercake.kraken.errors import InputError
from tests.fuzz import mutate
from tests.fuzz.harness import Target
from tests.fuzz.targets.inventory import BOMB

CONTAINERS = (
    b"systemd: false\ncommand: [/bin/serve, -v]\nenv: {A: b}\nrestart: always\n",
    b"health: {kind: http, port: 80, path: /, interval_s: 1.0}\nresources: {memory: 1g, cpus: 1}\n",
    b"mounts:\n  - {target: /x, kind: tmpfs, size: 1m}\n  - {target: /y, kind: bind, source: /a}\n",
    b"namespaces: [pid, network]\nhostname: a.b\ndevices: [/dev/null]\nhooks: {poststart: [[x]]}\n",
    b"env: " + BOMB.encode().replace(b"\n", b"\n  "),
)


def _archive(*names: str, **extra: str) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name in names:
            member = tarfile.TarInfo(name)
            member.size = 3
            member.pax_headers = dict(extra)
            archive.addfile(member, io.BytesIO(b"abc"))
        link = tarfile.TarInfo("etc/link")
        link.type = tarfile.SYMTYPE
        link.linkname = "../usr"
        archive.addfile(link)
    return file.getvalue()


@contextlib.contextmanager
def archive(directory: Path) -> Iterator[Target]:
    """Root file systems, OCI archives and archives of docker as tar files."""
    file = directory / "image.tar"

    def detect_archive(data: bytes) -> None:
        file.write_bytes(data)
        detect(file)

    seeds = [
        _archive("bin/sh", "etc/passwd", "usr/x"),
        _archive("oci-layout", "index.json", "blobs/sha256/" + "0" * 64),
        _archive("manifest.json", "0" * 64 + "/layer.tar"),
        _archive("etc/" + "x" * 300, **{"SCHILY.xattr.user.a": "b", "GNU.sparse.size": "9"}),
    ]
    words = (b"ustar\0", b"../", b"/", b"L", b"x", b"g", b"77777777777\0", b"\x80" + b"\xff" * 11)
    make = mutate.data(seeds, words)
    yield Target(make, detect_archive, (InputError,), slowest_s=2.0, peak_mb=128.0)


@contextlib.contextmanager
def container(directory: Path) -> Iterator[Target]:
    """container.yaml, as a person has written it or has been given it."""
    file = directory / "container.yaml"

    def read_container(data: bytes) -> None:
        file.write_bytes(data)
        parse_container(container_file(str(file)))

    words = (
        b"&a ",
        b"*a",
        b"<<: *a",
        b"!!python/object:os.system ",
        b"- ",
        b": ",
        b"\n",
        b"{",
        b"]",
    )
    make = mutate.data(CONTAINERS, words)
    yield Target(make, read_container, (InputError,), slowest_s=2.0, peak_mb=128.0)
