"""Boot windows: which nodes may boot now, with which one-use token, and how far each has come.

A window opens with boot-arm (or boot-wait, after a restart of this service) and closes at its end,
when the node has joined, or when the head says that the node is not in boot=WAIT any more. The
steps of a boot outlive its window, until the next one: a person asks "why did it stall" after the
fact.
"""

from __future__ import annotations

import asyncio
import enum
import re
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from layercake.kraken.errors import InputError
from layercake.kraken.events import EventKind
from pxe import events

_TOKEN = re.compile(r"[A-Za-z0-9_.-]{8,256}")
_STEPS_KEPT = 64
MAX_WINDOW_S = 86_400.0
AGAIN_AT_MOST = 3
"""How often a machine that begins anew in one boot gets its script again."""
_STEP_PROLONGS_S = 60.0
_PROLONGED_AT_MOST = 3.0


class Step(enum.Enum):
    """What a node did on its way; the value is the kind of the event in its history."""

    DISCOVER = events.DISCOVER_SEEN
    OFFER = events.OFFER_SENT
    ADDRESS = events.ADDRESS_TAKEN
    NBP = events.NBP_SENT
    SCRIPT = events.SCRIPT_SENT
    KERNEL = events.KERNEL_SENT
    HARDWARE = events.HARDWARE_SENT
    INITRD = events.INITRD_SENT

    @property
    def kind(self) -> EventKind:
        """The kind of its event."""
        return self.value

    @property
    def label(self) -> str:
        """What was seen, for "cannot boot n1: LABEL 95 s ago, ..."."""
        return _LABELS[self][0]

    @property
    def missing(self) -> str:
        """What should have followed and did not."""
        return _LABELS[self][1]


_LABELS = {
    Step.DISCOVER: ("DHCPDISCOVER seen", "no answer could be sent"),
    Step.OFFER: ("DHCP offer sent", "no boot program or script was asked for"),
    Step.ADDRESS: (
        "address taken from the site's DHCP server",
        "no boot program or script was asked for",
    ),
    Step.NBP: ("boot program sent", "iPXE never asked for its script"),
    Step.SCRIPT: ("boot script sent", "the kernel was never fetched"),
    Step.KERNEL: ("kernel sent", "the initramfs was never fetched"),
    Step.HARDWARE: ("kernel and drivers sent", "the initramfs was never fetched"),
    Step.INITRD: ("kernel and initramfs sent", "the agent never joined"),
}
PROXY = "proxy"
"""What the data of an offer have that holds no address: that comes from a server of the site."""
_NO_ADDRESS = "no DHCPREQUEST: the site's DHCP server has offered it no address"


@dataclass(frozen=True, slots=True)
class StepSeen:
    """One step. `done` is False where a transfer has begun and its end is not seen yet. `at` is on
    the service's clock."""

    step: Step
    at: float
    done: bool
    data: Mapping[str, Any]

    @property
    def text(self) -> str:
        """What happened, in words."""
        return self.step.label if self.done else f"{self.data.get('file', 'file')} asked for"

    @property
    def missing(self) -> str:
        """What should have followed and did not."""
        return _NO_ADDRESS if self.step is Step.OFFER and PROXY in self.data else self.step.missing


@dataclass(slots=True)
class Window:
    """One boot of one node. `confirmed`: the head is known to know that this window is open.
    `configuration` is the SHA-256 of GRUB's that was sent last, "" for none.
    `asked` are the MAC addresses that were offered something by DHCP in it, `given` is the one that
    has the script, "" for none. `anew`: that one was offered something once more since, so its
    machine has begun anew, and gets the script again; `again` is how often it did. `others` are
    files that were asked for and not offered. `moved` is when a transfer was last seen to get on, 0
    if none was. `doubt` is why this boot will not do, as far as is known beforehand. `over` is set
    when the node has joined, or when the window is `spoiled`: why, and `hint` says what becomes of
    it."""

    node: str
    token: str = field(repr=False)
    opened: float
    until: float
    open: bool = True
    confirmed: bool = False
    configuration: str = ""
    asked: set[str] = field(default_factory=set)
    given: str = ""
    anew: bool = False
    again: int = 0
    others: tuple[str, ...] = ()
    joined: bool = False
    spoiled: str = ""
    hint: str = "it is started anew, with another token"
    doubt: str = ""
    moved: float = 0.0
    over: asyncio.Event = field(default_factory=asyncio.Event)
    steps: deque[StepSeen] = field(default_factory=lambda: deque(maxlen=_STEPS_KEPT))


class Windows:
    """The windows of all nodes; pure but for the passage of `now` (seconds on a monotonic clock).
    `first` is what is seen first of a boot."""

    def __init__(self) -> None:
        self.by_node: dict[str, Window] = {}
        """The window of each node that was armed since it last was in sync."""
        self.first = "DHCPDISCOVER"

    def arm(
        self, node: str, token: Any, window_s: Any, now: float, *, confirmed: bool = False
    ) -> Window:
        """Opens a window, or goes on with the open one of the same token. Raises InputError; the
        token is in no error text."""
        if not isinstance(token, str) or not _TOKEN.fullmatch(token):
            raise InputError(f"cannot arm node {node}: its token is missing or malformed")
        if (
            isinstance(window_s, bool)
            or not isinstance(window_s, int | float)
            or not 0 < window_s <= MAX_WINDOW_S
        ):
            raise InputError(
                f"cannot arm node {node}: window_s must be above 0 and at most {MAX_WINDOW_S:.0f} "
                "seconds"
            )
        window = self.by_node.get(node)
        if window is None or window.token != token or self.armed(node, now) is None:
            window = self.by_node[node] = Window(node, token, now, now)
        window.open = True
        window.until = max(window.until, now + float(window_s))
        window.confirmed = window.confirmed or confirmed
        return window

    def disarm(self, node: str, token: str | None = None) -> bool:
        """Closes the node's window; with `token`, only if it is that token's. Says whether a window
        was closed."""
        window = self.by_node.get(node)
        if window is None or not window.open or (token is not None and token != window.token):
            return False
        window.open = False
        return True

    def armed(self, node: str, now: float) -> Window | None:
        """The open window of a node. One whose end has passed is closed."""
        window = self.by_node.get(node)
        if window is None or not window.open:
            return None
        if now >= window.until:
            window.open = False
            return None
        return window

    def carries(self, node: str) -> bool:
        """Whether the machine has fetched a boot program since it began, and so may be taken to run
        it."""
        window = self.by_node.get(node)
        seen = (
            [s.step for s in window.steps if s.done and s.step in (Step.NBP, Step.SCRIPT)]
            if window is not None
            else []
        )
        return bool(seen) and seen[-1] is Step.NBP

    def untouched(self, node: str, now: float) -> bool:
        """Whether a node is waited for whose firmware has not asked for anything yet."""
        window = self.armed(node, now)
        return window is not None and not window.steps

    def silent(self, node: str) -> bool:
        """Whether nothing was seen of the node's present boot."""
        window = self.by_node.get(node)
        return window is None or not window.steps

    def forget(self, node: str) -> None:
        """The node is gone."""
        self.by_node.pop(node, None)

    def state(self, node: str, values: Mapping[str, str]) -> bool:
        """The head said what is discovered of a node. Says whether that closed its window.

        A state of boot=UNKNOWN may still be on its way from before the head heard that boot-arm is
        done; it would close the window that has just opened. So until the head has once said WAIT,
        only joined or not powered closes.
        """
        window = self.by_node.get(node)
        if window is None or not window.open:
            return False
        boot = values.get("boot", "UNKNOWN")
        if boot == "INIT":
            window.joined = True
            window.over.set()
        if boot == "WAIT":
            window.confirmed = True
        elif window.confirmed or boot == "INIT" or values.get("power") in ("OFF", "HANG"):
            return self.disarm(node)
        return False

    def asked(self, node: str, mac: str) -> bool:
        """A MAC address was offered something to boot. Says whether its machine is seen to begin
        anew by that: it has the script of this boot already, and firmware that has it does not ask
        again."""
        window = self.by_node.get(node)
        if window is None:
            return False
        window.asked.add(mac)
        if not window.open or window.given != mac or window.anew:
            return False
        window.anew = True
        return True

    def fetched(self, window: Window) -> None:
        """Somebody fetches what the script names. Who has begun anew has none yet, so that was
        another, or no beginning."""
        window.anew = False

    def hand_out(self, window: Window, mac: str) -> str:
        """Why the script of a window is not handed out to a MAC address, "" if it is: once, and
        again to the same one when it has begun anew, a few times. It has the same token then, so of
        two machines that have it the second to join is found out. Whoever else asks twice shares an
        address with another: the window ends, for the token may be in other hands."""
        if mac not in window.asked:
            return f"{mac} has not asked for an address in this boot"
        if not window.given:
            window.given = mac
            return ""
        if window.given == mac and window.anew and window.again < AGAIN_AT_MOST:
            window.anew = False
            window.again = window.again + 1
            return ""
        window.open = False
        window.spoiled = (
            "the boot script was asked for too often: the machine starts anew again and again"
            if window.anew
            else "the boot script was asked for twice, and the machine did not begin anew: the "
            "first answer was broken off on its way, or another has its address"
        )
        window.over.set()
        return window.spoiled

    def spoil(self, node: str, why: str, now: float, hint: str) -> None:
        """The present boot of a node cannot come to anything: it ends."""
        if (window := self.armed(node, now)) is not None:
            window.open = False
            window.spoiled = why
            window.hint = hint
            window.over.set()

    def doubts(self, node: str, why: str, now: float) -> None:
        """Why the present boot of a node will not do, as it seems; "" takes that back."""
        if (window := self.armed(node, now)) is not None:
            window.doubt = why

    def unanswered(self, node: str, now: float) -> float:
        """For how many seconds a node has asked by DHCP, and nothing has come of it; 0 if it has
        not asked, went on, or it is known why not."""
        window = self.by_node.get(node)
        since = now
        for seen in reversed(window.steps if window is not None and not window.doubt else ()):
            if seen.step not in (Step.DISCOVER, Step.OFFER):
                break
            since = seen.at
        return now - since

    def disputed(self, node: str, mac: str, now: float) -> bool:
        """Whether who asks for a script by this MAC address had been on the way to it, while
        another has joined with it."""
        window = self.by_node.get(node)
        return (
            window is not None
            and window.joined
            and bool(window.given)
            and mac in window.asked
            and now < window.until
        )

    def record(
        self, node: str, step: Step, now: float, data: Mapping[str, Any], *, done: bool = True
    ) -> None:
        """Adds a step to the node's present boot; outside any boot it is dropped."""
        if (window := self.by_node.get(node)) is not None:
            window.steps.append(StepSeen(step, now, done, dict(data)))

    def moves(self, node: str, now: float) -> None:
        """A transfer to the node gets on."""
        if (window := self.by_node.get(node)) is not None:
            window.moved = now

    def deadline(
        self, node: str, started: float, timeout: float, step_s: float = 0.0, most_s: float = 0.0
    ) -> float:
        """Until when a wait that began at `started` goes on: `timeout` until the firmware is seen,
        then `step_s` from the last step, and `most_s` at most, as the engine's own deadline does.
        Where these are not given, each step prolongs it."""
        window = self.by_node.get(node)
        done = [seen.at for seen in window.steps if seen.done] if window is not None else []
        if window is not None and done:
            done.append(max(done[-1], window.moved))
        if not done:
            return started + timeout
        if step_s:
            return min(started + most_s, done[-1] + step_s)
        return min(
            started + _PROLONGED_AT_MOST * timeout,
            max(started + timeout, done[-1] + _STEP_PROLONGS_S),
        )

    def why_stalled(self, node: str, waited: float, now: float) -> str:
        """The last step that was seen and what is missing since, as in "kernel sent 95 s ago,
        ..."."""
        window = self.by_node.get(node)
        if window is None or not window.steps:
            return f"no {self.first} seen in {waited:.0f} s"
        last = window.steps[-1]
        age = f"{max(0.0, now - last.at):.0f} s ago"
        doubt, missing = (
            (f" ({window.doubt})", last.step.missing) if window.doubt else ("", last.missing)
        )
        if not last.done:
            return f"{last.text} {age}, its transfer never ended{doubt}"
        return f"{last.step.label} {age}, {missing}{doubt}"

    def came_to(self, node: str) -> str:
        """The last that was seen of the node's present boot."""
        window = self.by_node.get(node)
        return window.steps[-1].text if window is not None and window.steps else "power-on"

    def report(self, node: str, now: float) -> dict[str, Any]:
        """The node's present boot, JSON-ready: whether it is armed, for how long, and its steps
        with their ages in seconds."""
        window = self.by_node.get(node)
        armed = self.armed(node, now)
        return {
            "armed": armed is not None,
            "left_s": round(armed.until - now, 3) if armed else 0.0,
            "opened_s_ago": round(now - window.opened, 3) if window else None,
            "steps": [
                {
                    "kind": s.step.kind.name
                    if s.done
                    else s.step.kind.name.replace("-sent", "-started"),
                    "text": s.text,
                    "done": s.done,
                    "age_s": round(now - s.at, 3),
                    "data": dict(s.data),
                }
                for s in (window.steps if window else ())
            ],
        }
