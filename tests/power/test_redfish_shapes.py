"""Redfish services of many shapes, manners and moods, by the corpus: what the driver and the whole
service make of each."""

from __future__ import annotations

import contextlib
import copy
import json
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from typing import Any

import pytest

from layercake.kraken.errors import LayercakeError, OperationFailed
from layercake.moduleapi.service import FakeLink, MutationRequest
from powerman.driver import LoginRefused, NotNow, PowerState, Sensor, Unsupported
from powerman.inspect.scan import by_redfish
from powerman.redfish.connection import RedfishConnection, Response, tag_forms
from powerman.redfish.driver import RedfishDriver
from powerman.redfish.web import Web
from powerman.service import PowerService
from powerman.settings import BmcSpec, PowerSettings
from tests.support.corpusredfish import CORPUS, PASSWORD, ROOT, USER, CorpusRedfish
from tests.support.site import site

SHAPES = sorted(path.stem for path in CORPUS.glob("*.json"))


def record(url: str, **bmc: Any) -> dict[str, Any]:
    """The node n1 at a BMC."""
    login = {"username": USER, "password": PASSWORD, "timeout_s": 2.0}
    return {
        "name": "n1",
        "firmware": "uefi",
        "bmc": {"driver": "redfish", "address": url, **login, **bmc},
    }


@contextlib.asynccontextmanager
async def driver_of(bmc: CorpusRedfish, **facts: Any) -> AsyncIterator[RedfishDriver]:
    """A driver for a BMC."""
    web = Web()
    driver = RedfishDriver(BmcSpec.from_record("n1", record(await bmc.open(), **facts)), web)
    try:
        yield driver
    finally:
        await driver.close()
        await web.close()
        await bmc.close()


@contextlib.asynccontextmanager
async def service_of(bmc: CorpusRedfish) -> AsyncIterator[tuple[PowerService, FakeLink]]:
    """The whole service, with n1 at a BMC."""
    service = PowerService(polls=False)
    link = FakeLink()
    await service.start(link, site(), PowerSettings())
    try:
        await service.node_changed("n1", record(await bmc.open()))
        yield service, link
    finally:
        await service.stop()
        await bmc.close()


async def mutate(service: PowerService, name: str, timeout: float = 30.0) -> dict[str, str]:
    """One attempt."""
    return dict(await service.mutate(MutationRequest(1, "n1", name, 1, timeout, {})))


# -- one shape alone


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("status", [301, 302, 307, 308])
@pytest.mark.parametrize("slash", ["with", "without"])
async def test_paths_may_want_a_slash_or_none(shape: str, status: int, slash: str) -> None:
    bmc = CorpusRedfish(shape, slash=slash, redirect=status, absolute=status == 301)
    async with driver_of(bmc) as driver:
        assert await driver.state() is PowerState.OFF
        await driver.boot_network()
        assert await driver.boots_as_told()
        await driver.on()
        assert await driver.state() is PowerState.ON
        before = len(bmc.requests)
        await driver.state()
        assert len(bmc.requests) == before + 1, "where a path has moved to is kept"


@pytest.mark.parametrize("slash", ["with", "without"])
async def test_a_scan_finds_each(slash: str) -> None:
    bmc = CorpusRedfish(slash=slash)
    port = int((await bmc.open()).rpartition(":")[2])
    web = Web()
    try:
        found = await by_redfish("127.0.0.1", web.session, port)
    finally:
        await web.close()
        await bmc.close()
    assert found is not None and found.version == "Redfish 1.15.0"


@pytest.mark.parametrize(
    "target",
    ["http://192.0.2.9/redfish/v1/", "https://127.0.0.1/redfish/v1/", "/login.html", "//x"],
)
async def test_no_redirect_leads_the_password_elsewhere(target: str) -> None:
    bmc = CorpusRedfish(elsewhere=target)
    async with driver_of(bmc) as driver:
        with pytest.raises(OperationFailed, match="HTTP 308") as caught:
            await driver.state()
        assert caught.value.hint
    assert len(bmc.requests) == 1


async def test_a_redirect_without_an_end_is_a_failure() -> None:
    bmc = CorpusRedfish(elsewhere="/redfish/v1/Systems/")
    async with driver_of(bmc) as driver:
        with pytest.raises(OperationFailed):
            await driver.state()
    assert len(bmc.requests) < 12


@pytest.mark.parametrize(
    ("shape", "sensors"),
    [
        (
            "subsystems",
            [
                Sensor("Intake", 24.8, "°C", "unknown"),
                Sensor("CPU 1", 61.0, "°C", "unknown"),
                Sensor("Fan Bay 1", 2200.0, "RPM", "ok"),
                Sensor("Fan Bay 2", 0.0, "%", "critical"),
                Sensor("Power draw", 374.0, "W", "unknown"),
                Sensor("Chassis temperature", 24.8, "°C", "unknown"),
                Sensor("Supply 1", 187.5, "W", "ok"),
            ],
        ),
        (
            "sensors-only",
            [
                Sensor("inlet", 22.125, "°C", "ok"),
                Sensor("fan 1", 5400.0, "RPM", "warning"),
                Sensor("Power draw", 310.0, "W", "unknown"),
            ],
        ),
        (
            "classic",
            [
                Sensor("01-Inlet Ambient", 19.0, "°C", "ok"),
                Sensor("Fan 1", 14.0, "Percent", "ok"),
                Sensor("Power draw", 122.0, "W", "unknown"),
            ],
        ),
    ],
)
async def test_sensors_are_found_in_each_shape(shape: str, sensors: list[Sensor]) -> None:
    async with driver_of(CorpusRedfish(shape)) as driver:
        assert await driver.sensors() == sensors


async def test_all_chassis_that_fail_are_a_failure() -> None:
    bmc = CorpusRedfish("classic")
    bmc.resources[f"{ROOT}/Chassis/1"] = {"#status": 500}
    async with driver_of(bmc) as driver:
        with pytest.raises(NotNow):
            await driver.sensors()


async def test_the_log_of_the_manager_is_read_in_all_its_pages() -> None:
    async with driver_of(CorpusRedfish("classic")) as driver:
        entries = await driver.event_log()
    assert [entry.text for entry in entries] == [f"entry {n}" for n in range(120)]
    assert {entry.severity for entry in entries} == {"warning", "critical"}


async def test_pages_that_lead_in_a_circle_end() -> None:
    bmc = CorpusRedfish("classic")
    entries = f"{ROOT}/Managers/1/LogServices/Sel/Entries"
    bmc.resources[f"{entries}?$skip=100"]["Members@odata.nextLink"] = entries
    async with driver_of(bmc) as driver:
        assert len(await driver.event_log()) == 120


async def test_entries_that_are_only_links_are_read_one_by_one() -> None:
    bmc = CorpusRedfish("classic")
    entries = f"{ROOT}/Managers/1/LogServices/Sel/Entries"
    page = bmc.resources[entries]
    del page["Members@odata.nextLink"]
    for member in page["Members"]:
        bmc.resources[member["@odata.id"]] = dict(member)
    page["Members"] = [{"@odata.id": member["@odata.id"]} for member in page["Members"]]
    async with driver_of(bmc) as driver:
        assert [one.text for one in await driver.event_log()] == [f"entry {n}" for n in range(50)]


async def test_a_service_without_a_log_says_so() -> None:
    async with driver_of(CorpusRedfish("subsystems")) as driver:
        with pytest.raises(Unsupported, match="keeps none"):
            await driver.event_log()


async def test_reset_types_may_be_in_an_action_info() -> None:
    bmc = CorpusRedfish("sensors-only")
    async with driver_of(bmc) as driver:
        await driver.on()
    assert bmc.requests[-1][2] == {"ResetType": "ForceOn"}


# -- a refusal is not the end


@pytest.mark.parametrize("firmware_mode", ["Legacy", None, "UEFI"])
async def test_a_mode_that_cannot_be_written_keeps_no_machine_off(firmware_mode: Any) -> None:
    bmc = CorpusRedfish(refuses=frozenset({"BootSourceOverrideMode"}))
    bmc.system["Boot"]["BootSourceOverrideMode"] = firmware_mode
    async with service_of(bmc) as (service, link):
        assert await mutate(service, "power-on") == {"power": "ON"}
    assert bmc.system["Boot"]["BootSourceOverrideTarget"] == "Pxe"
    assert not [one for one in link.events if one[1] == "power.boot-device"]


async def test_boot_options_in_a_settings_resource_are_not_forgotten() -> None:
    bmc = CorpusRedfish()
    settings = f"{ROOT}/Systems/1/SD"
    bmc.system["@Redfish.Settings"] = {"SettingsObject": {"@odata.id": settings}}
    bmc.resources[settings] = {"Boot": copy.deepcopy(bmc.system["Boot"])}
    async with service_of(bmc) as (service, link):
        assert await mutate(service, "power-on") == {"power": "ON"}
    assert bmc.resources[settings]["Boot"]["BootSourceOverrideTarget"] == "Pxe"
    assert bmc.system["Boot"]["BootSourceOverrideTarget"] == "None"
    assert not [one for one in link.events if one[1] == "power.boot-device"]


@pytest.mark.parametrize("challenge", [True, False])
async def test_a_service_without_basic_is_used_by_a_session(challenge: bool) -> None:
    bmc = CorpusRedfish(login="session", challenge=challenge)
    async with driver_of(bmc) as driver:
        for _ in range(5):
            assert await driver.state() is PowerState.OFF
        assert bmc.refused_logins == 1 and len(bmc.tokens) == 1
        bmc.tokens.clear()  # it ends sessions that were idle
        assert await driver.state() is PowerState.OFF
    deleted = [path for method, path, _ in bmc.requests if method == "DELETE"]
    assert len(deleted) == 1, "sessions are few, so ours is given back"


@pytest.mark.parametrize(("login", "most"), [("basic", 1), ("session", 2)])
async def test_a_wrong_password_is_refused_as_seldom_as_can_be(login: str, most: int) -> None:
    bmc = CorpusRedfish(login=login)
    async with driver_of(bmc, password="wrong") as driver:
        for number in range(3):
            before = bmc.refused_logins
            with pytest.raises(LoginRefused):
                await driver.state()
            assert bmc.refused_logins - before <= (most if number == 0 else 1)


@pytest.mark.parametrize(
    ("facts", "takes"),
    [
        ({"body_tag": 'W/"7"'}, lambda tag: tag == 'W/"7"'),
        ({"body_tag": 'W/"7"'}, lambda tag: tag == '"7"'),
        ({"body_tag": '"7"'}, lambda tag: tag == 'W/"7"'),
        ({"tag": '"7"'}, lambda tag: tag == '"7"'),
        ({"tag": 'W/"7"'}, lambda tag: tag == '"7"'),
        ({"tag": '"8"', "body_tag": '"7"'}, lambda tag: tag == '"8"'),
        ({"tag": '"7"'}, lambda tag: tag is None),
        ({"tag": '"7"'}, lambda tag: tag == "*"),
        ({}, lambda tag: tag is None),
        ({}, lambda tag: tag == "*"),
    ],
)
async def test_the_entity_tag_goes_in_the_form_that_is_taken(
    facts: dict[str, str], takes: Callable[[str | None], bool]
) -> None:
    bmc = CorpusRedfish(takes=takes, **facts)  # type: ignore[arg-type]  # texts only
    async with driver_of(bmc) as driver:
        await driver.boot_network()
        bmc.tags_sent.clear()
        await driver.boot_network()
        assert len(bmc.tags_sent) == 1, "the form that it took is kept"


def test_forms_of_a_tag_are_tried_once_each() -> None:
    assert tag_forms('W/"1"', '"1"') == ['W/"1"', '"1"', "*", ""]
    assert tag_forms("", "") == ["", "*"]
    assert tag_forms("a\r\nX: y", "") == ["", "*"]


@pytest.mark.parametrize(
    "properties",
    [
        {"Image"},
        {"Image", "TransferProtocolType"},
        {"Image", "TransferProtocolType", "TransferMethod"},
        {"Image", "TransferProtocolType", "UserName", "Password"},
    ],
)
async def test_a_medium_goes_in_with_what_the_service_wants_to_hear(properties: set[str]) -> None:
    bmc = CorpusRedfish(insertion=frozenset(properties))
    media = f"{ROOT}/Managers/1/VirtualMedia"
    target = f"{media}/Cd/Actions/VirtualMedia.InsertMedia"
    bmc.system["VirtualMedia"] = {"@odata.id": f"{ROOT}/Systems/1/VirtualMedia"}  # it has none
    bmc.resources[f"{ROOT}/Managers/1"]["VirtualMedia"] = {"@odata.id": media}
    bmc.resources[media] = {"Members": [{"@odata.id": f"{media}/Cd"}]}
    bmc.resources[f"{media}/Cd"] = {
        "Id": "Cd",
        "MediaTypes": ["CD"],
        "Inserted": False,
        "Actions": {"#VirtualMedia.InsertMedia": {"target": target}},
    }
    async with driver_of(bmc) as driver:
        assert await driver.drive.insert("http://192.0.2.1/media/T/layercake.iso") == "Cd"


# -- not now


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
@pytest.mark.parametrize("headers", [{}, {"Retry-After": "1"}, {"Retry-After": "Wed, 21 Oct 2015"}])
async def test_not_now_is_waited_out(status: int, headers: dict[str, str]) -> None:
    async with service_of(CorpusRedfish(not_now=[(status, headers)])) as (service, _):
        assert await mutate(service, "power-discover") == {"power": "OFF"}


# -- one odd part


NONSENSE: tuple[Any, ...] = (
    None,
    [],
    [None],
    {},
    "",
    "x" * 300,
    0,
    -1,
    1e308,
    True,
    [[]],
    {"a": {}},
)


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths of all values in a resource."""
    if path:
        yield path
    children: list[tuple[Any, Any]] = list(value.items()) if isinstance(value, dict) else []
    if isinstance(value, list):
        children = list(enumerate(value[:1]))
    for key, one in children:
        if key == "#status":  # the test's own
            continue
        yield from places(one, (*path, key))


class InMemory(RedfishConnection):
    """A service that is only its resources."""

    def __init__(self, spec: BmcSpec, web: Web, resources: Mapping[str, Any]) -> None:
        super().__init__(spec, web)
        self._served = resources

    async def send(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] = {},
    ) -> Response:
        resource = self._served.get(path.rstrip("/"))
        if not isinstance(resource, dict):  # read_json has {} for what is no object
            return Response(404 if resource is None else 200, {})
        return Response(resource.get("#status", 200), resource)


async def ask_everything(spec: BmcSpec, web: Web, resources: Mapping[str, Any]) -> None:
    """Reads and sets all that there is. What it raises is of no kind of ours."""
    driver = RedfishDriver(spec, web, connection=InMemory(spec, web, resources))
    for work in (
        driver.state,
        driver.on,
        driver.boot_network,
        driver.boots_as_told,
        driver.sensors,
        driver.event_log,
        driver.hardware,
        driver.inspect,
        driver.cap.read,
        driver.drive.boot,
        driver.drive.eject,
    ):
        with contextlib.suppress(LayercakeError):
            await work()


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", range(len(NONSENSE)), ids=[repr(one)[:12] for one in NONSENSE])
async def test_no_nonsense_is_more_than_an_error(shape: str, kind: int) -> None:
    """Each value of each resource is replaced, one after the other."""
    original = json.loads((CORPUS / f"{shape}.json").read_text())
    spec = BmcSpec.from_record("n1", record("http://192.0.2.1"))
    web = Web()
    try:
        for path, resource in original.items():
            for place in [(), *places(resource)]:
                resources = {**original, path: copy.deepcopy(resource)}
                replace_in(resources, (path, *place), NONSENSE[kind])
                await ask_everything(spec, web, resources)
    finally:
        await web.close()


def replace_in(resources: dict[str, Any], place: tuple[Any, ...], value: Any) -> None:
    """Puts a value at a place."""
    owner: Any = resources
    for key in place[:-1]:
        owner = owner[key]
    owner[place[-1]] = value


@pytest.mark.parametrize("actions", [None, [], {}, "x", {"#ComputerSystem.Reset": None}])
async def test_the_power_is_read_also_of_a_system_without_actions(actions: Any) -> None:
    bmc = CorpusRedfish()
    bmc.system["Actions"] = actions
    async with driver_of(bmc) as driver:
        assert await driver.state() is PowerState.OFF
        with pytest.raises(Unsupported, match="has no reset action"):
            await driver.on()
