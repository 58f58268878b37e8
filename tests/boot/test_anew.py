"""A machine that begins anew in the middle of its boot, by the packets that it sends."""

from __future__ import annotations

import pytest

from layercake.moduleapi.service import FakeLink
from pxe.packets.dhcp import MessageType
from pxe.state import BootState
from tests.boot.test_dhcp_decision import (
    HTTP_UEFI,
    IPXE,
    NODE,
    PXE_BIOS,
    PXE_UEFI,
    arm,
    ask,
    packet,
)
from tests.support.clock import FakeClock

MAC = "52:54:00:00:01:01"


def dhcp(state: BootState, options: dict[int, bytes], kind: int = MessageType.DISCOVER) -> None:
    """A client asks, is answered, and what is to be told is told."""
    decision = ask(state, packet(kind, options))
    state.recorder.answered(decision.notes, lambda: None, "DHCP", "br0")


def script(state: BootState) -> str:
    """Asks for the script; why it is not given."""
    window = state.windows.armed(NODE, state.clock())
    assert window is not None
    return state.windows.hand_out(window, MAC)


@pytest.mark.parametrize(
    "firmware", [[IPXE], [PXE_BIOS, IPXE], [PXE_UEFI, IPXE], [HTTP_UEFI, IPXE], [PXE_UEFI]]
)
def test_firmware_that_asks_once_more_has_begun_anew(
    state: BootState, link: FakeLink, clock: FakeClock, firmware: list[dict[int, bytes]]
) -> None:
    arm(state)
    for boot in range(2):
        for client in firmware:
            dhcp(state, client)
            dhcp(state, client)  # its first packet found nobody, or the answer did not find it
            clock.now += 2
        assert script(state) == "", f"boot {boot}"
    anew = [event for event in link.events if event[1] == "boot.begun-anew"]
    assert len(anew) == 1 and MAC in anew[0][2] and anew[0][3] == "warning"


def test_a_running_system_or_a_request_alone_is_no_beginning(
    state: BootState, link: FakeLink
) -> None:
    arm(state)
    dhcp(state, IPXE)
    assert script(state) == ""
    dhcp(state, {})
    dhcp(state, IPXE, MessageType.REQUEST)
    assert "boot.begun-anew" not in [event[1] for event in link.events]
    assert "did not begin anew" in script(state)


def test_an_offer_that_could_not_be_sent_is_no_beginning(state: BootState) -> None:
    def fails() -> None:
        raise OSError(100, "Network is down")

    arm(state)
    dhcp(state, IPXE)
    assert script(state) == ""
    decision = ask(state, packet(MessageType.DISCOVER, IPXE))
    state.recorder.answered(decision.notes, fails, "DHCP", "br0")
    assert "did not begin anew" in script(state)


def test_the_next_boot_has_a_window_of_its_own(state: BootState, link: FakeLink) -> None:
    arm(state)
    dhcp(state, IPXE)
    assert script(state) == ""
    state.windows.disarm(NODE)
    state.windows.arm(NODE, "another_token.43", 100.0, state.clock())
    dhcp(state, IPXE)
    assert script(state) == "" and "boot.begun-anew" not in [event[1] for event in link.events]
