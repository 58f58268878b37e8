#!/bin/sh
# bootstrap.sh: installs python3, by which prepare.py installs the rest; says each few seconds what apt is at.
set -eu
[ -x /usr/bin/python3 ] && exit 0
if [ "$(id -u)" != 0 ]; then
    echo "cannot install python3: it needs root; run \`apt-get install python3 python3-venv\` as root first" >&2
    exit 1
fi
if ! command -v apt-get >/dev/null; then
    echo "cannot install python3: this machine has no apt-get; Debian 12 or 13 is needed" >&2
    exit 1
fi
log=$(mktemp)
trap 'rm -f "$log"' EXIT
echo "installing python3, which prepares the rest"
export DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8
options="-q -y -o DPkg::Lock::Timeout=300 -o Acquire::Retries=3 -o Dpkg::Use-Pty=0 --no-install-recommends"
setsid sh -c "apt-get $options update && apt-get $options install python3" >"$log" 2>&1 &
job=$!
# Ctrl-C does not reach what runs in the background of a script.
trap 'kill -- "-$job" 2>/dev/null; wait "$job"; rm -f "$log"; exit 130' INT TERM HUP
seconds=0
while kill -0 "$job" 2>/dev/null; do
    sleep 1
    seconds=$((seconds + 1))
    [ $((seconds % 6)) != 0 ] || echo "    $seconds s  python3: $(tail -n 1 "$log" | cut -c1-70)"
done
if ! wait "$job"; then
    echo "cannot install python3:" >&2
    tail -n 15 "$log" >&2
    exit 1
fi
