"""How long an image out of Ceph takes to start: map, verity, mount, overlay, container, in
milliseconds by step.

In a virtual machine with a real cluster beside it; our node code against the bare commands (a line
into sysfs, busybox mount, crun) in one shell script, in turn. Ours checks every block by dm-verity,
waits for nothing else, and keeps its books; the bare commands do neither. `ratio` is ours over
theirs, of the sums of the medians; `ratio_without_verity` leaves that step out. Prints one JSON
object last.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "vm-testbed"))

from smallimages import build_plain_image

from tests.bench._guest import lab
from tests.bench._history import median

ROUNDS = 12

SCRIPT = r'''
import base64, json, os, signal, subprocess, time
from pathlib import Path
from imageapi.node import mount
from imageapi.node.attach import rbd, verity
from imageapi.node.container.process import NO_PROCESS, Process, start_time
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
key = base64.b64decode(P["key"])
runtime = Runtime(run)
def no_fetch(url, offset):
    raise SystemExit("nothing is fetched here")
layers = Layers(run, no_fetch, lambda name: key)
objects = Objects(run, Attachments(run, no_fetch), unheard)
bundles = Bundles(run, runtime, layers.layer, objects, Records(run), unheard, "50%")
steps = {}
def timed(name, function):
    def wrapper(*arguments, **named):
        start = time.monotonic()
        try:
            return function(*arguments, **named)
        finally:
            steps[name] = (time.monotonic() - start) * 1000
    return wrapper
rbd.attach = timed("map", rbd.attach)
verity.attach = timed("verity", verity.attach)
mount.squashfs = timed("mount", mount.squashfs)
mount.overlay = timed("overlay", mount.overlay)
runtime.create = timed("create", runtime.create)
runtime.start = timed("start", runtime.start)

def ours(number):
    steps.clear()
    instance = Instance(f"bench-{number}", spec, Phase.PREPARING)
    begin = time.monotonic()
    bundles.prepare(instance, lambda: False)
    runtime.start(instance.id)
    total = (time.monotonic() - begin) * 1000
    if number == 0:
        os.environ["CONFIG"] = (runtime.bundle(instance.id) / "config.json").read_text()
    os.kill(instance.process.pid, signal.SIGKILL)
    while start_time(instance.process.pid):
        time.sleep(0.01)
    bundles.remove(instance.id, instance.process)
    layers.collect(())
    assert rbd.find(spec.attach) == []
    return {**steps, "total": total}

BARE = """
t() { read -r up rest < /proc/uptime; }
cd /run/bare
echo "$LINE" > /sys/bus/rbd/add_single_major
set -- /sys/bus/rbd/devices/*
mount -t squashfs -o ro,nodev /dev/rbd${1##*/} lower
mount -t tmpfs -o mode=755,size=50% tmpfs rw
mkdir rw/upper rw/work
mount -t overlay -o lowerdir=lower,upperdir=rw/upper,workdir=rw/work overlay root
crun --root=/run/bare/crun run --detach --bundle=/run/bare/bundle --pid-file=/run/bare/pid bare > /run/bare/log 2>&1
"""
AWAY = """
cd /run/bare
crun --root=/run/bare/crun delete --force bare
umount root; umount rw; umount lower
set -- /sys/bus/rbd/devices/*
echo ${1##*/} > /sys/bus/rbd/remove_single_major
"""
bare_dir = Path("/run/bare")
for name in ("lower", "rw", "root", "bundle"):
    (bare_dir / name).mkdir(parents=True, exist_ok=True)
source = spec.attach
os.environ["LINE"] = (f"{','.join(source.monitors)} name={source.user},secret={P['key']},ro "
                      f"{source.pool} {source.image} {source.snapshot}")

def bare():
    begin = time.monotonic()
    done = subprocess.run(["sh", "-e", "-c", BARE], stdin=subprocess.DEVNULL)
    total = (time.monotonic() - begin) * 1000
    assert done.returncode == 0, (bare_dir / "log").read_text()
    subprocess.run(["sh", "-c", AWAY], stdin=subprocess.DEVNULL)
    assert rbd.find(source) == []
    return total

found = {"ours": [], "bare": []}
for number in range(P["rounds"] + 1):
    mine = ours(number)
    if number == 0:
        config = json.loads(os.environ.pop("CONFIG"))
        config["root"]["path"] = "/run/bare/root"
        config["linux"]["cgroupsPath"] = "/layercake/bare"
        (bare_dir / "bundle/config.json").write_text(json.dumps(config))
    theirs = bare()
    if number:  # the first round loads modules and fills caches
        found["ours"].append(mine)
        found["bare"].append(theirs)
print("\nBENCH-RESULT " + json.dumps(found), flush=True)
while True:
    time.sleep(60)
'''


def main() -> None:
    """Measures and prints."""
    with lab() as found:
        image = found.push(build_plain_image(found.directory / "plain.squashfs", "bench"), "bench")
        result = found.run(SCRIPT, {"image": image, "rounds": ROUNDS}, 300)
    steps = {
        name: round(median([r[name] for r in result["ours"]]), 1) for name in result["ours"][0]
    }
    bare = round(median(result["bare"]), 1)
    print(
        json.dumps(
            {
                "steps_ms": steps,
                "bare_ms": bare,
                "ratio": round(steps["total"] / bare, 2),
                "ratio_without_verity": round((steps["total"] - steps["verity"]) / bare, 2),
                "rounds": ROUNDS,
            }
        )
    )


if __name__ == "__main__":
    main()
