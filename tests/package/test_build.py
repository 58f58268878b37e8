"""The package's build: always the same bytes; manual pages and completion are what the program
says."""

from __future__ import annotations

import fnmatch
import io
import re
import subprocess
import tarfile
from pathlib import Path

import pytest

from layercake.cli.main import COMMANDS
from layercake.debian import build as builder
from layercake.debian import control
from layercake.debian.build import QUICK, build
from layercake.debian.control import changelog, depends
from layercake.debian.copyright import copyright_file
from layercake.debian.environment import FROM_DEBIAN, ROOT, Library, without
from layercake.debian.manual import completions, manual
from layercake.kraken.errors import OperationFailed


def test_the_same_sources_give_the_same_bytes(package: Path, tmp_path: Path) -> None:
    assert build(tmp_path, QUICK).read_bytes() == package.read_bytes()


def test_the_terminal_of_the_dashboard_is_in_it(
    package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = subprocess.run(
        ["dpkg-deb", "-c", str(package)], capture_output=True, text=True, check=True
    ).stdout
    for name in ("xterm.js", "fit.js", "xterm.css", "LICENSE"):
        assert f"/layercake/dashboard/web/xterm/{name}" in listed
    assert "node_modules" not in listed
    monkeypatch.setattr(builder, "XTERM", ROOT / "nothere.js")
    with pytest.raises(OperationFailed, match="nothere"):
        build(tmp_path, QUICK)


def test_there_is_a_page_for_each_command_and_it_is_well_formed(tmp_path: Path) -> None:
    pages = manual("0.0", 0)
    assert pages.keys() == {"layercake.1", *(f"layercake-{name}.1" for name in COMMANDS)}
    for name, text in pages.items():
        path = tmp_path / name
        path.write_text(text)
        done = subprocess.run(
            ["man", "--warnings", "-E", "UTF-8", "-Tutf8", "-l", str(path)],
            capture_output=True,
            text=True,
            env={"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8", "MANWIDTH": "200"},
            check=True,
        )
        assert not done.stderr, (name, done.stderr)
        shown = re.sub(".\b", "", done.stdout)  # printed twice is bold
        assert "NAME" in shown and "1970-01-01" in shown
        if name == "layercake-node.1":
            assert "layercake node list" in shown and "--json" in shown


def test_the_shells_take_their_scripts(tmp_path: Path) -> None:
    found = completions()
    assert len(found) == 3 and all("_LAYERCAKE_COMPLETE" in text for text in found.values())
    (tmp_path / "bash").write_text(next(text for path, text in found.items() if "bash" in path))
    subprocess.run(["bash", "-n", str(tmp_path / "bash")], check=True)


def test_what_debian_has_is_left_out_and_what_the_lock_has_not_is_said() -> None:
    rich = "rich==15 \\\n    --hash=sha256:01\n    --hash=sha256:02\n"
    lock = (
        f"aiohttp==3 \\\n    --hash=sha256:00\n{rich}yarl==1 ; python_version < '4' \\\n    "
        "--hash=1\n"
    )
    assert without(lock, {"rich": "python3-rich"}) == lock.replace(rich, "")
    with pytest.raises(OperationFailed, match="cannot leave out nothere"):
        without(lock, {"nothere": "python3-nothere"})
    assert without((ROOT / "requirements.lock").read_text(), FROM_DEBIAN)


def test_packages_are_listed_in_two_parts() -> None:
    assert depends("# needed\na\nb\n# Recommended: for more\nc\n") == (["a", "b"], ["c"])


def test_debians_changelog_is_the_newest_of_ours() -> None:
    text = changelog(
        "# Changelog\n\n## 0.2.0, unreleased\n\n- One\n  thing.\n- Another.\n\n## 0.1.0\n\n- "
        "Old.\n",
        0,
    )
    assert text.startswith(
        "layercake (0.2.0) unstable; urgency=medium\n\n  * One thing.\n  * Another.\n\n -- "
    )
    assert text.endswith(">  Thu, 01 Jan 1970 00:00:00 +0000\n")
    with pytest.raises(OperationFailed, match="names no version"):
        changelog("# Changelog\n", 0)


def test_all_that_is_in_it_has_a_licence(package: Path) -> None:
    packed = subprocess.run(
        ["dpkg-deb", "--fsys-tarfile", str(package)], capture_output=True, check=True
    ).stdout
    with tarfile.open(fileobj=io.BytesIO(packed)) as tree:
        names = [member.name.removeprefix("./") for member in tree.getmembers() if member.isfile()]
        assert not [member for member in tree.getmembers() if member.islnk()], "hard links"
        held = tree.extractfile("./usr/share/doc/layercake/copyright")
        assert held is not None
        text = held.read().decode()
    stanzas = re.findall(
        r"^Files: (.*?)\nCopyright: (.+?)\nLicense: (\S[^\n]*)\n(.+?)(?=^Files: |\Z)",
        text,
        re.M | re.S,
    )
    patterns = [pattern for files, *_ in stanzas for pattern in files.split()]
    assert patterns[0] == "*" and len(stanzas) > 25
    own = {"layercake", "pxe", "powerman", "imageapi", "minos"}
    for name in names:
        library = re.match(r"usr/lib/layercake/lib/python3[.0-9]*/site-packages/(\w+)", name)
        if library and library[1] not in own and not name.endswith("/layercake.pth"):
            assert any(fnmatch.fnmatch(name, pattern) for pattern in patterns[1:]), (
                f"whose is {name}?"
            )
    for pattern in patterns:
        assert any(fnmatch.fnmatch(name, pattern) for name in names), f"nothing is {pattern}"


def test_lintian_finds_nothing(package: Path) -> None:
    """What it would find otherwise is in layercake/debian/lintian-overrides, each with its
    reason."""
    done = subprocess.run(
        [
            "lintian",
            "--tag-display-limit",
            "0",
            "--allow-root",
            "--fail-on",
            "error,warning",
            str(package),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0 and not done.stdout, done.stdout + done.stderr


def test_it_depends_on_the_c_library_that_its_parts_want(
    package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = subprocess.run(
        ["dpkg-deb", "-f", str(package), "Depends"], capture_output=True, text=True, check=True
    ).stdout
    assert re.search(r"\blibc6 \(>= 2\.(1|2|3)\d\),", said) and "libstdc++6" in said
    needs = (
        "  NEEDED               libc.so.6\n  NEEDED               libz.so.1\n 0x0 0x00 02 "
        "GLIBC_2.9\n 0x0 0x00 03 GLIBC_2.28\n"
    )
    monkeypatch.setattr(control, "run", lambda command: needs)
    assert control.shared_libraries([]) == ["libc6 (>= 2.28)", "zlib1g"]
    monkeypatch.setattr(
        control, "run", lambda command: needs + "  NEEDED               libodd.so.3\n"
    )
    with pytest.raises(OperationFailed, match=r"cannot say which package has libodd\.so\.3"):
        control.shared_libraries([])


def test_a_library_that_does_not_say_its_licence_is_refused(tmp_path: Path) -> None:
    info = tmp_path / "odd-1.0.dist-info"
    (info / "licenses").mkdir(parents=True)
    (info / "METADATA").write_text("Name: odd\nVersion: 1.0\nAuthor: Ann\n")
    with pytest.raises(OperationFailed, match="odd does not say its licence"):
        copyright_file([Library(info, ("odd/*",))], builder.XTERM.parent)
    (info / "METADATA").write_text("Name: odd\nVersion: 1.0\nAuthor: Ann\nLicense: Apache 2.0\n")
    (info / "licenses/LICENSE").write_text(
        "  Apache License\n  Version 2.0\n\n  Copyright [yyyy] [name]\n"
    )
    text = copyright_file([Library(info, ("odd/*",))], builder.XTERM.parent)
    assert (
        "site-packages/odd/*\nCopyright: Ann\nLicense: Apache-2.0\n On Debian systems the text of "
        "this licence is in "
        "/usr/share/common-licenses/Apache-2.0.\n"
    ) in text and "yyyy" not in text
