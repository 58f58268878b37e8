"""The initramfs builder: size, determinism, what ships, and that it imports nothing it should
not."""

from __future__ import annotations

import ast
import gzip
import json
import subprocess
import sys
import zipfile
from io import BytesIO
from pathlib import Path

import pytest

from layercake.kraken.errors import InputError, OperationFailed
from minos.build import BuildOptions, BuildResult, append_files, build, table
from minos.build import python as python_module
from minos.build.archives import cpio, packing
from minos.build.builder import ENTRIES, ROOT
from minos.build.profiles import KNOWN, Profile
from minos.build.result import BESIDE, HARDWARE, LIMIT, MODULES

CACHE = Path.home() / ".cache/layercake"
VIRTUAL = KNOWN["virtual"]
INTERPRETER = python_module.own()
ALLOWED = {
    "__future__",
    "_weakrefset",
    "base64",
    "codecs",
    "collections",
    "contextlib",
    "copyreg",
    "ctypes",
    "encodings",
    "enum",
    "fnmatch",
    "functools",
    "hashlib",
    "heapq",
    "hmac",
    "importlib",
    "io",
    "ipaddress",
    "json",
    "keyword",
    "linecache",
    "locale",
    "operator",
    "os",
    "pathlib",
    "queue",
    "re",
    "reprlib",
    "selectors",
    "signal",
    "socket",
    "ssl",
    "stat",
    "struct",
    "subprocess",
    "textwrap",
    "threading",
    "token",
    "tokenize",
    "traceback",
    "types",
    "typing",
    "urllib",
    "warnings",
    "weakref",
    "_ctypes",
    "_hashlib",
    "_json",
    "_queue",
    "_ssl",
    "_typing",
    "abc",
    "genericpath",
    "posixpath",
    "_collections_abc",
}
OURS = (
    "layercake.kraken",
    "layercake.base",
    "layercake.node",
    "minos",
    "imageapi.node",
    "imageapi.spec",
    "imageapi.mutations",
    "imageapi.events",
)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("ca") / "ca.pem"
    path.write_text("-----BEGIN CERTIFICATE-----\nnot checked here\n-----END CERTIFICATE-----\n")
    return path


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory, authority: Path) -> BuildResult:
    """By a profile without drivers, where one with drivers was built before."""
    out = tmp_path_factory.mktemp("one")
    (out / HARDWARE).write_bytes(b"of another kernel")
    return build(BuildOptions(out, CACHE, authority))


def unpack(result: BuildResult, into: Path) -> Path:
    """Unpacks minos.img part by part."""
    into.mkdir()
    data, at = result.image.read_bytes(), 0
    for part in (part for name, part in result.parts.items() if name not in BESIDE):
        piece = data[at : at + part.packed]
        at += part.packed
        if (
            piece[:6] != b"070701"
        ):  # the padding behind a part makes zstd complain, after it has done its work
            piece = subprocess.run(
                ["zstd", "-dcq"], input=piece, capture_output=True, check=False
            ).stdout
        assert len(piece) == part.raw
        _cpio(piece, into)
    assert at == len(data)
    return into


def _cpio(data: bytes, into: Path) -> None:
    subprocess.run(
        ["busybox", "cpio", "-idmu"], input=data, cwd=into, capture_output=True, check=False
    )


def test_small_enough_and_the_parts_add_up(built: BuildResult) -> None:
    assert built.initramfs_bytes <= LIMIT
    inside = sum(part.packed for name, part in built.parts.items() if name not in BESIDE)
    assert built.initramfs_bytes == built.image.stat().st_size == inside
    assert (built.image.parent / MODULES).stat().st_size == built.parts[MODULES].packed
    written = json.loads((built.image.parent / "minos.json").read_text())
    assert written["initramfs_bytes"] == built.initramfs_bytes
    assert (
        set(written["parts"])
        == set(built.parts)
        >= {"base", "python", "stdlib", "tls", "crun", "modules", "layercake"}
    )
    assert "minos.img" in table(built)
    assert not (built.image.parent / HARDWARE).exists()


def test_same_inputs_same_bytes(
    built: BuildResult, tmp_path: Path, authority: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packing, "PACKED", "packed-again")
    again = build(BuildOptions(tmp_path, CACHE, authority))
    assert again.image.read_bytes() == built.image.read_bytes()
    assert again.vmlinuz.read_bytes() == built.vmlinuz.read_bytes()
    assert (tmp_path / MODULES).read_bytes() == (built.image.parent / MODULES).read_bytes()


def test_what_ships_imports_only_what_is_allowed() -> None:
    closure = python_module.closure(INTERPRETER, ROOT, ENTRIES)
    foreign = {
        m.name
        for m in closure.stdlib + closure.extensions
        if m.name.partition(".")[0] not in ALLOWED
    }
    assert not foreign, "a node pays for each of these at every start"
    lean = {m.name for m in closure.own if m.file.parent == ROOT / "minos/lean"}
    assert lean == {"dataclasses"}
    wrong = {
        m.name
        for m in closure.own
        if not m.name.startswith(OURS) and m.name not in ("layercake", "imageapi")
    } - lean
    assert not wrong
    assert not [
        m
        for m in closure.stdlib
        if "dist-packages" in str(m.file) or "site-packages" in str(m.file)
    ]


def test_what_is_imported_late_ships_too() -> None:
    """An import in a function is not seen by importing the module: it has to be named among the
    entries."""
    closure = python_module.closure(INTERPRETER, ROOT, ENTRIES)
    names = {m.name for m in closure.own}
    wanted = {
        (node.module, f"{node.module}.{alias.name}")
        for m in closure.own
        if m.file.suffix == ".py"
        for node in ast.walk(ast.parse(m.file.read_text()))
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith(OURS)
        for alias in node.names
    }
    assert len(wanted) > 300
    assert not [
        module
        for module, inside in wanted
        if module not in names
        or ((ROOT / inside.replace(".", "/")).with_suffix(".py").exists() and inside not in names)
    ]


def _chroot(root: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """Runs a command of the image, with the /proc that crun asks for, in a mount namespace of its
    own."""
    script = 'mount -t proc proc "$0/proc" && exec chroot "$0" "$@"'
    return subprocess.run(
        ["unshare", "-m", "--propagation", "private", "sh", "-c", script, str(root), *command],
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.root
def test_the_shipped_python_imports_the_agent_in_a_chroot(
    built: BuildResult, tmp_path: Path
) -> None:
    root = unpack(built, tmp_path / "root")
    assert (root / "etc/layercake/ca.pem").read_text().startswith("-----BEGIN")
    modules = root / "usr/lib/minos/modules"
    assert (modules / "load").read_text().split()[-1] == "loop"
    for group, last in (("rbd", "rbd"), ("verity", "dm_verity")):
        names = (modules / group).read_text().split()
        assert names[-1] == last and all((modules / f"{name}.ko").is_file() for name in names)
        assert not set(names) & set((modules / "load").read_text().split()), (
            "loaded when the first image needs it"
        )
    code = (
        "import sys; sys.path.insert(0, '/usr/lib/minos.zip'); import minos.init, "
        "minos.supervisor, ssl;"
        "import layercake.node.main, layercake.node.wiring; print(ssl.OPENSSL_VERSION, "
        "layercake.node.main.__doc__)"
    )
    done = _chroot(root, str(INTERPRETER), "-ISB", "-c", code)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("OpenSSL 3") and done.stdout.endswith("None\n"), (
        "-OO: without docstrings"
    )
    version = _chroot(root, "/usr/bin/crun", "--version")
    assert version.returncode == 0, version.stderr


def test_an_import_that_does_not_belong_fails_the_build(tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text("import aiohttp_is_not_on_a_node\n")
    with pytest.raises(OperationFailed, match="aiohttp_is_not_on_a_node"):
        python_module.closure(INTERPRETER, tmp_path, ("bad",))


def test_compiled_code_depends_on_nothing_but_the_source(tmp_path: Path) -> None:
    source = (
        '"""A docstring."""\ndef f(x):\n    return x in {"p", "q", "r", "s"} or x in {"a", '
        '"b", "c", "d", "e"}\n'
    )
    (tmp_path / "code.py").write_text(source)
    module = python_module.Module("code", tmp_path / "code.py", False)
    first = python_module.archive(INTERPRETER, [module])
    (tmp_path / "code.py").touch()
    assert python_module.archive(INTERPRETER, [module]) == first
    with zipfile.ZipFile(BytesIO(first)) as archive:
        assert archive.namelist() == ["code.pyc"]
        assert b"A docstring" not in archive.read("code.pyc")


def test_appended_files_start_where_the_kernel_looks(tmp_path: Path) -> None:
    base = tmp_path / "base"
    base.write_bytes(gzip.compress(b"x" * 101, mtime=0)[:-1] + b"y")
    out = tmp_path / "out"
    append_files(base, {"/etc/layercake/ca.pem": b"CA"}, out)
    data = out.read_bytes()
    start = data.index(b"070701")
    assert start % 4 == 0 and data[: base.stat().st_size] == base.read_bytes()
    assert set(data[base.stat().st_size : start]) <= {0}
    _cpio(data[start:], tmp_path)
    assert (tmp_path / "etc/layercake/ca.pem").read_bytes() == b"CA"


def test_cpio_is_read_back_by_a_foreign_tool(tmp_path: Path) -> None:
    entries = {
        "a/b/file": cpio.regular(b"hello", 0o640),
        "a/link": cpio.symlink("b/file"),
        "d": cpio.directory(0o700),
    }
    data = cpio.archive(entries)
    assert data == cpio.archive(dict(reversed(entries.items())))
    _cpio(data, tmp_path)
    assert (tmp_path / "a/b/file").read_text() == "hello" and (
        tmp_path / "a/link"
    ).read_text() == "hello"
    assert (tmp_path / "a/b/file").stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"profile": Profile("x", VIRTUAL.kernel, modules=("no_such_driver",))}, "no_such_driver"),
        ({"compression": "rar"}, "rar"),
        ({"profile": Profile("x", "no-such-kernel-package")}, "no-such-kernel-package"),
        ({"python": Path("/usr/bin/perl")}, "perl"),
    ],
)
def test_mistakes_are_named(tmp_path: Path, change: dict[str, object], what: str) -> None:
    options = {"out": tmp_path, "cache": CACHE} | change
    with pytest.raises((InputError, OperationFailed), match=what):
        build(BuildOptions(**options))  # type: ignore[arg-type]
    assert not (tmp_path / "minos.img").exists()


def test_a_file_that_is_no_certificate_is_refused(tmp_path: Path) -> None:
    (tmp_path / "ca").write_text("hello")
    with pytest.raises(InputError, match="no PEM certificate"):
        build(BuildOptions(tmp_path / "out", CACHE, tmp_path / "ca"))


def test_the_command_prints_a_table(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "minos.build",
        "--out",
        str(tmp_path),
        "--cache",
        str(CACHE),
        "--ca",
        "/no/such/file",
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and done.stderr.splitlines()[-1].startswith("error: cannot")
