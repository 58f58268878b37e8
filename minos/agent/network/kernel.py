"""The kernel's side: what there is, one step done, and being told that something has changed."""

from __future__ import annotations

import socket
import struct

from minos import netlink
from minos.agent.network import wire
from minos.agent.network.steps import Seen, Step, Verb
from minos.agent.network.wanted import parsed
from minos.netlink import Netlink


class Kernel:
    """By rtnetlink. Raises OSError if the kernel has none."""

    def __init__(self) -> None:
        self._netlink = Netlink()
        self.listener = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
        """Readable when something has changed."""
        self.listener.bind((0, wire.GROUPS))
        self.listener.setblocking(False)

    def close(self) -> None:
        """Closes the sockets."""
        self._netlink.close()
        self.listener.close()

    def drain(self) -> None:
        """Forgets what the listener has heard: what there is, is looked at anew. That it was too
        much to hear is no matter then."""
        while True:
            try:
                self.listener.recv(1 << 18)
            except BlockingIOError:
                return
            except OSError:  # ENOBUFS: some of it was lost
                continue

    def read_state(self) -> Seen:
        """What there is. Raises OperationFailed, OSError."""
        links = [
            wire.link_of(body)
            for body in self._netlink.dump(
                wire.RTM_GETLINK, struct.pack("=BxHiII", 0, 0, 0, 0, 0), "list the interfaces"
            )
        ]
        names = {link.index: link.name for link in links}
        addresses: dict[str, list[str]] = {}
        for body in self._netlink.dump(
            wire.RTM_GETADDR, struct.pack("=BBBBI", 0, 0, 0, 0, 0), "list the addresses"
        ):
            address = wire.address_of(body)
            if address is not None and address[0] in names:
                addresses.setdefault(names[address[0]], []).append(address[1])
        routes = [
            wire.route_of(body)
            for body in self._netlink.dump(
                wire.RTM_GETROUTE, struct.pack("=BBBBBBBBI", *bytes(8), 0), "list the routes"
            )
        ]
        return Seen(
            {link.name: link for link in links},
            addresses,
            {
                (names[route[0]], *route[1:])
                for route in routes
                if route is not None and route[0] in names
            },
        )

    def do(self, step: Step) -> None:
        """Does one step. Raises OperationFailed, OSError."""
        self._netlink.request(self._message(step, self._netlink.next()), f"{step}")

    def _message(self, step: Step, number: int) -> bytes:
        index = step.index
        match step.verb:
            case Verb.RENAME:
                return wire.rename(index, step.what, number)
            case Verb.DOWN | Verb.UP:
                return wire.set_up(index, step.verb is Verb.UP, number)
            case Verb.DELETE:
                return wire.delete(index, number)
            case Verb.BOND if step.bond is not None:
                return wire.new_bond(step.what, step.by, step.bond, number)
            case Verb.MIIMON:
                return wire.set_bond(index, number, miimon=step.number)
            case Verb.PRIMARY:
                return wire.set_bond(index, number, primary=step.number)
            case Verb.ENSLAVE | Verb.RELEASE:
                return wire.set_master(index, step.number, number)
            case Verb.VLAN:
                return wire.new_vlan(step.what, index, step.number, number)
            case Verb.MTU:
                return wire.set_mtu(index, step.number, number)
        return self._ip_message(step, number)

    def _ip_message(self, step: Step, number: int) -> bytes:
        """The message of a step that is about an address or a route."""
        index = step.index
        match step.verb:
            case Verb.ADDRESS:
                address = parsed(step.what)
                return netlink.new_address(
                    index, address.family, address.packed, address.prefix, number
                )
            case Verb.NO_ADDRESS:
                return wire.delete_address(index, step.what, number)
            case Verb.ROUTE | Verb.NO_ROUTE:
                return wire.route(index, step.what, step.by, number, new=step.verb is Verb.ROUTE)
        raise AssertionError(step)
