"""A small root file system and a Dockerfile over it: no registry is needed."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from imageapi.build.build import Built, Options, build

APPLETS = ("sh", "cat", "echo", "mkdir", "sleep", "ls")
DOCKERFILE = """\
FROM scratch
ARG COLOUR=none
COPY root/ /
RUN ["/bin/sh", "-c", "mkdir -p /app /etc; echo $COLOUR > /etc/colour"]
ENV GREETING=hello
WORKDIR /app
CMD ["sh", "-c", "echo $GREETING"]
"""
Build = Callable[..., Built]


def busybox_tree(root: Path) -> Path:
    """A root file system of busybox alone."""
    (root / "bin").mkdir(parents=True)
    busybox = shutil.which("busybox")
    assert busybox, "apt-get install busybox-static"
    shutil.copy(busybox, root / "bin/busybox")
    for applet in APPLETS:
        (root / "bin" / applet).symlink_to("busybox")
    return root


@pytest.fixture
def context(tmp_path: Path) -> Path:
    """A directory with a Dockerfile and what it copies."""
    busybox_tree(tmp_path / "context/root")
    (tmp_path / "context/Dockerfile").write_text(DOCKERFILE)
    return tmp_path / "context"


@pytest.fixture
def make(tmp_path: Path) -> Build:
    """Builds into tmp_path/out/NAME; fails if anything but the result is left there."""

    def call(source: Path, name: str = "image.squashfs", **options: object) -> Built:
        out = tmp_path / "out" / name
        out.parent.mkdir(exist_ok=True)
        before = set(out.parent.iterdir())
        try:
            return build(source, out, Options(**options))  # type: ignore[arg-type]
        finally:
            assert set(out.parent.iterdir()) - before <= {out}

    return call


def unpack(image: Path, to: Path) -> Path:
    """What is in an image."""
    subprocess.run(
        ["unsquashfs", "-quiet", "-no-progress", "-d", str(to), str(image)],
        check=True,
        capture_output=True,
    )
    return to
