"""Values that only one node of an inventory may have: names, MAC and IP addresses, places."""

from __future__ import annotations

from layercake.inventory.problems import Mark, Problems

MAC = "MAC address"
IP = "IP address"
NODE = "node"
OWN_AGAIN = (MAC, IP)
"""What a node may say of itself twice: its card and its address, once to boot by, and once among
its interfaces."""


class Claims:
    """Which node has which value first; another node with it is a mistake."""

    def __init__(self, problems: Problems) -> None:
        self._problems = problems
        self._first: dict[tuple[str, object], tuple[str, Mark, bool]] = {}

    def values(self) -> frozenset[tuple[str, object]]:
        """All values that are claimed, each with what it is."""
        return frozenset(self._first)

    def clear(self) -> None:
        """Forgets all claims."""
        self._first = {}

    def claim(
        self,
        what: str,
        value: object,
        node: str,
        mark: Mark,
        shown: str = "",
        *,
        shared: bool = False,
    ) -> bool:
        """Notes that a node has a value that no other may have, or that others have as well if all
        of them share it; whether that is so."""
        first = self._first.get((what, value))
        if first is None:
            self._first[(what, value)] = (node, mark, shared)
            return True
        first_node, first_mark, first_shares = first
        if (first_node == node and what in OWN_AGAIN) or (shared and first_shares):
            return True
        if what == NODE:
            self._problems.add(
                mark,
                f"node {node} is declared twice",
                f"the first one is in line {first_mark.line}",
            )
        else:
            self._problems.add(
                mark,
                f"{what} {shown or value} of node {node} is taken",
                f"node {first_node} has it, line {first_mark.line}",
            )
        return False
