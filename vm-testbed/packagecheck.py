"""`make deb CHECK=1`: has Debian's own tools judge the package that was built.

lintian reads it. piuparts installs, removes and purges it, and upgrades an older version to it, in
a chroot, and looks for what is left. autopkgtest installs it in another, and runs
layercake/debian/autopkgtest. Both chroots are made from the clean Debian 12 of cleanroot.py. It
must run as root; what each tool says is in build/check.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from cleanroot import SUITES, base
from headrun import CACHE

from layercake.debian.build import QUICK
from layercake.debian.control import NAME
from layercake.kraken.errors import LayercakeError, OperationFailed

ROOT = Path(__file__).resolve().parents[1]
SUITE = "12"
LOGS = ROOT / "build/check"
REPOSITORY = "var/local/layercake"
"""In piuparts' chroot: where the older version is installed from."""
EVERY_S = 10.0
"""How often it says what it is at."""
LIMIT_S = 1800.0


def say(text: str) -> None:
    """A line, at once."""
    print(text, flush=True)


def watched(name: str, command: Sequence[str], good: Sequence[int] = (0,)) -> None:
    """Runs a tool, whose output goes to a log, and says now and then how far it is. Raises
    OperationFailed for an exit status that is not `good`."""
    log = LOGS / f"{name}.log"
    begun = time.monotonic()
    say(f"{name}: begins, log in {log.relative_to(ROOT)}")
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
        )
        try:
            while True:
                try:
                    process.wait(EVERY_S)
                    break
                except subprocess.TimeoutExpired:
                    spent = time.monotonic() - begun
                    if spent > LIMIT_S:
                        raise OperationFailed(
                            f"cannot check the package: {name} takes longer than {LIMIT_S:.0f} s"
                        ) from None
                    say(f"{name}: {spent:.0f} s, {last_line(log)}")
        finally:
            if process.poll() is None:
                process.terminate()  # both clean their chroots up then
                process.wait()
    if process.returncode not in good:
        raise OperationFailed(
            f"cannot accept the package: {name} ended with {process.returncode}: {last_line(log)}",
            hint=f"the rest is in {log}",
        )
    say(f"{name}: passed after {time.monotonic() - begun:.0f} s")


def last_line(log: Path) -> str:
    """The last line of a log that says something, cut to what a terminal shows."""
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return lines[-1][:100] if lines else "nothing said yet"


def older(package: Path, scratch: Path) -> Path:
    """The same package under a version before its own."""
    tree = scratch / "older"
    subprocess.run(["dpkg-deb", "-R", str(package), str(tree)], check=True)
    control = tree / "DEBIAN/control"
    lines = [
        f"{line}~older" if line.startswith("Version: ") else line
        for line in control.read_text().splitlines()
    ]
    control.write_text("\n".join(lines) + "\n")
    made = scratch / f"{NAME}_older.deb"
    subprocess.run(
        ["dpkg-deb", "--root-owner-group", *QUICK, "--build", str(tree), str(made)],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    shutil.rmtree(tree)
    return made


def with_older(tar: Path, package: Path, scratch: Path) -> Path:
    """piuparts' base: a clean Debian that can also install an older version of the package."""
    place = scratch / "tree" / REPOSITORY
    place.mkdir(parents=True)
    deb = shutil.copy(older(package, scratch), place / f"{NAME}.deb")
    data = Path(deb).read_bytes()
    fields = subprocess.run(
        ["dpkg-deb", "-f", str(deb)], check=True, capture_output=True, text=True
    ).stdout
    (place / "Packages").write_text(
        f"{fields}Filename: ./{NAME}.deb\nSize: {len(data)}\nSHA256: "
        f"{hashlib.sha256(data).hexdigest()}\n"
    )
    listed = scratch / "tree/etc/apt/sources.list.d/layercake.list"
    listed.parent.mkdir(parents=True)
    listed.write_text(f"deb [trusted=yes] file:/{REPOSITORY} ./\n")
    whole = Path(shutil.copy(tar, scratch / "base.tar"))
    subprocess.run(
        [
            "tar",
            "--append",
            "-f",
            str(whole),
            "-C",
            str(scratch / "tree"),
            "--owner=0",
            "--group=0",
            f"./{REPOSITORY}",
            "./etc/apt/sources.list.d/layercake.list",
        ],
        check=True,
    )
    packed = scratch / "base.tar.gz"
    with whole.open("rb") as source, gzip.open(packed, "wb", compresslevel=1) as target:
        shutil.copyfileobj(source, target, 1 << 20)
    whole.unlink()
    return packed


def lintian(package: Path, scratch: Path) -> None:
    """Errors and warnings fail; what is in layercake/debian/lintian-overrides has its reason
    there."""
    watched(
        "lintian",
        [
            "lintian",
            "--tag-display-limit",
            "0",
            "--allow-root",
            "--fail-on",
            "error,warning",
            str(package),
        ],
    )


def piuparts(package: Path, scratch: Path) -> None:
    """Install, remove, purge; and install an older version, upgrade, remove, purge."""
    tar = with_older(base(CACHE / "images", SUITES[SUITE]), package, scratch)
    watched(
        "piuparts",
        [
            "piuparts",
            "--basetgz",
            str(tar),
            "--distribution",
            SUITES[SUITE],
            "--keep-sources-list",
            "--tmpdir",
            str(scratch),
            "--warn-on-leftovers-after-purge",
            "--no-eatmydata",
            str(package),
        ],
    )


def autopkgtest(package: Path, scratch: Path) -> None:
    """The tests in layercake/debian/autopkgtest, with the package and what it depends on installed
    by autopkgtest."""
    root, source = scratch / "root", scratch / "source/debian"
    root.mkdir()
    subprocess.run(
        [
            "tar",
            "-xpf",
            str(base(CACHE / "images", SUITES[SUITE])),
            "-C",
            str(root),
            "--numeric-owner",
        ],
        check=True,
    )
    for name in ("resolv.conf", "hosts"):
        shutil.copy(f"/etc/{name}", root / "etc")
    source.mkdir(parents=True)
    shutil.copytree(ROOT / "layercake/debian/autopkgtest", source / "tests")
    fields = dict(
        line.split(": ", 1)
        for line in subprocess.run(
            ["dpkg-deb", "-f", str(package), "Version", "Maintainer"],
            check=True,
            capture_output=True,
            text=True,
        ).stdout.splitlines()
    )
    (source / "control").write_text(
        f"Source: {NAME}\nMaintainer: {fields['Maintainer']}\nStandards-Version: 4.6.2\n\n"
        f"Package: {NAME}\nArchitecture: amd64\nDescription: {NAME}\n"
    )
    (source / "changelog").write_text(
        f"{NAME} ({fields['Version']}) unstable; urgency=medium\n\n  * A build.\n\n"
        f" -- {fields['Maintainer']}  Thu, 01 Jan 1970 00:00:00 +0000\n"
    )
    shutil.rmtree(LOGS / "autopkgtest", ignore_errors=True)
    mounted = (
        'mount --bind "$1" "$1" && mount -t proc proc "$1/proc" && mount -t sysfs -o ro sysfs '
        '"$1/sys" '
        '&& mount --rbind /dev "$1/dev" && shift && exec "$@"'
    )
    watched(
        "autopkgtest",
        [
            "unshare",
            "--mount",
            "--propagation",
            "private",
            "sh",
            "-c",
            mounted,
            "-",
            str(root),
            "autopkgtest",
            "--output-dir",
            str(LOGS / "autopkgtest"),
            str(package),
            f"{source.parent}/",
            "--",
            "chroot",
            str(root),
        ],
    )


CHECKS: Mapping[str, Callable[[Path, Path], None]] = {
    "lintian": lintian,
    "piuparts": piuparts,
    "autopkgtest": autopkgtest,
}


def main() -> int:
    """The command; returns the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("package", type=Path)
    parser.add_argument(
        "--only", choices=CHECKS, action="append", help="this check; may be given several times"
    )
    args = parser.parse_args()
    LOGS.mkdir(parents=True, exist_ok=True)
    failed = []
    for name in args.only or CHECKS:
        scratch = LOGS / f"scratch-{name}"
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir()
        try:
            CHECKS[name](args.package, scratch)
        except LayercakeError as error:
            failed.append(name)
            say(f"{error.message}{f'; {error.hint}' if error.hint else ''}")
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
    say(
        f"not accepted by {', '.join(failed)}"
        if failed
        else f"{args.package.name}: accepted by {', '.join(args.only or CHECKS)}"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
