"""Whether heads can have the addresses that are to float. Pure."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Sequence

from layercake.moduleapi.network import HeadAddress, is_host


def mistakes(
    floating: Sequence[str], heads: Sequence[HeadAddress], others: Sequence[str | None]
) -> Iterator[tuple[int, str, str]]:
    """What is wrong with floating addresses: the number of each that cannot be used in their list,
    why, and what to do. `heads` are the head's own, `others` those that somebody else has."""
    used: dict[str, str] = {}
    for number, address in enumerate(floating):
        own = next((one for one in heads if _is_in(address, one)), None)
        if own is None:
            networks = ", ".join(str(one.network) for one in heads)
            yield (
                number,
                f"floating address {address} is no host address of a network that this head is in",
                f"it is in {networks}, by `prefix` and more_networks; all heads must be in it",
            )
        elif address in [one.address for one in heads]:
            yield (
                number,
                f"floating address {address} is this head's own",
                "take one that nobody has: the head that leads has it beside its own",
            )
        elif address in others:
            yield number, f"floating address {address} is the gateway", "take one that nobody has"
        elif (network := str(own.network)) in used:
            yield (
                number,
                f"floating address {address} is the second one in {network}",
                f"{used[network]} is there already; one for each network",
            )
        else:
            used[network] = address


def _is_in(address: str, head: HeadAddress) -> bool:
    """Whether an address may be a host's in the network of one of the head's."""
    try:
        return ipaddress.ip_address(address) in head.network and is_host(address, head.network)
    except ValueError:  # a prefix that the address cannot have: said of that
        return False
