#!/bin/sh
# libvirtd.sh DIRECTORY [no-kvm]: a libvirtd in the foreground, in mounts of its own: all that it keeps is below DIRECTORY, and a libvirt
# that this machine runs for itself is not touched. Its socket is DIRECTORY/run/libvirt-sock. It needs neither systemd nor D-Bus.
# With "no-kvm" it does not see /dev/kvm: libvirt trusts the device's presence, and hangs where it does not work.
set -eu
if [ "$1" != --inside ]; then exec unshare --mount --propagation private "$0" --inside "$@"; fi
shift
directory=$(realpath "$1")
for place in run/libvirt:run var/lib/libvirt:lib etc/libvirt:etc var/log/libvirt:log var/cache/libvirt:cache; do
    mkdir -p "/${place%:*}" "$directory/${place#*:}"
    mount --bind "$directory/${place#*:}" "/${place%:*}"
done
# libvirt does not start without its user, whom only the package of its service makes, though nothing runs as that here.
for file in passwd group; do
    cp "/etc/$file" "$directory/$file"
    [ "$file" = passwd ] && who=libvirt-qemu:x:64055:64055::/:/usr/sbin/nologin || who=libvirt-qemu:x:64055:
    grep -q ^libvirt-qemu: "$directory/$file" || echo "$who" >> "$directory/$file"
    mount --bind "$directory/$file" "/etc/$file"
done
# Machines run as root, without cgroups and confinement, which a container's root may not set up.
cat > /etc/libvirt/qemu.conf <<CONF
namespaces = []
security_driver = "none"
user = "root"
group = "root"
cgroup_controllers = []
remember_owner = 0
CONF
if [ "${2:-}" = no-kvm ] && [ -e /dev/kvm ]; then
    # A /dev without it. With something else in its place libvirt finds its notes about QEMU wrong, and asks QEMU anew each time.
    devices=$(mktemp -d)
    mount -t tmpfs -o mode=755 dev "$devices"
    mkdir "$devices/pts" "$devices/shm" "$devices/net"
    for name in null zero full random urandom tty; do cp -a "/dev/$name" "$devices/"; done
    cp -a /dev/net/tun "$devices/net/"
    mount --bind /dev/pts "$devices/pts"
    mount --bind /dev/shm "$devices/shm"
    ln -s pts/ptmx "$devices/ptmx"
    ln -s /proc/self/fd "$devices/fd"
    mount --move "$devices" /dev
    rmdir "$devices"
fi
setpriv --pdeathsig KILL /usr/sbin/virtlogd --pid-file "$directory/virtlogd.pid" &
exec tini -s -- /usr/sbin/libvirtd --pid-file "$directory/libvirtd.pid"
