"""What a packet filter does with a packet, worked out from `nft -j list ruleset`. Pure.

It is not run: a packet that the head sends to itself goes over the loopback, where no rule about
the nodes' interface applies. A rule with something in it that is not understood here may match or
not: then both are possible, and the answer is a set. Sources: libnftables-json(5), nft(8).
"""

from __future__ import annotations

import ipaddress
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

ACCEPT = "accept"
DROP = "drop"
ON = "on"
"""What becomes of a packet; ON: it goes on behind the chain."""
_BACK = "return"
_DEEPEST = 16
Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Packet:
    """The first packet of a conversation. `out` is the interface that it leaves by, "" for one that
    is for this machine."""

    into: str
    source: str
    target: str
    protocol: str
    port: int
    out: str = ""


class Filter:
    """The chains of one rule set."""

    def __init__(self, ruleset: list[dict[str, Any]]) -> None:
        self._chains = [e["chain"] for e in ruleset if "chain" in e]
        self._rules: dict[tuple[str, str, str], list[list[Json]]] = {}
        self._sets: dict[tuple[str, str, str], list[Any]] = {}
        for entry in ruleset:
            if rule := entry.get("rule"):
                self._rules.setdefault((rule["family"], rule["table"], rule["chain"]), []).append(
                    rule.get("expr", [])
                )
            elif named_set := entry.get("set"):
                self._sets[(named_set["family"], named_set["table"], named_set["name"])] = (
                    named_set.get("elem", [])
                )

    def verdicts(self, packet: Packet) -> set[str]:
        """ACCEPT, DROP, or both when that cannot be told."""
        hooks = ("ingress", "prerouting", "forward" if packet.out else "input")
        verdicts = {ACCEPT}
        for chain in self._chains:
            if chain.get("hook") not in hooks or not _judges(chain):
                continue
            devices = _list(chain.get("dev", [])) if chain["family"] == "netdev" else [packet.into]
            if devices and packet.into not in devices:
                continue
            ends = self._walk((chain["family"], chain["table"]), chain["name"], packet, 0)
            if not devices:  # nft before 1.0.9 does not say which
                ends.add(ACCEPT)
            ends = {chain.get("policy", ACCEPT) if end == ON else end for end in ends}
            if ends == {DROP}:
                return {DROP}
            verdicts |= ends
        return verdicts

    def _walk(self, table: tuple[str, str], chain: str, packet: Packet, depth: int) -> set[str]:
        """What may become of a packet in a chain."""
        verdicts: set[str] = set()
        if depth > _DEEPEST:
            return {ACCEPT, DROP}
        for rule in self._rules.get((*table, chain), []):
            matches, ends = self._rule(table, rule, packet, depth)
            if matches is False or not ends:
                continue
            verdicts |= ends - {ON}
            if matches and ON not in ends:
                break
        else:
            verdicts.add(ON)
        return {ON if end == _BACK else end for end in verdicts}

    def _rule(
        self, table: tuple[str, str], rule: list[Json], packet: Packet, depth: int
    ) -> tuple[bool | None, set[str]]:
        """(whether it matches, None if that cannot be told; what it does then)."""
        matches: bool | None = True
        ends: set[str] = set()
        for part in rule:
            ((kind, value),) = part.items()
            if kind == "match":
                matches = _both(matches, self._match(table, value, packet))
            elif kind in ("limit", "xt", "quota", "connlimit", "socket", "osf"):
                matches = _both(matches, None)
            elif kind == "vmap":
                outcomes = self._vmap(table, value, packet, depth)
                matches = _both(matches, outcomes[0])
                ends = outcomes[1]
            else:
                ends |= self._verdict(table, kind, value, packet, depth)
        return matches, ends

    def _verdict(
        self, table: tuple[str, str], kind: str, value: Any, packet: Packet, depth: int
    ) -> set[str]:
        if kind == "accept":
            return {ACCEPT}
        if kind in ("drop", "reject"):
            return {DROP}
        if kind == "return":
            return {_BACK}
        if kind in ("jump", "goto"):
            ends = self._walk(table, value["target"], packet, depth + 1)
            return ends if kind == "jump" else {_BACK if end == ON else end for end in ends}
        return {ACCEPT, DROP} if kind in ("queue", "synproxy") else set()

    def _vmap(
        self, table: tuple[str, str], value: Json, packet: Packet, depth: int
    ) -> tuple[bool | None, set[str]]:
        data = value.get("data")
        if not isinstance(data, Mapping) or "set" not in data:
            return None, {ACCEPT, DROP}
        matches: bool | None = False
        ends: set[str] = set()
        for key, verdict in data["set"]:
            hit = self._match(table, {"op": "==", "left": value["key"], "right": key}, packet)
            if hit is False:
                continue
            ((kind, to),) = verdict.items()
            ends |= self._verdict(table, kind, to, packet, depth)
            if hit:
                return True, ends
            matches = None
        return matches, ends

    def _match(self, table: tuple[str, str], match: Json, packet: Packet) -> bool | None:
        left = match.get("left")
        right = match.get("right")
        op = str(match.get("op"))
        if _of_other_protocol(left, packet):
            return False
        value = _field(left, packet)
        if value is None:
            return None
        if op in ("==", "in", "!="):
            hit = self._within(table, value, right)
            return not hit if op == "!=" and hit is not None else hit
        if op in _ORDERS and isinstance(value, int) and isinstance(right, int):
            return _ORDERS[op](value, right)
        return None

    def _within(self, table: tuple[str, str], value: Any, right: Any) -> bool | None:
        """Whether a value is one, or in a set, a range or a prefix."""
        if isinstance(right, str) and right.startswith("@"):
            known = self._sets.get((*table, right[1:]))
            return None if known is None else self._any(table, value, known)
        if isinstance(right, list):
            return self._any(table, value, right)
        if isinstance(right, Mapping):
            return self._within_object(table, value, right)
        if isinstance(value, str) and isinstance(right, str) and right.endswith("*"):
            return value.startswith(right[:-1])
        return bool(value == right)

    def _within_object(
        self, table: tuple[str, str], value: Any, right: Mapping[str, Any]
    ) -> bool | None:
        if "set" in right:
            return self._any(table, value, _list(right["set"]))
        if "elem" in right:
            return self._within(table, value, right["elem"].get("val"))
        if "range" in right:
            return _in_range(value, *right["range"])
        if "prefix" in right:
            return _in_range(value, None, f"{right['prefix']['addr']}/{right['prefix']['len']}")
        return None

    def _any(self, table: tuple[str, str], value: Any, several: list[Any]) -> bool | None:
        hits = [self._within(table, value, one) for one in several]
        return True if True in hits else None if None in hits else False


_ORDERS: Mapping[str, Callable[[int, int], bool]] = {
    "<": operator.lt,
    ">": operator.gt,
    "<=": operator.le,
    ">=": operator.ge,
}


def _judges(chain: Json) -> bool:
    """Whether a chain decides about our packets: no translation, and not of another family."""
    return chain.get("type") != "nat" and chain["family"] in ("ip", "inet", "netdev")


_ELSEWHERE = ("ip6", "icmp", "icmpv6", "sctp", "dccp", "esp", "ah", "arp", "vlan")
"""Headers that our packets do not have."""


def _of_other_protocol(left: Any, packet: Packet) -> bool:
    """Whether a rule looks into a header that a packet does not have."""
    header = (left.get("payload") or {}).get("protocol") if isinstance(left, Mapping) else None
    return header in _ELSEWHERE or (header in ("tcp", "udp") and header != packet.protocol)


def _field(left: Any, packet: Packet) -> Any:
    """What a packet has there; None if that is not known."""
    if not isinstance(left, Mapping):
        return None
    if meta := left.get("meta"):
        return {
            "iifname": packet.into,
            "iif": packet.into,
            "oifname": packet.out,
            "oif": packet.out,
            "l4proto": packet.protocol,
            "nfproto": "ipv4",
            "protocol": "ip",
        }.get(str(meta.get("key")))
    if ct := left.get("ct"):
        return "new" if ct.get("key") == "state" else None
    if payload := left.get("payload"):
        return (
            {
                "saddr": packet.source,
                "daddr": packet.target,
                "protocol": packet.protocol,
                "version": 4,
                "dport": packet.port,
            }.get(str(payload.get("field")))
            if payload.get("protocol") != "ether"
            else None
        )
    return None


def _in_range(value: Any, low: Any, high: Any) -> bool | None:
    """Whether a number, or an address, is from `low` to `high`; without `low`, in the network
    `high`."""
    try:
        if low is None:
            return ipaddress.ip_address(value) in ipaddress.ip_network(high, strict=False)
        if isinstance(value, int):
            return int(low) <= value <= int(high)
        return (
            int(ipaddress.ip_address(low))
            <= int(ipaddress.ip_address(value))
            <= int(ipaddress.ip_address(high))
        )
    except (ValueError, TypeError):
        return None


def _both(one: bool | None, other: bool | None) -> bool | None:
    """And, where what is not known may be either."""
    return (
        False if one is False or other is False else None if one is None or other is None else True
    )


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]
