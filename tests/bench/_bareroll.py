"""The switch of a roll by bare commands, on the same nodes: busybox' mount and crun in one shell
script, on all nodes at once.

It does what our agent does between the order to switch and the new container: it mounts the new
image and its overlay, ends the old container and starts the new one. Each node measures it by its
own clock, so that neither the order's way nor the answer's is in it.
"""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrun import HeadRun

SLOTS = ("a", "b")
TO, FROM = "/run/bare", "/run/layercake/containers"
_SET_UP = f"""
mkdir -p {TO}; cd {TO}
cp /run/layercake/blobs/*.squashfs image
for slot in a b; do
    mkdir -p $slot/lower $slot/rw $slot/root
    sed "s,{FROM}/[^/]*/root,{TO}/$slot/root,; s,/layercake/[^\\"]*,/bare-$slot," {FROM}/*/config.json > $slot/config.json
done
"""
_SWITCH = f"""
cd {TO}
read -r begin rest < /proc/uptime
mount -t squashfs -o loop,ro,nodev image $new/lower
mount -t tmpfs -o mode=755,size=50% tmpfs $new/rw
mkdir $new/rw/upper $new/rw/work
mount -t overlay -o lowerdir=$new/lower,upperdir=$new/rw/upper,workdir=$new/rw/work overlay $new/root
if [ -e $old/pid ]; then crun --root={TO}/crun delete --force bare-$old; fi
crun --root={TO}/crun run --detach --bundle={TO}/$new --pid-file={TO}/$new/pid bare-$new > $new/log 2>&1 ||
    {{ cat $new/log; exit 1; }}
read -r end rest < /proc/uptime
if [ -e $old/pid ]; then umount $old/root $old/rw $old/lower; rm $old/pid; fi
echo "$begin $end"
"""
_AWAY = f"""
cd {TO}
for slot in a b; do
    [ -e $slot/pid ] || continue
    crun --root={TO}/crun delete --force bare-$slot
    umount $slot/root $slot/rw $slot/lower
done
cd /; rm -r {TO}
"""


def _on(head: HeadRun, node: str, script: str) -> str:
    return head.cli("node", "exec", node, "--", "sh", "-e", "-c", script).stdout


def switches(head: HeadRun, nodes: list[str], rounds: int) -> list[float]:
    """The seconds of each node's switch, of so many rounds; the one that starts the first container
    is not counted."""
    for node in nodes:
        _on(head, node, _SET_UP)
    found: list[float] = []
    with ThreadPoolExecutor(len(nodes)) as pool:
        for number in range(rounds + 1):
            old, new = SLOTS[number % 2], SLOTS[(number + 1) % 2]
            said = list(
                pool.map(lambda node: _on(head, node, f"old={old} new={new}\n{_SWITCH}"), nodes)  # noqa: B023
            )
            took = [float(end) - float(begin) for begin, end in (line.split() for line in said)]
            found += took if number else []
    for node in nodes:
        _on(head, node, _AWAY)
    if not all(found):
        raise SystemExit(f"the bare commands took no time: {json.dumps(found)}")
    return found
