"""The faults of vm-testbed/plantedfaults.py, all at once, and an outage beside them: each is on the
first screen, with its nodes, its cause, and a next step that can be typed. What modules and agents
say of each is said in the words of the code that says it; that virtual machines come to the same is
what plantedfaults.py itself shows."""

from __future__ import annotations

import asyncio
import re
import shlex
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from plantedfaults import FAULTS, Fault
from playwright.async_api import Browser

from imageapi import events as images
from imageapi.node.attach.fetch import fetch
from imageapi.spec.container import ContainerSpec
from imageapi.spec.image import ImageSpec
from imageapi.spec.state import LastError
from layercake.agents.reports import apply_report
from layercake.features.consoles.operations import TROUBLES
from layercake.inventory.ranges import names_of
from layercake.kraken.converge import Discovered, Failed
from layercake.kraken.errors import LayercakeError, OperationFailed
from layercake.modules.manager import ServiceState
from powerman.driver import Taken, login_refused, unreachable
from pxe import events as boots
from tests.docs.pictures import typed
from tests.docs.test_commands import parse
from tests.support import first_screen
from tests.support.dashboard import Site, inventory, looking, serving

NODES, POD = 24, [f"n{number}" for number in range(20, 24)]
NAMES = {fault.name: f"n{number:02d}" for number, fault in enumerate(FAULTS)}
HELLO_S = 5
pages = pytest.mark.asyncio(loop_scope="session")


def said_of_bmc(error: LayercakeError) -> str:
    """What a module's failed step is called by."""
    return f"{error.message} (hint: {error.hint})"


GIVEN_UP = {
    "dead BMC": said_of_bmc(unreachable("10.2.0.0:623", "no answer in 5 s")),
    "wrong password of its BMC": said_of_bmc(login_refused("10.2.0.6:623", "root")),
}


def too_large(place: Path) -> str:
    """What a node says of an image that is larger than its memory."""
    spec = ImageSpec(
        "large", "blake2b:" + "0" * 64, 1 << 60, "http://192.0.2.1/large", ContainerSpec()
    )

    def opened(url: str, offset: int) -> Any:
        raise AssertionError("nothing is fetched")

    with pytest.raises(OperationFailed) as caught:
        fetch(spec, place, opened)
    return caught.value.message


class Plants:
    """What a test does to a site so that each fault is there."""

    def __init__(self, site: Site, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self._site, self._world, self._patch = site, site.world, patch
        self._folder = folder
        self.well = [
            f"n{number:02d}"
            for number in range(NODES)
            if f"n{number:02d}" not in NAMES.values() and f"n{number}" not in POD
        ]

    async def all(self) -> None:
        """All of them; those that need time come first."""
        self._site.up(*self.well, *POD)
        await self._time_passes(self._all_given_up)
        for name in ("wrong MAC address", "cable pulled", "no driver for its card"):
            self._is(NAMES[name], power="ON", boot="WAIT")
        self._boot_event("no driver for its card", boots.NO_DRIVER.name)
        self._boot_event("rogue DHCP server", boots.OTHER_SERVER.name)
        crashed = "its program exited with status 1"
        self._image("image that ends at once", LastError.MAX_DEATHS, crashed)
        large = too_large(self._folder)
        self._image("image larger than its memory", LastError.MAX_ATTEMPTS, large)
        await self._world.ops.care.freeze(NAMES["frozen node"], "a planted fault", "ann")
        held = self._world.node(NAMES["hung console"]).node.id
        taken = Taken("cannot open the console at 10.2.0.8: another session has it", by="another")

        async def answer(name: str, params: Any) -> Any:
            assert name == TROUBLES
            return {"logs": "", "lost": [[held, taken.message]]}

        self._world.answer_calls(self._patch, answer)

    async def _time_passes(self, done: Callable[[], bool]) -> None:
        """Until something is so; the pod is silent meanwhile."""
        for _ in range(400):
            for name, why in GIVEN_UP.items():
                record = self._world.node(NAMES[name])
                if (active := record.machine.active) is not None:
                    self._world.head.engine.post(
                        record, Failed(active.mutation, active.attempt, why)
                    )
            self._world.tick(HELLO_S)
            self._site.up(*self.well)
            if done():
                return
            await asyncio.sleep(0)
        raise AssertionError("they are still tried")

    def _all_given_up(self) -> bool:
        return all(
            self._world.node(NAMES[name]).machine.quarantine is not None for name in GIVEN_UP
        )

    def _is(self, name: str, **values: str) -> None:
        self._world.head.engine.post(self._world.node(name), Discovered(values, "it is seen"))

    def _boot_event(self, fault: str, kind: str) -> None:
        node = self._world.node(NAMES[fault]).node.id
        text = "10.1.0.5 is taken from DHCP server 10.99.0.250, which is not expected here"
        self._world.head.listener.event("pxe", node, kind, "warning", text, {})

    def _image(self, fault: str, last: LastError, error: str) -> None:
        """A node says that it has given up on its image."""
        self._site.up(NAMES[fault])
        container = {
            "name": "web",
            "digest": "",
            "state": "FATAL",
            "health": "",
            "pid": 0,
            "started_s": None,
            "retries": 3,
            "last_error": last.name,
            "error": error,
            "retry_in_s": None,
        }
        record = self._world.node(NAMES[fault])
        apply_report(record, images.CONTAINERS, "it says", {"containers": [container]})
        self._world.send(self._world.hello(NAMES[fault], image="FATAL"))


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    folder = tmp_path_factory.mktemp("faults")
    with pytest.MonkeyPatch.context() as patch:
        async with serving(inventory(NODES, racks=6)) as found:
            for module in found.world.head.modules.services.status.values():
                module.state = ServiceState.RUNNING
            await Plants(found, folder, patch).all()
            yield found


def shown(text: str, nodes: str, fault: Fault) -> bool:
    """Whether something that is shown is about a fault."""
    return NAMES[fault.name] in names_of(nodes) and re.search(fault.said, text) is not None


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def explained(site: Site) -> list[str]:
    """The lines of `layercake explain` on a terminal."""
    socket = Path(site.world.settings.socket)
    lines = await asyncio.to_thread(typed, socket, "explain", 100)
    return [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in lines]


def causes(lines: list[str]) -> list[tuple[str, str, str]]:
    """(what is wrong, nodes, next) of what `layercake explain` prints."""
    found = []
    for at, line in enumerate(lines):
        if line.startswith("  nodes:"):
            nodes = line.removeprefix("  nodes:").strip().partition(";")[0]
            found.append((lines[at - 1], nodes, lines[at + 1]))
    return found


@pages
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
async def test_explain_names_it(explained: list[str], fault: Fault) -> None:
    its = [next_ for text, nodes, next_ in causes(explained) if shown(text, nodes, fault)]
    assert len(its) == 1, "\n".join(explained)
    for command in re.findall(r"`([^`]*)`", its[0]):
        program, *words = shlex.split(command)
        assert program == "layercake"
        parse(words)
    assert "`layercake" in its[0]


@pages
async def test_what_needs_a_person_is_first_and_all_of_it_fits(explained: list[str]) -> None:
    assert "an outage of domain rack5: 4 of 4 nodes" in explained[0]
    status = [text.split()[1] for text, _, _ in causes(explained)]
    assert status.index("held") > max(
        at for at, word in enumerate(status) if word in ("silent", "quarantined")
    )
    assert len(explained) <= 40
    assert not re.search(r"\b(ADDRESS|N s|NODE)\b|and \d+ more", "\n".join(explained))


@pages
async def test_the_dashboards_first_screen_names_all(browser: Browser, site: Site) -> None:
    async with looking(browser, site) as look:
        await look.sign_in(await site.token("ann", "operator"))
        await look.page.wait_for_selector(".cause.beside")
        cards = await first_screen.sets(look.page)
        missing = [
            fault.name
            for fault in FAULTS
            if not any(shown(text, nodes, fault) for text, nodes in cards if nodes)
        ]
        assert missing == []
        assert not [text for text, _ in cards if "/v1/session" in text], "what the page itself asks"
        assert await first_screen.height(look.page) <= 3000
        assert await first_screen.faults(look.page) == []
        for step in await look.page.locator(".cause .next code").all_text_contents():
            parse(shlex.split(step)[1:])
        assert look.complaints() == []
