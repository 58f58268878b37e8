"""What dpkg is told of the package: its fields, the checksums, Debian's changelog."""

from __future__ import annotations

import hashlib
import re
import shutil
import textwrap
import time
import tomllib
from collections.abc import Iterable, Sequence
from pathlib import Path

from layercake.debian.environment import FROM_DEBIAN, PYTHONS, ROOT, compiled, run
from layercake.kraken.errors import OperationFailed

NAME = "layercake"
ARCHITECTURE = "amd64"
HERE = Path(__file__).parent
SCRIPTS = ("preinst", "postinst", "prerm", "postrm")
LIBRARIES = {
    "libc.so.6": "libc6",
    "libm.so.6": "libc6",
    "libpthread.so.0": "libc6",
    "libdl.so.2": "libc6",
    "librt.so.1": "libc6",
    "ld-linux-x86-64.so.2": "libc6",
    "libgcc_s.so.1": "libgcc-s1",
    "libstdc++.so.6": "libstdc++6",
    "libz.so.1": "zlib1g",
}
"""Which package has a library that extension modules are linked with."""
DESCRIPTION = """takes a rack of bare metal from power-off to running system images
 Layercake is one service on a head node. It boots machines by DHCP, TFTP and
 HTTP, switches them by IPMI and Redfish, runs system images on them, and has
 a state engine that keeps each node where the inventory wants it.
"""


def project() -> dict[str, object]:
    """The table `project` of pyproject.toml."""
    table: dict[str, object] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return table


def contact() -> str:
    """Who is written to: "NAME <ADDRESS>", the maintainer that pyproject.toml names."""
    [one] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["maintainers"]
    return f"{one['name']} <{one['email']}>"


def depends(text: str) -> tuple[list[str], list[str]]:
    """What packages.txt asks for: (always, recommended)."""
    always, _, recommended = text.partition("# Recommended")
    names = [
        [line for line in part.splitlines() if line and not line.startswith(("#", ":"))]
        for part in (always, recommended)
    ]
    return names[0], names[1]


def shared_libraries(files: Sequence[Path]) -> list[str]:
    """The packages with the libraries that these files are linked with; of the C library in the
    version that they want at least. Raises OperationFailed for a library that LIBRARIES does not
    have."""
    headers = run(["objdump", "-p", *map(str, files)])
    wanted = set(re.findall(r"^\s+NEEDED\s+(\S+)$", headers, re.M))
    if unknown := wanted - LIBRARIES.keys():
        raise OperationFailed(
            f"cannot say which package has {', '.join(sorted(unknown))}",
            hint="name it in LIBRARIES in layercake/debian/control.py",
        )
    versions = [
        tuple(map(int, one.split("."))) for one in re.findall(r"\bGLIBC_([0-9.]+)$", headers, re.M)
    ]
    newest = ".".join(map(str, max(versions)))
    return [
        f"{name} (>= {newest})" if name == "libc6" else name
        for name in sorted({LIBRARIES[one] for one in wanted})
    ]


def write(tree: Path, version: str) -> None:
    """Writes DEBIAN/ of the package that is in `tree`. Raises OperationFailed."""
    files = [path for path in sorted(tree.rglob("*")) if path.is_file() and not path.is_symlink()]
    control = tree / "DEBIAN"
    control.mkdir()
    sums = (
        f"{hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest()}  "
        f"{path.relative_to(tree)}\n"
        for path in files
    )
    (control / "md5sums").write_text("".join(sums))
    size = sum(max(1, (path.stat().st_size + 1023) // 1024) for path in files)
    (control / "control").write_text(_fields(version, size, shared_libraries(compiled(tree))))
    for name in (*SCRIPTS, "triggers"):
        shutil.copy(HERE / name, control)
        (control / name).chmod(0o755 if name in SCRIPTS else 0o644)
    for name in ("control", "md5sums"):
        (control / name).chmod(0o644)
    control.chmod(0o755)


def _fields(version: str, size: int, libraries: Iterable[str]) -> str:
    always, recommended = depends((ROOT / "packages.txt").read_text())
    first = PYTHONS[0]
    after = int(PYTHONS[-1].partition(".")[2]) + 1
    bounds = [f"python3 (>= {first}~)", f"python3 (<< 3.{after}~)"]
    needs = [
        *bounds,
        *libraries,
        *sorted(FROM_DEBIAN.values()),
        *(p for p in always if p != "python3"),
    ]
    fields = {
        "Package": NAME,
        "Version": version,
        "Architecture": ARCHITECTURE,
        "Maintainer": contact(),
        "Installed-Size": str(size),
        "Depends": ", ".join(needs),
        "Recommends": ", ".join(recommended),
        "Suggests": "slurm-client, ipmitool",
        "Section": "admin",
        "Priority": "optional",
        "Description": DESCRIPTION.rstrip("\n"),
    }
    return "".join(f"{name}: {value}\n" for name, value in fields.items())


def changelog(text: str, seconds: int) -> str:
    """Debian's form of CHANGELOG.md: its newest version. `seconds` since 1970 is its date."""
    match = re.search(r"^## ([^\s,]+)[^\n]*\n(.*?)(?=^## |\Z)", text, re.M | re.S)
    if match is None:
        raise OperationFailed("cannot write Debian's changelog: CHANGELOG.md names no version")
    entries = re.findall(r"^- (.*?)(?=^- |\Z)", match[2], re.M | re.S)
    lines = [
        "\n".join(
            textwrap.wrap(
                " ".join(entry.split()),
                78,
                initial_indent="  * ",
                subsequent_indent="    ",
                break_long_words=False,
                break_on_hyphens=False,
            )
        )
        for entry in entries
    ]
    date = time.strftime("%a, %d %b %Y %H:%M:%S +0000", time.gmtime(seconds))
    head = f"{NAME} ({match[1]}) unstable; urgency=medium"
    return f"{head}\n\n{chr(10).join(lines)}\n\n -- {contact()}  {date}\n"
