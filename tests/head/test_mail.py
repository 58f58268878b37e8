"""Alerts by mail, to a real mail server in a process of its own."""

from __future__ import annotations

import asyncio
import email
import email.policy
import ssl
from collections.abc import Callable
from email.message import EmailMessage
from pathlib import Path
from typing import Any

import pytest

from layercake.agents import pki
from layercake.base.secrets import Vault
from layercake.features.webhooks import mail, sender, smtp
from layercake.features.webhooks.formats import alerts
from layercake.features.webhooks.mail import Mail, message, subject
from layercake.features.webhooks.sender import Receiver
from layercake.features.webhooks.settings import MailSettings, address, addresses, server
from layercake.fleet import events
from layercake.fleet.store import Event, Record
from layercake.kernel import delivery
from layercake.kraken.errors import OperationFailed, Unreachable
from layercake.kraken.events import QUARANTINE_SET
from layercake.moduleapi.fields import Mistake
from tests.support.smtpserver import mail_server
from tests.support.world import World

PASSWORD = "a-canary-that-logs-in"
RACK = """
defaults: {console: ttyS0, images: []}
nodes:
  n[0-9]: {mac: "52:54:00:00:00:10+", ip: 10.1.0.10+}
"""


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mail, "GATHER_S", 0.01)
    monkeypatch.setattr(mail, "PAUSE_S", 0.01)
    monkeypatch.setattr(delivery, "FIRST_S", 0.01)
    monkeypatch.setattr(sender, "LONGEST_S", 0.05)


@pytest.fixture
def certificate(tmp_path: Path) -> dict[str, str]:
    """A certificate for 127.0.0.1, and the authority that signed it."""
    place = tmp_path / "mail-pki"
    pki.create(place, "127.0.0.1")
    return {
        "cert": str(place / "server.pem"),
        "key": str(place / "server.key"),
        "ca": str(place / "ca.pem"),
    }


class Told:
    """A list of people of a world's head, as the head begins and ends them."""

    def __init__(self, world: World, where: str, **settings: Any) -> None:
        self._world = world
        self._settings = MailSettings(
            server=where,
            sender="head@example.org",
            to=settings.pop("to", ["admins@example.org"]),
            **settings,
        )

    def expected(self, record: Record) -> bool:
        return record.care.maintenance is not None

    async def __aenter__(self) -> Told:
        place = self._world.directory / "secrets-of-mail/mail"
        place.mkdir(parents=True, exist_ok=True)
        (place / "key").write_text(PASSWORD)
        vault = Vault(place.parent, {})
        store = self._world.head.store
        transport = Mail(self._settings, vault, "10.1.0.1", "https://head.example:8443", store.wall)
        receiver = Receiver(
            "mail admins", "mail/admins", self._settings, transport, store, self.expected
        )
        self._task = asyncio.create_task(receiver.run(self._world.head.database))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


def kinds_of(world: World) -> list[str]:
    return [e.kind for e in world.head.store.events if e.kind.startswith("webhook.")]


def text_of(world: World, kind: str) -> str:
    return next(e.text for e in world.head.store.events if e.kind == kind)


async def until(what: Callable[[], Any]) -> None:
    async with asyncio.timeout(60):
        while not what():
            await asyncio.sleep(0.01)


def happens(world: World, text: str, node: str = "n0") -> None:
    world.head.store.event(world.node(node), events.BOOT_SLOW, text)


def outage(world: World, *, over: bool = False) -> None:
    kind = events.OUTAGE_OVER if over else events.OUTAGE_CALLED
    text = "domain r1: over after 9 min" if over else "an outage of domain r1: 40 of 40 nodes"
    world.head.store.event(None, kind, text, data={"domain": "r1"})


def read(told: dict[str, Any]) -> EmailMessage:
    found = email.message_from_string(told["data"], policy=email.policy.default)
    assert isinstance(found, EmailMessage)
    return found


async def test_an_outage_is_one_message_and_its_end_another(world: World) -> None:
    await world.ops.inventory.apply(RACK, "rack.yaml", None, True)
    with mail_server() as post:
        async with Told(world, f"smtp://127.0.0.1:{post.port}"):
            for number in range(8):
                happens(world, "it takes long", f"n{number}")
            outage(world)
            begun = await post.next()
            outage(world, over=True)
            over = await post.next()
    assert begun["to"] == ["admins@example.org"] and begun["hello"] == "[10.1.0.1]"
    first, second = read(begun), read(over)
    assert first["Subject"] == (
        "[Layercake 10.1.0.1] outage.called: an outage of domain r1: 40 of 40 nodes (and 1 more)"
    )
    assert second["Subject"].startswith("[Layercake 10.1.0.1] OVER: outage.over: domain r1")
    assert first.get_content_type() == "text/plain"
    assert "of n[0-7]: it takes long" in first.get_content(), "many nodes are one line"
    assert "https://head.example:8443" in first.get_content()
    assert first["Auto-Submitted"] == "auto-generated"
    assert kinds_of(world) == []


async def test_it_logs_in_over_tls(world: World, certificate: dict[str, str]) -> None:
    options = {"tls": "now", "user": "head", "password": PASSWORD, **certificate}
    with mail_server(**options) as post:
        settings = {"username": "head", "password": "key", "ca": certificate["ca"]}
        async with Told(world, f"smtps://127.0.0.1:{post.port}", **settings):
            happens(world, "one")
            told = await post.next()
    assert told["tls"] and told["user"] == "head"
    assert PASSWORD not in told["data"]


async def test_without_starttls_nothing_is_said_to_another_machine(world: World) -> None:
    with mail_server() as post:
        submission = smtp.Submission(
            ("127.0.0.1", post.port),
            ssl.create_default_context(),
            at_once=False,
            login=("head", PASSWORD),
            name="[10.1.0.1]",
        )
        with pytest.raises(OperationFailed, match="STARTTLS"):
            await submission.send(EmailMessage(), "head@example.org", ["a@example.org"])


async def test_starttls_is_spoken_and_its_certificate_is_checked(
    certificate: dict[str, str],
) -> None:
    options = {"tls": "start", "user": "head", "password": PASSWORD, **certificate}
    with mail_server(**options) as post:
        for trusted in (True, False):
            context = ssl.create_default_context(cafile=certificate["ca"] if trusted else None)
            submission = smtp.Submission(
                ("127.0.0.1", post.port),
                context,
                at_once=False,
                login=("head", PASSWORD),
                name="[10.1.0.1]",
            )
            letter = EmailMessage()
            letter.set_content("x")
            if trusted:
                answer = await submission.send(letter, "head@example.org", ["a@example.org"])
                told = await post.next()
                assert answer.taken and told["tls"] and told["user"] == "head"
            else:
                with pytest.raises(Unreachable, match="speaks no TLS that can be trusted"):
                    await submission.send(letter, "head@example.org", ["a@example.org"])


async def test_a_login_that_is_refused_is_tried_again_and_shown_nowhere(
    world: World, certificate: dict[str, str]
) -> None:
    options = {"tls": "now", "user": "head", "password": "another", **certificate}
    with mail_server(**options) as post:
        settings = {"username": "head", "password": "key", "ca": certificate["ca"]}
        async with Told(world, f"smtps://127.0.0.1:{post.port}", **settings):
            happens(world, "one")
            await until(lambda: kinds_of(world))
    assert kinds_of(world) == ["webhook.failed"]
    assert "refuses the login: 535" in text_of(world, "webhook.failed")
    assert "canary" not in text_of(world, "webhook.failed")


async def test_it_is_tried_again_until_it_is_taken(world: World) -> None:
    with mail_server(answers=["451 4.7.1 greylisted", "421 busy"]) as post:
        async with Told(world, f"smtp://127.0.0.1:{post.port}"):
            happens(world, "one")
            said = [await post.next() for _ in range(3)]
            await until(lambda: "webhook.well" in kinds_of(world))
    assert [one["answer"] for one in said] == ["451 4.7.1 greylisted", "421 busy", "250 OK"]
    assert len({read(one)["Message-ID"] for one in said}) == 1, "the same message, for who has it"
    assert kinds_of(world) == ["webhook.failed", "webhook.well"]
    assert "greylisted" in text_of(world, "webhook.failed")


async def test_what_is_refused_for_good_is_given_up(world: World) -> None:
    with mail_server(answers=["554 5.7.1 spam"]) as post:
        async with Told(world, f"smtp://127.0.0.1:{post.port}"):
            happens(world, "one")
            await post.next()
            await until(lambda: kinds_of(world))
            happens(world, "two")
            assert "two" in read(await post.next()).get_content()
            await until(lambda: len(kinds_of(world)) == 2)
    assert kinds_of(world) == ["webhook.refused", "webhook.well"]
    assert "554 5.7.1 spam" in text_of(world, "webhook.refused")


async def test_the_others_get_it_where_one_is_unknown(world: World) -> None:
    with mail_server(refused=["gone@example.org"]) as post:
        async with Told(
            world, f"smtp://127.0.0.1:{post.port}", to=["gone@example.org", "admins@example.org"]
        ):
            happens(world, "one")
            assert (await post.next())["to"] == ["admins@example.org"]
            await until(lambda: kinds_of(world))
    assert "refuses 1 recipient: 550 5.1.1 there is no such user" in text_of(
        world, "webhook.refused"
    )


async def test_a_server_that_hangs_costs_its_time_limit(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mail, "TOTAL_S", 0.3)
    with mail_server(answers=["hang"]) as post:
        async with Told(world, f"smtp://127.0.0.1:{post.port}"):
            happens(world, "one")
            assert "one" in read(await post.next()).get_content()
    assert "does not take a message in" in text_of(world, "webhook.failed")


@pytest.mark.parametrize(
    "says", [b"250-x\r\n" * 100_000, b"220 " + b"x" * 1_000_000, b"nonsense\r\n", b""]
)
async def test_a_server_that_says_nonsense_is_an_error_and_no_more(says: bytes) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(says)
        writer.close()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with listening:
        submission = smtp.Submission(
            ("127.0.0.1", listening.sockets[0].getsockname()[1]),
            None,
            at_once=False,
            login=("", ""),
            name="[10.1.0.1]",
        )
        try:
            answer = await submission.send(EmailMessage(), "a@example.org", ["b@example.org"])
        except Unreachable as error:
            assert len(str(error)) < 500
        else:
            assert not answer.taken and not answer.final


async def test_nodes_in_maintenance_are_no_news(world: World) -> None:
    await world.ops.inventory.apply(RACK, "rack.yaml", None, True)
    await world.ops.care.begin("n0", "a new board", "ann", None)
    with mail_server() as post:
        async with Told(world, f"smtp://127.0.0.1:{post.port}"):
            happens(world, "expected", "n0")
            happens(world, "not expected", "n1")
            text = read(await post.next()).get_content()
    assert "of n1: not expected" in text and ": expected" not in text


HOSTILE = "x\r\nBcc: everybody@example.org\r\n\r\n.\r\nMAIL FROM:<a@b> \x1b[2J \u202e \udc80"


def of(kind: Any, text: str, node: str = "n0") -> Event:
    return Event(1, 1.0, node, kind.name, kind.severity.value, text)


def settings(**more: Any) -> MailSettings:
    return MailSettings(
        server="smtp://localhost", sender="head@example.org", to=["a@example.org"], **more
    )


def test_nothing_that_a_node_says_becomes_a_header_or_an_end() -> None:
    found = alerts([of(QUARANTINE_SET, HOSTILE), of(events.BOOT_SLOW, HOSTILE * 50, HOSTILE)])
    letter = message(settings(), found, 3, "h\r\nX: y", "https://h", "1-2-3", 0.0)
    data = letter.as_bytes()
    again = email.message_from_bytes(data, policy=email.policy.default)
    assert set(again.keys()) == {
        "From",
        "To",
        "Subject",
        "Date",
        "Message-ID",
        "Auto-Submitted",
        "X-Auto-Response-Suppress",
        "MIME-Version",
        "Content-Type",
        "Content-Transfer-Encoding",
    }
    assert b"\nBcc:" not in data and b"\n.\r" not in data and b"\x1b" not in data
    assert data.isascii() and max(map(len, data.split(b"\r\n"))) <= 998


async def test_hostile_names_reach_the_server_as_text(world: World) -> None:
    with mail_server() as post:
        async with Told(world, f"smtp://127.0.0.1:{post.port}"):
            happens(world, HOSTILE)
            told = await post.next()
    assert told["to"] == ["admins@example.org"] and told["from"] == "head@example.org"
    assert read(told)["Bcc"] is None


def test_a_subject_is_of_what_is_gravest_and_not_over() -> None:
    found = alerts(
        [
            of(events.BOOT_SLOW, "it takes long"),
            of(events.OUTAGE_OVER, "over", ""),
            of(QUARANTINE_SET, "given up " + "x" * 500),
        ]
    )
    shown = subject(found, "10.1.0.1")
    assert shown.startswith("[Layercake 10.1.0.1] quarantine.set of n0: given up")
    assert shown.endswith("... (and 2 more)") and len(shown) <= mail.SUBJECT + 3


@pytest.mark.parametrize(
    "word",
    [
        "mail.example.org",
        "https://mail.example.org",
        "smtp://u:p@mail.example.org",
        "smtp://mail.example.org/x",
        "smtp://a b",
        "smtp://h:99999",
        "smtp://",
    ],
)
def test_servers_that_are_refused(word: str) -> None:
    with pytest.raises(Mistake):
        server(word)
    assert server("smtp://mail.example.org:587") and server("smtps://[::1]") and server("") == ""


@pytest.mark.parametrize(
    "word", ["a", "a@", "@b", "a@b\nBcc: c@d", "a b@c", "<a@b>", "a@b..c", "a@" + "b" * 300, 'a"@b']
)
def test_addresses_that_are_refused(word: str) -> None:
    with pytest.raises(Mistake):
        address(word)
    with pytest.raises(Mistake):
        addresses([word])
    assert address("head+alerts@example.org") and addresses(["a@b", "c@d.example"])
