"""What an image is made of: read from real squashfs files, checked against CycloneDX's own
schema."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from cyclonedx.schema import SchemaVersion
from packageurl import PackageURL

from imageapi.build.squash import squash
from imageapi.store.store import ImageStore
from layercake.kraken.errors import NotFound, OperationFailed
from tests.support.operations import Operations
from tests.support.world import opened

FILES = {
    "etc/os-release": 'PRETTY_NAME="Debian 12"\nID=debian\nVERSION_ID="12"\n',
    "var/lib/dpkg/status": "Package: bash\nStatus: install ok installed\n"
    "Architecture: amd64\nVersion: 5.2.15-2+b7\nDescription: a\n"
    " Version: 9\n\nPackage: gone\nStatus: deinstall ok config-files\nVersion: 1\n\n"
    "Package: libstdc++6\nStatus: hold ok installed\nArchitecture: amd64\nVersion: 1:12.2\n",
    "var/lib/dpkg/status.d/tzdata": "Package: tzdata\nVersion: 2024a\n",
    "lib/apk/db/installed": "C:Q1x\nP:musl\nV:1.2.4-r2\nA:x86_64\nF:lib\nP:not-a-package\nV:0\n\nC:Q1y\nP:busybox\nV:1.36\n",
    "usr/lib/python3/dist-packages/PyYAML-6.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: "
    "PyYAML\nVersion: 6.0\n\nName: "
    "text\n",
    "opt/x/old.egg-info/PKG-INFO": "Name: zope.interface\nVersion: 5.0\n",
    "var/lib/rpm/rpmdb.sqlite": "not read",
    "srv/METADATA": "Name: no-package\nVersion: 1\n",
}


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("tree")
    for path, text in FILES.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    (root / "var/lib/dpkg/status.d/strange").write_bytes(
        b"Package: \xff\xfe\x00\nVersion: \x1b[31m\n"
    )
    out = root.with_suffix(".squashfs")
    squash(root, out, epoch=0, xattrs=False)
    return out


def valid(document: dict[str, Any]) -> None:
    from cyclonedx.validation.json import JsonStrictValidator  # takes seconds, in each worker

    trouble = JsonStrictValidator(SchemaVersion.V1_5).validate_str(json.dumps(document))
    assert trouble is None, trouble


async def test_the_packages_of_an_image_are_told_and_kept(tmp_path: Path, image: Path) -> None:
    async with opened(tmp_path) as world:
        images = Operations(world.head).images
        added = await images.add(image, "app", {})
        found = await images.sbom("app")
        valid(found)
        told = {c["purl"]: c for c in found["components"] if "purl" in c}
        purls = {str(PackageURL.from_string(purl)) for purl in told}
        assert {PackageURL.from_string(p).to_dict()["name"] for p in purls} >= {
            "bash",
            "libstdc++6",
            "tzdata",
            "musl",
            "busybox",
            "pyyaml",
            "zope-interface",
        }
        assert not any(
            "gone" in p or "not-a-package" in p or "no-package" in p or "/text@" in p for p in purls
        )
        assert "pkg:deb/debian/bash@5.2.15-2%2Bb7?arch=amd64&distro=debian-12" in told
        assert (
            told["pkg:deb/debian/libstdc%2B%2B6@1:12.2?arch=amd64&distro=debian-12"]["version"]
            == "1:12.2"
        )
        assert [c["version"] for c in found["components"] if c["type"] == "operating-system"] == [
            "12"
        ]
        content = added.digest.removeprefix("blake2b:")
        assert found["metadata"]["component"]["hashes"] == [
            {"alg": "BLAKE2b-256", "content": content}
        ]
        assert found["metadata"]["properties"] == [
            {"name": "layercake:unread", "value": "var/lib/rpm/rpmdb.sqlite"}
        ]
        kept = world.head.part(ImageStore).path(added.digest).with_suffix(".cdx.json")
        assert json.loads(kept.read_text()) == found
        world.head.part(ImageStore).path(added.digest).unlink()
        assert await images.sbom(f"app@{added.digest[8:20]}") == found, (
            "it is kept beside the content"
        )
        with pytest.raises(NotFound):
            await images.sbom("other")
        await images.remove("app")
        assert not kept.exists()


async def test_a_damaged_image_is_not_described(tmp_path: Path, image: Path) -> None:
    async with opened(tmp_path) as world:
        images = Operations(world.head).images
        added = await images.add(image, "app", {})
        with world.head.part(ImageStore).path(added.digest).open("ab") as file:
            file.write(bytes(4096))
        with pytest.raises(OperationFailed, match="changed or damaged"):
            await images.sbom("app")
        assert world.head.part(ImageStore).sbom(added.digest) is None
        (tmp_path / "fake").write_bytes(b"hsqs" + bytes(5000))
        await images.add(tmp_path / "fake", "fake", {})
        with pytest.raises(OperationFailed, match="cannot read"):
            await images.sbom("fake")


def test_the_same_image_gives_the_same_document(image: Path, tmp_path: Path) -> None:
    run = [
        subprocess.run(
            [sys.executable, "-m", "imageapi.build.sbom", str(image)],
            capture_output=True,
            check=True,
        ).stdout
        for _ in range(2)
    ]
    assert run[0] == run[1]
    empty = tmp_path / "empty"
    empty.mkdir()
    squash(empty, tmp_path / "e.squashfs", epoch=0, xattrs=False)
    command = [sys.executable, "-m", "imageapi.build.sbom", str(tmp_path / "e.squashfs")]
    made = subprocess.run(command, capture_output=True, check=True)
    found = json.loads(made.stdout)
    valid(found)
    assert found["components"] == []
    assert ImageStore(tmp_path / "store").sbom("blake2b:" + "0" * 64) is None
