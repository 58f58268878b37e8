"""From a Dockerfile, an archive or a directory to a squashfs file, by buildah, skopeo, umoci and
mksquashfs.

    Dockerfile ──buildah in a box──> archive
    archive ─────skopeo─────> OCI layout ──umoci──> root file system
    tar ─────────tar──────────────────────────────> root file system
    directory ────────────────────────────────────> root file system, as it is
    root file system ──checks──> mksquashfs ──> FILE.squashfs

The same input gives the same bytes: all times become SOURCE_DATE_EPOCH (0 when not set), entries
are sorted, owners are kept, and of the extended attributes only file capabilities. What a RUN step
itself makes up (a date, a random key, what a package mirror has today) is not in our hands.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from imageapi.build import cosign, dockerfile, rootfs
from imageapi.build.recipe import Recipe, read
from imageapi.build.sandbox import Sandbox
from imageapi.build.source import Kind, Source, detect
from imageapi.build.squash import squash
from imageapi.build.tools import LIMIT_S, PATH, Limits, run
from layercake.base.text import lines_of_proc, of_mountinfo, whole_number
from layercake.kraken.errors import InputError, LayercakeError, OperationFailed

Progress = Callable[[str, float | None], None]
"""Called with what is being done, and how much of it is done (0 to 1, None when nobody knows)."""

_STEP = re.compile(r"STEP (\d+)/(\d+): (.*)")
_TAG = "layercake"
_BUILDAH = ("buildah", "--root=/scratch/storage", "--runroot=/scratch/run", "--storage-driver=vfs")
_PROXIES = ("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")


@dataclass(frozen=True, slots=True)
class Options:
    """`systemd`, `command` and `env` go before what the source says; `build_args` are a
    Dockerfile's ARGs, `network` lets its steps, and the fetching of its base, out to the network
    (sandbox.py). `cosign_key` is a public key (PEM) by which an OCI image must be signed
    (cosign.py). No program of the build runs for more than `limit_s` seconds (tools.py)."""

    dockerfile: Path | None = None
    build_args: tuple[str, ...] = ()
    all_root: bool = False
    systemd: bool | None = None
    command: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    network: bool = False
    cosign_key: Path | None = None
    limit_s: float = LIMIT_S


@dataclass(frozen=True, slots=True)
class Built:
    """A finished image: its file, its digest (blake2b:HEX) and bytes, how to run it, and what a
    person should know."""

    path: Path
    kind: Kind
    digest: str
    size: int
    systemd: bool
    command: tuple[str, ...]
    env: tuple[tuple[str, str], ...]
    workdir: str
    notes: tuple[str, ...]

    def container(self) -> dict[str, Any]:
        """The container fields of POST /v1/images."""
        return {
            "systemd": self.systemd,
            "command": list(self.command) or None,
            "env": dict(self.env),
            "workdir": self.workdir,
        }


def build(
    path: Path,
    out: Path,
    options: Options = Options(),
    progress: Progress = lambda what, done: None,
) -> Built:
    """Builds an image into the file `out`. Must run as root. Raises InputError and
    OperationFailed."""
    if os.geteuid() != 0:
        raise InputError(
            "cannot build: only root can keep the owners of the files", hint="use sudo"
        )
    epoch = source_date(os.environ)
    progress("looking at the source", None)
    source = detect(path, options.dockerfile)
    if options.cosign_key is not None and source.kind not in (Kind.LAYOUT, Kind.OCI_ARCHIVE):
        raise InputError(
            f"cannot check a cosign signature of {path}: it is {source.kind.value}, and cosign "
            "signs OCI images",
            hint="give an OCI layout or archive; check a Dockerfile's base by itself before",
        )
    with _scratch(out.parent) as scratch:
        tree, recipe = _unpack(source, scratch, epoch, options, progress)
        return _finish(source, scratch, tree, recipe, out, epoch, options, progress)


def source_date(environment: Mapping[str, str]) -> int:
    """SOURCE_DATE_EPOCH (seconds, Unix), 0 when not set. Raises InputError."""
    text = environment.get("SOURCE_DATE_EPOCH", "") or "0"
    epoch = whole_number(text, (1 << 32) - 1)
    if epoch is None:
        raise InputError(
            f"cannot use SOURCE_DATE_EPOCH={text[:40]!r}: seconds since 1970 are expected"
        )
    return epoch


@contextmanager
def _scratch(near: Path) -> Iterator[Path]:
    """A directory for the intermediate files, away afterwards; on the disk of the result, not in a
    small /tmp.

    Directories of this machine are mounted into a build. It runs in a mount namespace of its own,
    so none of them can be left here; still, nothing is deleted while something is mounted below.
    """
    near.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=".image-build-", dir=near)).resolve()
    try:
        yield scratch
    finally:
        mounts = [
            of_mountinfo(line.split(" ")[4]) for line in lines_of_proc("/proc/self/mountinfo")
        ]
        left = [
            point for point in mounts if point == str(scratch) or point.startswith(f"{scratch}/")
        ]
        if left:
            raise OperationFailed(
                f"cannot remove {scratch}: {left[0]} is mounted",
                hint="umount it, then remove the directory",
            )
        shutil.rmtree(scratch)


def _unpack(
    source: Source, scratch: Path, epoch: int, options: Options, progress: Progress
) -> tuple[Path, Recipe]:
    """The root file system of a source and how it wants to be run."""
    if source.kind is Kind.TREE:
        return source.path, Recipe()
    limits = Limits(scratch, options.limit_s)
    if source.kind is Kind.TAR:
        progress("unpacking", None)
        tree = scratch / "tree"
        tree.mkdir(mode=0o755)
        run(
            [
                "tar",
                "-xpf",
                str(source.path.absolute()),
                "-C",
                str(tree),
                "--numeric-owner",
                "--xattrs",
                f"--xattrs-include={rootfs.CAPABILITY}",
            ],
            f"unpack {source.path}",
            "tar",
            _environment(scratch),
            limits=limits,
        )
        return tree, Recipe()
    layout = _layout(source, scratch, epoch, options, progress)
    progress("unpacking the layers", None)
    bundle = str(scratch / "bundle")
    run(
        ["umoci", "unpack", "--image", f"{layout}:{_TAG}", bundle],
        "unpack the layers",
        "umoci",
        _environment(scratch),
        limits=limits,
    )
    return scratch / "bundle/rootfs", read(image_config(layout))


def _layout(
    source: Source, scratch: Path, epoch: int, options: Options, progress: Progress
) -> Path:
    """The source as an OCI layout with one image in it."""
    layout = scratch / "layout"
    where = str(source.path.absolute())
    digests = frozenset[str]()
    if options.cosign_key is not None:
        progress("checking the signature", None)
        signed, digests = cosign.signed_layout(
            source.path, scratch, options.cosign_key, _environment(scratch)
        )
        source = Source(Kind.LAYOUT, source.path, source.context)
        where = str(signed)
    if source.kind is Kind.DOCKERFILE:
        made = detect(_buildah(source, scratch, epoch, options, progress))
        if made.kind is not Kind.OCI_ARCHIVE:
            raise OperationFailed(
                f"cannot build {source.path}: what it has made is {made.kind.value}"
            )
        source = made
        where = str(made.path.absolute())
    transport = {
        Kind.LAYOUT: "oci",
        Kind.OCI_ARCHIVE: "oci-archive",
        Kind.DOCKER_ARCHIVE: "docker-archive",
    }[source.kind]
    progress("reading the archive", None)
    # The policy says whose signature a registry's image needs. This is a file that an administrator
    # names.
    same = ["--preserve-digests"] if digests else []
    run(
        [
            "skopeo",
            "--insecure-policy",
            "copy",
            *same,
            f"{transport}:{where}",
            f"oci:{layout}:{_TAG}",
        ],
        f"read {source.path}",
        "skopeo",
        _environment(scratch),
        limits=Limits(scratch, options.limit_s),
    )
    if digests:
        cosign.check_copy(layout, digests)
    return layout


def _buildah(
    source: Source, scratch: Path, epoch: int, options: Options, progress: Progress
) -> Path:
    """Builds a Dockerfile in a box, to an archive that is as strange as any. Raises InputError,
    OperationFailed."""

    def line(text: str) -> None:
        if step := _STEP.match(text):
            progress(
                f"step {step[1]}/{step[2]}: {step[3]}"[:100], (int(step[1]) - 1) / int(step[2])
            )

    dockerfile.check(source.path)
    progress("copying what the Dockerfile may copy from", None)
    box = Sandbox(scratch / "box", network=options.network, seconds=options.limit_s)
    box.copy_context(source.context)
    shutil.copyfile(source.path, box.scratch / "Dockerfile")
    environment = {
        "PATH": PATH,
        "LC_ALL": "C.UTF-8",
        "HOME": "/scratch",
        "TMPDIR": "/scratch",
        "SOURCE_DATE_EPOCH": str(epoch),
    }
    if options.network:
        environment |= {name: os.environ[name] for name in _PROXIES if name in os.environ}
    # Of the box's own things nothing is worth a second wall: no isolation but a chroot, plain
    # directories, the box's network.
    arguments = ["--isolation=chroot", "--network=host", f"--timestamp={epoch}", "--layers=false"]
    arguments += [argument for item in options.build_args for argument in ("--build-arg", item)]
    arguments += ["--file=/scratch/Dockerfile", f"--tag=localhost/{_TAG}"]
    what = f"build {source.path}"
    box.run([*_BUILDAH, "build", *arguments, "/context"], what, environment, line)
    progress("collecting the layers", None)
    archive = f"oci-archive:/scratch/image.tar:{_TAG}"
    box.run([*_BUILDAH, "push", f"localhost/{_TAG}", archive], what, environment)
    return box.result("image.tar")


def _environment(scratch: Path) -> dict[str, str]:
    """What the tools get to see: where registries and proxies are set up, and nothing else of
    ours."""
    passed_on = ("HOME", "XDG_RUNTIME_DIR", "REGISTRY_AUTH_FILE", *_PROXIES)
    return {"PATH": PATH, "LC_ALL": "C.UTF-8", "TMPDIR": str(scratch)} | {
        k: os.environ[k] for k in passed_on if k in os.environ
    }


def image_config(layout: Path) -> Mapping[str, Any]:
    """The "config" object of the one image in an OCI layout. Raises InputError."""
    try:
        manifest = _blob(layout, json.loads((layout / "index.json").read_text())["manifests"][0])
        config = _blob(layout, manifest["config"]).get("config") or {}
    except (OSError, ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
        raise InputError(f"cannot use the image's configuration: {error!r}") from None
    if not isinstance(config, dict):
        raise InputError("cannot use the image's configuration: it is no mapping")
    return config


def _blob(layout: Path, descriptor: Mapping[str, Any]) -> Any:
    algorithm, _, name = str(descriptor["digest"]).partition(":")
    if algorithm != "sha256" or not re.fullmatch(r"[0-9a-f]{64}", name):
        raise ValueError(f"digest {algorithm[:20]}")
    return json.loads((layout / "blobs/sha256" / name).read_text())


def _without_others(
    source: Source, tree: Path, attributes: rootfs.Attributes, limits: Limits, progress: Progress
) -> Path:
    """A tree without the extended attributes that do not belong into an image, where mksquashfs
    cannot leave them out: it takes all or none. A directory of a person's is not changed, but
    copied. Raises OperationFailed."""
    if not attributes.wanted or not attributes.others:
        return tree
    if source.kind is Kind.TREE:
        progress("copying the files without attributes that are left out", None)
        copied = limits.scratch / "tree"
        command = ["cp", "-a", "--reflink=auto", str(tree.absolute()), str(copied)]
        environment = _environment(limits.scratch)
        run(command, f"copy {tree}", "coreutils", environment, limits=limits)
        tree = copied
    try:
        rootfs.remove_attributes(tree, attributes.others)
    except OSError as error:
        raise OperationFailed(
            f"cannot build {source.path}: an extended attribute cannot be removed: {error}"
        ) from None
    return tree


def _finish(
    source: Source,
    scratch: Path,
    tree: Path,
    recipe: Recipe,
    out: Path,
    epoch: int,
    options: Options,
    progress: Progress,
) -> Built:
    progress("checking the files", None)
    rootfs.check(tree)
    systemd, command, env, workdir = how_to_run(tree, recipe, options)
    attributes = rootfs.attributes(tree)
    limits = Limits(scratch, options.limit_s)
    tree = _without_others(source, tree, attributes, limits, progress)
    try:
        squash(
            tree,
            out,
            epoch=epoch,
            xattrs=attributes.wanted,
            all_root=options.all_root,
            exclude=("dev/*",),
            progress=lambda done: progress("packing", done),
            limits=limits,
        )
        progress("computing the digest", None)
        with out.open("rb") as file:
            digest = hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=32)).hexdigest()
    except (LayercakeError, OSError):
        out.unlink(missing_ok=True)
        raise
    notes = [*recipe.notes, *rootfs.notes_on({**source.others, **attributes.others})]
    strangers = [str(uid) for uid in rootfs.owners(tree) if uid >= 1000 and uid != 65534]
    if source.kind is Kind.TREE and strangers and not options.all_root:
        notes.append(
            f"files belong to user {', '.join(strangers[:5])}; --all-root makes them root's"
        )
    return Built(
        out,
        source.kind,
        f"blake2b:{digest}",
        out.stat().st_size,
        systemd,
        command,
        env,
        workdir,
        tuple(notes),
    )


def how_to_run(
    tree: Path, recipe: Recipe, options: Options
) -> tuple[bool, tuple[str, ...], tuple[tuple[str, str], ...], str]:
    """Whether systemd is the init, the command, the environment, where it starts: as the person
    says, else the source, else what is there.

    Raises InputError when there is nothing to run, rather than on each node.
    """
    env = dict(recipe.env) | dict(options.env)
    variables = tuple(sorted(env.items()))
    command = options.command or recipe.command
    if _runs_systemd(tree, recipe, options):
        if not options.command and not rootfs.find_program(tree, "/sbin/init", env):
            raise InputError(
                "cannot build: systemd shall be the init, and the image has no /sbin/init",
                hint="install systemd-sysv in it, or say --no-systemd --command",
            )
        return True, options.command, variables, "/"
    if not command and not rootfs.find_program(tree, "/init", env):
        raise InputError(
            "cannot build: nothing says what the image runs: no CMD or ENTRYPOINT, no systemd, no "
            "/init",
            hint="say it with --command",
        )
    if command and not rootfs.find_program(tree, command[0], env, recipe.cwd):
        raise InputError(
            f"cannot build: the image has no program {command[0][:200]!r}",
            hint="CMD, ENTRYPOINT or --command names it; in the shell form it is /bin/sh",
        )
    if rootfs.lookup(tree, recipe.cwd) is None:
        raise InputError(f"cannot build: WORKDIR {recipe.cwd} is not in the image")
    return False, command, variables, recipe.cwd


def _runs_systemd(tree: Path, recipe: Recipe, options: Options) -> bool:
    """Whether systemd is the init: as the person says, else the source, else what is there."""
    if options.systemd is not None or options.command:
        return bool(options.systemd)
    if recipe.systemd is not None:
        return recipe.systemd
    return not recipe.command and rootfs.init_is_systemd(tree)
