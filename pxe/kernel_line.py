"""What may stand in a kernel's command line: one answer for the inventory, which is checked when it
is planned, and for each boot, which writes it into a script.

iPXE splits a line at spaces, expands ${settings}, and ends a command at ||, &&, ; and #; GRUB gives
a meaning to more: { } | & $ ; < > and quotes. So every argument is checked against a list of
characters that mean nothing to them: a value is refused, not quoted, for iPXE has no quoting.
"""

from __future__ import annotations

import re

from layercake.base.text import show
from layercake.moduleapi.fields import Mistake

MOST = 1024
"""Characters of a node's own arguments."""
ROOM = 2047
"""Characters that all of it may have: x86's COMMAND_LINE_SIZE is 2048, the zero byte included."""
OURS = 790
"""Characters that Layercake's own arguments have at most, what a network says of names, servers
and routes left out."""
WORD = re.compile(r"[A-Za-z0-9_.,:=/@+%~*\[\]!?()^-]+")
_OTHER = re.compile(r"&&|\|\||[^A-Za-z0-9_.,:=/@+%~*\[\]!?()^ -]")
_CONSOLE = re.compile(r"[a-zA-Z]{2,12}[0-9]{0,3}(,[0-9]{3,7}([noe]([78]r?)?)?)?")
_SERIAL = ("ttyS", "ttyAMA")
_OURS = ("layercake.", "initrd=")


def arguments(line: str) -> list[str]:
    """The arguments of a line, apart by blanks. Raises Mistake for one that boot scripts would give
    a meaning, or that Layercake sets itself."""
    for character in line:
        if not " " <= character <= "~":
            raise Mistake(
                f"the character {show(character)} may not stand in kernel arguments",
                "one line of plain ASCII",
            )
    if match := _OTHER.search(line):
        what = match[0] if match[0] in ("&&", "||") else f"the character {match[0]}"
        raise Mistake(
            f"{what} may not stand in kernel arguments",
            "boot scripts would give it a meaning: a space, quotes and any of $ { } ; # & | < > "
            "\\ ` cannot be in an argument",
        )
    words = line.split()
    for word in words:
        if word == "!":
            raise Mistake("! may not stand alone in kernel arguments", "GRUB gives it a meaning")
        if word.startswith(_OURS):
            raise Mistake(
                f"the argument {show(word.split('=')[0])} is set by Layercake itself",
                "remove it: a layercake. word says who the node is; the head alone writes it",
            )
    return words


def console(value: str) -> str:
    """The argument for a console, with a speed where it is serial; "" for none. Raises Mistake."""
    if not value:
        return ""
    if not _CONSOLE.fullmatch(value):
        raise Mistake(
            f"{show(value)} is not a console",
            "write a device and perhaps its speed: ttyS0 or ttyS0,115200n8; the kernel knows 7 and "
            "8 bits",
        )
    return f"console={value}{',115200' if value.startswith(_SERIAL) and ',' not in value else ''}"
