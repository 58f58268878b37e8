"""`make sbom`, its second half: what the dashboard has from npm, beside what the document has of
PyPI already."""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

LOCK = Path(__file__).resolve().parents[1] / "dashboard/package-lock.json"


def components(lock: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The packages of a package-lock.json as CycloneDX has them."""
    components = []
    for place, package in lock["packages"].items():
        if not place:
            continue  # the project itself
        name = place.rpartition("node_modules/")[2]
        version = package["version"]
        group, _, short = name.rpartition("/")
        kind, _, digest = package["integrity"].partition("-")
        reference = f"pkg:npm/{name.replace('@', '%40')}@{version}"
        components.append(
            {
                "bom-ref": reference,
                "type": "library",
                "name": short,
                **({"group": group} if group else {}),
                "version": version,
                "purl": reference,
                "licenses": [{"license": {"id": package["license"]}}],
                "hashes": [
                    {
                        "alg": f"SHA-{kind.removeprefix('sha')}",
                        "content": base64.b64decode(digest).hex(),
                    }
                ],
            }
        )
    return components


def add(document: dict[str, Any], found: list[dict[str, Any]]) -> None:
    """Puts components into a document."""
    document["components"] += found
    document["dependencies"] += [{"ref": one["bom-ref"]} for one in found]


def main() -> None:
    """The command: adds to the file that is named."""
    path = Path(sys.argv[1])
    document = json.loads(path.read_text())
    add(document, components(json.loads(LOCK.read_text())))
    path.write_text(json.dumps(document, indent=2) + "\n")


if __name__ == "__main__":
    main()
