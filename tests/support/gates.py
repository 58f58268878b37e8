"""A gate of the TFTP server that lets everyone through: what is refused is refused for its name."""

from __future__ import annotations


class Open:
    """Has nothing besides the server's table."""

    def may_come(self, ip: str) -> bool:
        return False

    def may_fetch(self, ip: str) -> str:
        return ""

    def own(self, ip: str, name: str) -> bytes | None:
        return None

    def began(self, ip: str, name: str) -> None:
        """Nobody asks."""

    def broke(self, ip: str, name: str, sent: int, size: int, why: str) -> None:
        """Nobody asks."""

    def going(self, ip: str, name: str, sent: int, size: int) -> None:
        """Nobody asks."""

    def other(self, ip: str, name: str) -> None:
        """Nobody asks."""

    def ended(self, ip: str, name: str, size: int, seconds: float) -> None:
        """Nobody asks."""
