"""What a node does with drivers that its boot profile does not have, also with answers that are not
as agreed; and when its agent asks for them."""

from __future__ import annotations

import errno
import json
import os
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from layercake.kraken.events import EventKind, Severity
from minos import events
from minos.agent import drivers
from minos.agent.drivers import Drivers
from minos.agent.hardware import Came, Hardware
from minos.agent.state import Config, Session, parse_join
from tests.build.test_single_modules import BOCHS, NVME, TG3, WATCHDOG, digest
from tests.support.fake_head import FakeHead


class Node:
    """A node that has joined, with a pretended sysfs and a kernel that takes modules. `binds` says
    which device a module takes."""

    def __init__(self, directory: Path) -> None:
        self.head = FakeHead(directory / "pki", str(uuid.uuid4()))
        self.sys, self.run, self.directory = directory / "sys", directory / "run", directory
        for place in (
            self.sys / "bus/pci/devices",
            self.sys / "module",
            self.run,
            directory / "modules",
        ):
            place.mkdir(parents=True)
        (directory / "cmdline").write_text("quiet")
        self.config = Config(
            self.head.node,
            "n1",
            "",
            self.head.url,
            self.head.sync,
            "",
            self.head.authority,
            self.run,
            "b",
            "v",
        )
        _, answer = self.head.join({"token": "good-token", "node": self.head.node})
        self.session: Session = parse_join(answer)
        self.events: list[tuple[EventKind, str, dict[str, Any]]] = []
        self.loaded: list[bytes] = []
        self.fails: dict[bytes, int] = {}
        self.binds: dict[bytes, str] = {}
        self.slept: list[float] = []
        self.back: Callable[[], None] = lambda: None

    def event(
        self, kind: EventKind, text: str, severity: Severity | None = None, **data: Any
    ) -> None:
        self.events.append((kind, text, data))

    def texts(self, kind: EventKind) -> list[str]:
        return [text for found, text, _ in self.events if found is kind]

    def device(self, slot: str, alias: str) -> dict[str, list[str]]:
        place = self.sys / "bus/pci/devices" / slot
        place.mkdir()
        (place / "modalias").write_text(f"{alias}\n")
        return {alias: [f"pci/{slot}"]}

    def load(self, path: str) -> None:
        data = Path(path).read_bytes()
        if data in self.fails:
            raise OSError(self.fails[data], os.strerror(self.fails[data]), path)
        self.loaded.append(data)
        if data in self.binds:
            (self.sys / "bus" / self.binds[data].replace("/", "/devices/") / "driver").symlink_to(
                f"../../drivers/{data.decode()}"
            )

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.back()

    def drivers(self) -> Drivers:
        return Drivers(
            self.config,
            lambda: self.session,
            self.event,
            sys=str(self.sys),
            modules=str(self.directory / "modules"),
            firmware=str(self.directory / "firmware"),
            command_line=str(self.directory / "cmdline"),
            load=self.load,
            sleep=self.sleep,
        )

    def has(self, devices: dict[str, list[str]], **modules: dict[str, Any]) -> None:
        """What the head answers: each module's file holds its name."""
        for name in modules:
            self.head.files.setdefault(f"modules/{name}", name.encode())
        described = {
            name: {"digest": digest(name.encode()), "size": len(name), **its}
            for name, its in modules.items()
        }
        self.head.drivers = lambda body: (
            200,
            {
                "devices": {a: n for a, n in devices.items() if a in body["devices"]},
                "modules": described,
            },
        )


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    found = Node(tmp_path)
    try:
        yield found
    finally:
        found.head.close()


def test_a_driver_is_fetched_with_what_it_needs_and_told(node: Node) -> None:
    node.has({WATCHDOG: ["esb"]}, esb={"needs": ["dog", "esb"]}, dog={})
    node.binds[b"esb"] = "pci/0000:00:04.0"
    assert node.drivers().get(node.device("0000:00:04.0", WATCHDOG))
    assert node.loaded == [b"dog", b"esb"]
    ((kind, text, data),) = node.events
    assert (
        kind is events.DRIVERS
        and text == "drivers were fetched from the head: esb for pci/0000:00:04.0"
    )
    assert data["drivers"] == {"esb": ["pci/0000:00:04.0"]} and data["fetched"] == {
        "module dog": 3,
        "module esb": 3,
    }
    assert not list(node.run.iterdir()), "what the kernel has taken need not be kept"


def test_what_is_here_already_is_not_fetched(node: Node) -> None:
    node.has(
        {WATCHDOG: ["esb"], NVME: ["there"]},
        esb={"needs": ["dog", "cat", "esb"]},
        dog={},
        cat={},
        there={},
    )
    for name in ("dog", "there"):
        (node.sys / "module" / name).mkdir()
    (node.directory / "modules/cat.ko").write_bytes(b"own cat")
    node.head.files.pop("modules/cat")
    node.drivers().get(
        {**node.device("0000:00:04.0", WATCHDOG), **node.device("0000:00:05.0", NVME)}
    )
    assert node.loaded == [b"own cat", b"esb"]
    assert node.texts(events.DRIVERS) == [
        "drivers were fetched from the head: esb, which does not take pci/0000:00:04.0"
    ]


def test_of_two_drivers_for_a_device_the_one_that_has_it_is_told(node: Node) -> None:
    node.has({WATCHDOG: ["esb", "other"]}, esb={}, other={})
    devices = node.device("0000:00:04.0", WATCHDOG)
    driver = node.sys / "bus/pci/drivers/esb"
    driver.mkdir(parents=True)
    (driver / "module").symlink_to("../../../../module/esb")
    node.binds[b"esb"] = "pci/0000:00:04.0"
    assert node.drivers().get(devices) and node.loaded == [b"esb", b"other"]
    (text,) = node.texts(events.DRIVERS)
    assert text.endswith(": esb for pci/0000:00:04.0, other, which does not take pci/0000:00:04.0")


def test_firmware_is_there_before_the_module(node: Node) -> None:
    node.head.files["firmware/tigon/tg%203.bin"] = b"microcode"
    node.has(
        {TG3: ["tg3"]},
        tg3={"firmware": {"tigon/tg 3.bin": {"digest": digest(b"microcode"), "size": 9}}},
    )
    node.drivers().get(node.device("0000:00:04.0", TG3))
    assert (
        node.directory / "firmware/tigon/tg 3.bin"
    ).read_bytes() == b"microcode" and node.loaded == [b"tg3"]


@pytest.mark.parametrize("sent", [b"esc", b"es", b"", b"esb ", b"x" * 1_000_000])
def test_what_is_not_as_described_never_gets_to_the_kernel(node: Node, sent: bytes) -> None:
    node.has({WATCHDOG: ["esb"]}, esb={})
    node.head.files["modules/esb"] = sent
    assert not node.drivers().get(node.device("0000:00:04.0", WATCHDOG))
    (text,) = node.texts(events.DRIVER_FAILED)
    assert not node.loaded and text.startswith(
        "cannot load driver esb for pci/0000:00:04.0: module esb came as "
    )


def test_firmware_that_is_not_as_described_is_not_kept_and_its_module_not_loaded(
    node: Node,
) -> None:
    node.head.files["firmware/a.bin"] = b"other"
    node.has({TG3: ["tg3"]}, tg3={"firmware": {"a.bin": {"digest": digest(b"micro"), "size": 5}}})
    node.drivers().get(node.device("0000:00:04.0", TG3))
    assert (
        not node.loaded
        and not (node.directory / "firmware/a.bin").exists()
        and node.texts(events.DRIVER_FAILED)
    )


@pytest.mark.parametrize(
    ("number", "why"),
    [
        (errno.ENOEXEC, "it is damaged, or of another kernel"),
        (errno.EKEYREJECTED, "its signature is not one that the kernel trusts"),
        (errno.EPERM, "the kernel is told to refuse it"),
        (errno.ENOENT, "the kernel lacks a symbol that it needs"),
    ],
)
def test_what_the_kernel_refuses_is_told_and_the_others_are_loaded(
    node: Node, number: int, why: str
) -> None:
    node.has({WATCHDOG: ["esb"], TG3: ["tg3"]}, esb={}, tg3={})
    node.fails[b"tg3"] = number
    node.drivers().get(
        {**node.device("0000:00:04.0", WATCHDOG), **node.device("0000:00:05.0", TG3)}
    )
    (text,) = node.texts(events.DRIVER_FAILED)
    assert text.startswith(
        f"cannot load driver tg3 for pci/0000:00:05.0: {why}"
    ) and node.loaded == [b"esb"]


def test_what_fails_before_a_module_is_named_if_the_module_cannot_do_without(node: Node) -> None:
    node.has(
        {WATCHDOG: ["esb"], TG3: ["tg3"]},
        esb={"needs": ["dog", "esb"]},
        tg3={"needs": ["dog", "tg3"]},
        dog={},
    )
    node.head.files.pop("modules/dog")
    node.fails[b"esb"] = errno.ENOENT
    node.drivers().get(
        {**node.device("0000:00:04.0", WATCHDOG), **node.device("0000:00:05.0", TG3)}
    )
    (text,) = node.texts(events.DRIVER_FAILED)
    assert node.loaded == [b"tg3"]
    assert text.endswith(
        "it needs (dmesg names it); before it, dog: the head answers 400 for module dog"
    )


def test_a_driver_that_finds_no_device_is_no_failure(node: Node) -> None:
    node.has({WATCHDOG: ["esb"]}, esb={})
    node.fails[b"esb"] = errno.ENODEV
    assert not node.drivers().get(node.device("0000:00:04.0", WATCHDOG))
    assert (
        not node.texts(events.DRIVER_FAILED)
        and "which does not take" in node.texts(events.DRIVERS)[0]
        and not node.slept
    )


@pytest.mark.parametrize("line", ["quiet modprobe.blacklist=a,es-b", "module_blacklist=es_b ro"])
def test_what_the_kernels_arguments_and_the_head_leave_out_is_said(node: Node, line: str) -> None:
    (node.directory / "cmdline").write_text(line)
    node.has({WATCHDOG: ["es_b"], BOCHS: ["gpu"]}, es_b={}, gpu={"held": "nobody looks"})
    node.drivers().get(
        {**node.device("0000:00:04.0", WATCHDOG), **node.device("0000:00:05.0", BOCHS)}
    )
    ((kind, text, _),) = node.events
    assert kind is events.DRIVERS_LEFT and not node.loaded
    assert text == (
        "gpu for pci/0000:00:05.0: nobody looks; "
        "es_b for pci/0000:00:04.0: the kernel's arguments say that no device shall get it"
    )


GOOD = {"digest": digest(b"esb"), "size": 3}


@pytest.mark.parametrize(
    "said",
    [
        None,
        [],
        3,
        {},
        {"devices": {}},
        {"devices": [], "modules": {}},
        {"devices": {WATCHDOG: 3}, "modules": {}},
        {"devices": {WATCHDOG: ["esb"]}, "modules": {}},
        {"devices": {}, "modules": {"../esb": GOOD}},
        {"devices": {}, "modules": {"esb": {**GOOD, "size": 0}}},
        {"devices": {}, "modules": {"esb": {**GOOD, "size": 1 << 40}}},
        {"devices": {}, "modules": {"esb": {**GOOD, "size": True}}},
        {"devices": {}, "modules": {"esb": {**GOOD, "digest": "x"}}},
        {"devices": {}, "modules": {"esb": {**GOOD, "needs": ["dog", "esb"]}}},
        {"devices": {}, "modules": {"esb": {"size": 3}}},
        {"devices": {}, "modules": {"esb": {**GOOD, "needs": ["esb", "dog"]}, "dog": GOOD}},
        {"devices": {}, "modules": {"esb": None}},
        *(
            {"devices": {}, "modules": {"esb": {**GOOD, "firmware": {name: GOOD}}}}
            for name in ("../x", "/etc/passwd", "a/../../b", "", "a//b", "a\nb", "..", "a/.", "é")
        ),
    ],
)
def test_an_answer_that_is_not_as_agreed_is_told_and_does_nothing(node: Node, said: Any) -> None:
    node.head.drivers = lambda body: (200, said)
    assert not node.drivers().get(node.device("0000:00:04.0", WATCHDOG))
    (text,) = node.texts(events.DRIVER_FAILED)
    assert "the head's answer is not as agreed" in text and not node.loaded


def test_a_refusal_is_told_with_its_reason(node: Node) -> None:
    node.head.drivers = lambda body: (403, {"error": "cannot use boot set x: it is not signed"})
    node.drivers().get(node.device("0000:00:04.0", WATCHDOG))
    (text,) = node.texts(events.DRIVER_FAILED)
    assert text == (
        "cannot look for drivers that the boot profile does not have: the head answers 403: "
        "cannot use boot set x: it is not signed"
    )


def test_with_an_older_head_all_is_as_it_was(node: Node) -> None:
    assert not node.drivers().get(node.device("0000:00:04.0", WATCHDOG)) and not node.events


def test_a_head_that_is_away_is_waited_for(node: Node) -> None:
    node.head.silent = True  # it answers 503
    node.has({WATCHDOG: ["esb"]}, esb={})

    def back() -> None:
        node.head.silent = len(node.slept) < 8

    node.back = back
    node.drivers().get(node.device("0000:00:04.0", WATCHDOG))
    assert node.loaded == [b"esb"] and node.slept[:8] == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0]


def test_many_devices_are_asked_about_in_parts(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drivers, "AT_ONCE", 2)
    asked: list[list[str]] = []

    def answer(body: dict[str, Any]) -> tuple[int, object]:
        asked.append(body["devices"])
        return 200, {"devices": {}, "modules": {}}

    node.head.drivers = answer
    node.drivers().get({name: [] for name in ("e", "d", "c", "b", "a", "x" * 1025)})
    assert asked == [["a", "b"], ["c", "d"], ["e"]]


# ---- what the agent asks, and when
# -------------------------------------------------------------------------------------


def write(
    node: Node, undriven: dict[str, list[str]], cards: tuple[dict[str, Any], ...] = ()
) -> None:
    file = node.run / "hardware.new"
    file.write_text(
        json.dumps({"cards": cards, "modules": {}, "cold_plug_s": 1.0, "undriven": undriven})
    )
    file.replace(node.run / "hardware.json")


def test_a_device_is_asked_about_once_and_a_later_one_too(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[dict[str, list[str]]] = []

    class Asked(Drivers):
        """Notes what is asked."""

        def get(self, devices: Any) -> bool:
            asked.append(dict(devices))
            return WATCHDOG in devices

    monkeypatch.setattr(drivers, "Drivers", Asked)
    posted: list[object] = []
    card = {
        "slot": "0000:00:09.0",
        "id": "8086:1",
        "driver": "",
        "absent": ["e1000e"],
        "refused": [],
    }
    hardware = Hardware(node.config, node.event, posted.append, sys=str(node.sys))

    def look() -> None:
        """One look, and the end of the thread that it has begun."""
        hardware.poll(node.session)
        if hardware.asking is not None:
            assert not node.texts(events.NO_DRIVER), "not before the head was asked"
            hardware.asking.join()
            hardware.poll(node.session)

    look()
    assert not asked and not node.events, "nothing was written yet"
    write(node, {WATCHDOG: ["pci/0000:00:04.0"]}, (card,))
    hardware.poll(node.session, ask=False)
    assert hardware.asking is None, "the images go first"
    look()
    assert (
        asked == [{WATCHDOG: ["pci/0000:00:04.0"]}]
        and len(posted) == 1
        and isinstance(posted[0], Came)
    )
    assert "module e1000e is not in this boot profile" in node.texts(events.NO_DRIVER)[0]
    node.events.clear()
    write(node, {WATCHDOG: ["pci/0000:00:04.0"], TG3: ["pci/0000:00:05.0"]}, (card,))
    look()
    look()
    assert (
        asked[1:] == [{TG3: ["pci/0000:00:05.0"]}]
        and len(posted) == 1
        and not node.texts(events.NO_DRIVER)
    )
    hardware.head_restarted()
    look()
    assert len(asked) == 3 and asked[2].keys() == {WATCHDOG, TG3}, (
        "a newer head may have what the older had not"
    )


def test_what_an_older_minos_has_written_is_read(node: Node) -> None:
    (node.run / "hardware.json").write_text(
        json.dumps({"cards": [], "modules": {}, "cold_plug_s": 1.0})
    )
    hardware = Hardware(node.config, node.event, lambda message: None, sys=str(node.sys))
    hardware.poll(node.session)
    assert hardware.asking is None and [kind for kind, _, _ in node.events] == [events.HARDWARE]
