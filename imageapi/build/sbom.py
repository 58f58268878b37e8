"""What an image is made of, as a CycloneDX 1.5 document (JSON): the packages of Debian, Alpine and
Python in it.

    python -m imageapi.build.sbom IMAGE.squashfs      prints the document

The package databases inside the image are read, nothing of it is run. What no database names (a
program that was copied in) is not in the document; a database of RPM is not read, and the document
says so. The same content gives the same document. Sources: CycloneDX 1.5 (ECMA-424); package URLs
(ECMA-427); deb-control(5); Alpine's APKINDEX; core metadata of Python packages.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from imageapi.build.contents import Contents, contents, is_dpkg, shown
from layercake import __version__
from layercake.base.text import clean
from layercake.kraken.errors import LayercakeError

APK = "lib/apk/db/installed"
RELEASES = ("etc/os-release", "usr/lib/os-release")
RPM = ("var/lib/rpm/", "usr/lib/sysimage/rpm/")
_PYTHON = re.compile(r"(.*/)?[^/]+\.(dist-info/METADATA|egg-info/PKG-INFO|egg-info)")
_FIELD = re.compile(r"^([A-Za-z-]+): ?(.*)$", re.MULTILINE)


def wanted(path: str) -> bool:
    """Whether a file of an image is one of those that are read."""
    return is_dpkg(path) or path == APK or path in RELEASES or bool(_PYTHON.fullmatch(path))


def paragraphs(text: str) -> Iterator[dict[str, str]]:
    """The one-line fields of each paragraph; of a field that comes twice the first counts."""
    for paragraph in re.split(r"\n[ \t]*\n", text):
        fields: dict[str, str] = {}
        for name, value in _FIELD.findall(paragraph):
            fields.setdefault(name, value.strip())
        if fields:
            yield fields


def _component(kind: str, space: str, name: str, version: str, **more: str) -> dict[str, Any]:
    """A package with its package URL."""
    path = "/".join(quote(part, safe="") for part in (space, name) if part)
    qualifiers = "&".join(
        f"{key}={quote(value, safe=':')}" for key, value in sorted(more.items()) if value
    )
    purl = f"pkg:{kind}/{path}@{quote(version, safe=':')}{'?' + qualifiers if qualifiers else ''}"
    return {"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl}


def _debian(text: str, system: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    distro = f"{system['ID']}-{system['VERSION_ID']}" if system.get("VERSION_ID") else ""
    for p in paragraphs(text):
        if (
            p.get("Package")
            and p.get("Version")
            and p.get("Status", "install ok installed").endswith(" installed")
        ):
            yield _component(
                "deb",
                system["ID"],
                p["Package"],
                p["Version"],
                arch=p.get("Architecture", ""),
                distro=distro,
            )


def _alpine(text: str, system: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    # The letters are in the order P, V, A, then files: only those before the first file are the
    # package's own.
    for block in text.split("\n\n"):
        own = dict(
            line.split(":", 1) for line in block.split("\nF:")[0].splitlines() if line[1:2] == ":"
        )
        if own.get("P") and own.get("V"):
            yield _component("apk", system["ID"], own["P"], own["V"], arch=own.get("A", ""))


def _python(text: str) -> Iterator[dict[str, Any]]:
    fields = next(paragraphs(text), {})  # what follows is the description
    if fields.get("Name") and fields.get("Version"):
        yield _component(
            "pypi", "", re.sub(r"[-_.]+", "-", fields["Name"]).lower(), fields["Version"]
        )


def _system(found: Contents) -> dict[str, str]:
    """os-release(5): what the image says that it is."""
    for path in RELEASES:
        if path in found.kept:
            pairs = re.findall(
                r"^(ID|VERSION_ID|PRETTY_NAME)=[\"']?([^\"'\n]*)", _text(found, path), re.MULTILINE
            )
            if release := dict(pairs):
                return {"ID": "linux", **release}
    return {}


def _text(found: Contents, path: str) -> str:
    return clean(found.kept[path].decode("utf-8", "replace"))


def document(found: Contents, digest: str) -> dict[str, Any]:
    """The document of an image; `digest` is blake2b:HEX of its file."""
    system = _system(found)
    packages = list[dict[str, Any]]()
    for path in sorted(found.kept):
        text = _text(found, path)
        if is_dpkg(path):
            packages += _debian(text, {"ID": "debian", **system})
        elif path == APK:
            packages += _alpine(text, {"ID": "alpine", **system})
        elif path not in RELEASES:
            packages += _python(text)
    if system:
        name = system["ID"]
        version = system.get("VERSION_ID", "")
        packages.append(
            {
                "type": "operating-system",
                "bom-ref": "os",
                "name": name,
                **({"version": version} if version else {}),
                "description": system.get("PRETTY_NAME", name),
            }
        )
    unread = sorted(
        path
        for path in found.entries
        if path.startswith(RPM) and found.entries[path].kind == "file"
    )
    content = digest.partition(":")[2]
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "serialNumber": uuid.uuid5(uuid.NAMESPACE_OID, digest).urn,
        "metadata": {
            "tools": {
                "components": [{"type": "application", "name": "layercake", "version": __version__}]
            },
            "component": {
                "type": "container",
                "bom-ref": "image",
                "name": digest,
                "hashes": [{"alg": "BLAKE2b-256", "content": content}],
            },
            "properties": [
                {"name": "layercake:unread", "value": shown(path)} for path in unread[:20]
            ],
        },
        "components": list({p["bom-ref"]: p for p in packages}.values()),
    }


def main(arguments: Sequence[str]) -> int:
    """Prints an image's document, or {"error", "hint"} with exit status 1."""
    try:
        path = Path(arguments[0])
        files = contents(path, wanted)
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=32)).hexdigest()
        sbom = document(files, f"blake2b:{digest}")
    except LayercakeError as error:
        sys.stdout.write(json.dumps({"error": error.message, "hint": error.hint}))
        return 1
    sys.stdout.write(json.dumps(sbom))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
