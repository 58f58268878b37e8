#!/bin/sh
# Virtual machines of libvirt, for the driver `command` of Layercake: virsh-domain.sh VERB HOST/DOMAIN, or DOMAIN alone for this machine.
# It needs Debian's package libvirt-clients. HOST is reached by SSH with a key, as the user of the inventory, or root; its key has to be
# known (/root/.ssh/known_hosts), for nobody is there to be asked. A line "HOST URI" in a file beside this program, of the same name with
# .uris behind it, says another way; the host of this machine is localhost.
IFS= read -r user
case "$2" in */*) host=${2%/*} domain=${2##*/} ;; *) host=localhost domain=$2 ;; esac
case "$host,$domain,$user" in
    -*|*,-*|*[!A-Za-z0-9_.,:@%=+-]*) echo "$2 is no HOST/DOMAIN, or $user no user" >&2; exit 1 ;;
esac
uri=$(awk -v "host=$host" '$1 == host { print $2; exit }' "$0.uris" 2>/dev/null)
case "$uri,$host" in
    ,localhost) uri=qemu:///system ;;
    ,*) uri="qemu+ssh://${user:-root}@$host/system?no_tty=1" ;;
esac
told() { # keeps what virsh says; of what it complains about the first line is the reason
    said=$(virsh --quiet --connect "$uri" "$@" --domain "$domain" 2>&1) && return
    printf '%s\n' "$said" | sed -n '1s/^error: //p' >&2
    case "$said" in *"failed to connect"*|*"Failed to connect"*|*"Cannot recv data"*|*"No route to host"*) exit 69 ;; esac
    exit 1
}
case "$1" in
    status) told domstate; [ "$said" = "shut off" ] && echo off || echo on ;;
    on) told domstate; [ "$said" != "shut off" ] || told start ;;
    off) told domstate; [ "$said" = "shut off" ] || told destroy ;;
    soft-off) told shutdown ;;
    *) exit 64 ;;
esac
