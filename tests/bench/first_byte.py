"""How much of a large image is read before it runs: 1 GB out of Ceph, attached by krbd in a virtual
machine.

`read_fraction` is what the kernel had read from the device when the image's program printed its
first line, over the size of the image. Prints one JSON object last.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "vm-testbed"))

from smallimages import build_plain_image

from imageapi.build.squash import squash
from tests.bench._guest import lab

SIZE = 1_000_000_000
PIECES = 64

SCRIPT = r"""
import base64, json, time
from pathlib import Path
from imageapi.node.attach import rbd
from imageapi.events import unheard
from imageapi.node.attach.attachments import Attachments
from imageapi.node.container.runtime import Runtime
from imageapi.node.imageset.bundles import Bundles
from imageapi.node.imageset.layers import Layers
from imageapi.node.imageset.plan import Instance, Phase
from imageapi.node.imageset.records import Records
from imageapi.node.objects.objects import Objects
from imageapi.spec.image import parse_image

P = json.load(open("/etc/bench.json"))
spec = parse_image(P["image"])
run = Path("/run/layercake")
runtime = Runtime(run)
def no_fetch(url, offset):
    raise SystemExit("nothing is fetched here")
layers = Layers(run, no_fetch, lambda name: base64.b64decode(P["key"]))
objects = Objects(run, Attachments(run, no_fetch), unheard)
bundles = Bundles(run, runtime, layers.layer, objects, Records(run), unheard, "50%")
instance = Instance("bench-1", spec, Phase.PREPARING)
begin = time.monotonic()
bundles.prepare(instance, lambda: False)
runtime.start(instance.id)
while "starts" not in runtime.tail(instance.id, 5):
    assert time.monotonic() - begin < 60, runtime.tail(instance.id, 50)
    time.sleep(0.005)
seconds = time.monotonic() - begin
device = f"rbd{rbd.find(spec.attach)[0]}"
sectors = int(Path(f"/sys/block/{device}/stat").read_text().split()[2])
print("\nBENCH-RESULT " + json.dumps({"read": sectors * 512, "seconds": seconds}), flush=True)
while True:
    time.sleep(60)
"""


def large_image(directory: Path) -> Path:
    """The plain image with files of random bytes beside it, which no compression makes smaller."""
    tree = directory / "tree"
    plain = build_plain_image(directory / "plain.squashfs", "bench")
    subprocess.run(
        ["unsquashfs", "-q", "-n", "-d", str(tree), str(plain)], check=True, capture_output=True
    )
    for number in range(PIECES):
        (tree / f"piece-{number}").write_bytes(os.urandom(SIZE // PIECES))
    out = squash(tree, directory / "large.squashfs", level=1)
    shutil.rmtree(tree)
    return out


def main() -> None:
    """Measures and prints."""
    with lab() as found:
        path = large_image(found.directory)
        image = found.push(path, "large")
        path.unlink()
        result = found.run(SCRIPT, {"image": image}, 120)
    print(
        json.dumps(
            {
                "image_bytes": image["size"],
                "read_bytes": result["read"],
                "start_s": round(result["seconds"], 2),
                "read_fraction": round(result["read"] / image["size"], 5),
            }
        )
    )


if __name__ == "__main__":
    main()
