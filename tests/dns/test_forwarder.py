"""What is asked of others: who is believed, what is asked once only, and what is done when nobody
answers."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable

import pytest
from dnslib import QTYPE, RR, SOA, A, DNSHeader, DNSRecord

from pxe.dns import forwarder
from tests.dns.conftest import Serve
from tests.support.clock import FakeClock

Say = Callable[[DNSRecord, int], list[bytes]]


class Upstream:
    """A DNS server that says what it is told to: `say(question, how often asked)` gives the
    datagrams."""

    def __init__(self, say: Say, address: str, port: int) -> None:
        self.say, self.address = say, address
        self.asked: list[tuple[bytes, int]] = []
        self.tcp: list[bytes] = []
        self.udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self.udp.bind((address, port))
        self.port = self.udp.getsockname()[1]
        self.server: asyncio.Server | None = None

    async def open(self) -> None:
        asyncio.get_running_loop().add_reader(self.udp.fileno(), self.read)
        self.server = await asyncio.start_server(self.talk, self.address, self.port)

    def read(self) -> None:
        data, source = self.udp.recvfrom(4096)
        self.asked.append((data, source[1]))
        for reply in self.say(DNSRecord.parse(data), len(self.asked)):
            self.udp.sendto(reply, source)

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        data = await reader.readexactly(int.from_bytes(await reader.readexactly(2), "big"))
        self.tcp.append(data)
        reply = answer(DNSRecord.parse(data), count=90)
        writer.write(len(reply).to_bytes(2, "big") + reply)
        await writer.drain()
        writer.close()

    async def close(self) -> None:
        asyncio.get_running_loop().remove_reader(self.udp.fileno())
        self.udp.close()
        if self.server is not None:
            self.server.close()


@pytest.fixture
async def upstream() -> AsyncIterator[Callable[..., Upstream]]:
    there: list[Upstream] = []

    def make(say: Say, address: str = "127.0.0.7", port: int = 0) -> Upstream:
        made = Upstream(say, address, port)
        there.append(made)
        return made

    yield make
    for made in there:
        await made.close()


def answer(
    asked: DNSRecord,
    address: str = "192.0.2.1",
    *,
    count: int = 1,
    ttl: int = 60,
    rcode: int = 0,
    tc: int = 0,
) -> bytes:
    made = DNSRecord(DNSHeader(id=asked.header.id, qr=1, ra=1, rcode=rcode, tc=tc), q=asked.q)
    for number in range(count):
        made.add_answer(
            RR(
                asked.q.qname,
                QTYPE.A,
                ttl=ttl,
                rdata=A(f"192.0.2.{number}" if count > 1 else address),
            )
        )
    return bytes(made.pack())


def ask(name: str, number: int = 7) -> bytes:
    return bytes(DNSRecord(DNSHeader(id=number, rd=1), q=DNSRecord.question(name).q).pack())


async def test_an_answer_is_kept_for_as_long_as_it_says(
    serve: Serve, upstream: Callable[..., Upstream], clock: FakeClock
) -> None:
    other = upstream(lambda asked, times: [answer(asked, f"192.0.2.{times}")])
    await other.open()
    served = serve(upstream=("127.0.0.1", other.address), upstream_port=other.port, clock=clock)
    seen = []
    for wait in (0, 20, 39, 1):
        clock.now += wait
        reply = await served.answer("www.example.org")
        assert (reply.header.ra, reply.header.aa) == (1, 0)
        seen.append((str(reply.rr[0].rdata), reply.rr[0].ttl))
    assert seen == [("192.0.2.1", 60), ("192.0.2.1", 40), ("192.0.2.1", 1), ("192.0.2.2", 60)]
    data, _ = other.asked[0]
    assert (
        DNSRecord.parse(data).header.rd
        and len({data[:2] for data, _ in other.asked} | {b"\0\7"}) == 3
    ), "its own numbers"


async def test_each_question_has_a_port_and_a_number_of_its_own(
    serve: Serve, upstream: Callable[..., Upstream]
) -> None:
    other = upstream(lambda asked, times: [answer(asked)])
    await other.open()
    served = serve(upstream=(other.address,), upstream_port=other.port, rate=0)
    for number in range(20):
        await served.answer(f"w{number}.example.org")
    assert (
        len({port for _, port in other.asked}) > 15
        and len({data[:2] for data, _ in other.asked}) > 15
    )


async def test_what_does_not_belong_to_the_question_is_not_believed(
    serve: Serve, upstream: Callable[..., Upstream]
) -> None:
    def lies(asked: DNSRecord, times: int) -> list[bytes]:
        true, wrong = answer(asked, "192.0.2.1"), answer(asked, "192.0.2.66")
        no_answer = bytes((*wrong[:2], wrong[2] & 0x7F, *wrong[3:]))
        return [
            bytes((wrong[0] ^ 1,)) + wrong[1:],
            wrong.replace(b"\3www", b"\3wwx"),
            no_answer,
            wrong[:-2],
            b"",
            true,
        ]

    other = upstream(lies)
    await other.open()
    served = serve(upstream=(other.address,), upstream_port=other.port)
    assert [str(r.rdata) for r in (await served.answer("www.example.org")).rr] == ["192.0.2.1"]


async def test_a_long_answer_is_fetched_by_tcp_and_given_by_tcp(
    serve: Serve, upstream: Callable[..., Upstream]
) -> None:
    other = upstream(lambda asked, times: [answer(asked, count=0, tc=1)])
    await other.open()
    served = serve(upstream=(other.address,), upstream_port=other.port)
    by_udp = await served.answer("www.example.org")
    assert by_udp.header.tc and not by_udp.rr and len(other.tcp) == 1
    (whole,) = await served.by_tcp(ask("www.example.org"))
    assert len(DNSRecord.parse(whole).rr) == 90 and len(other.tcp) == 1, "it was kept"


async def test_the_next_server_is_asked_and_remembered(
    serve: Serve, upstream: Callable[..., Upstream]
) -> None:
    bad = upstream(lambda asked, times: [answer(asked, count=0, rcode=2)], "127.0.0.7")
    good = upstream(lambda asked, times: [answer(asked)], "127.0.0.8", bad.port)
    await bad.open()
    await good.open()
    served = serve(upstream=(bad.address, good.address), upstream_port=bad.port)
    for number in range(3):
        assert (await served.answer(f"w{number}.example.org")).rr
    assert (len(bad.asked), len(good.asked)) == (1, 3)


async def test_that_nobody_answers_is_said_and_kept_for_a_moment(
    serve: Serve,
    upstream: Callable[..., Upstream],
    monkeypatch: pytest.MonkeyPatch,
    clock: FakeClock,
) -> None:
    monkeypatch.setattr(forwarder, "WAIT_S", 0.05)
    other = upstream(lambda asked, times: [])
    await other.open()
    served = serve(upstream=(other.address,), upstream_port=other.port, clock=clock)
    assert (await served.answer("www.example.org")).header.rcode == 2 and len(other.asked) == 2
    assert (await served.answer("www.example.org")).header.rcode == 2 and len(other.asked) == 2
    clock.now += 3
    assert (await served.answer("www.example.org")).header.rcode == 2 and len(other.asked) == 4


async def test_that_there_is_none_is_kept(
    serve: Serve, upstream: Callable[..., Upstream], clock: FakeClock
) -> None:
    def none(asked: DNSRecord, times: int) -> list[bytes]:
        made = DNSRecord(DNSHeader(id=asked.header.id, qr=1, rcode=3), q=asked.q)
        made.add_auth(
            RR("example.org", QTYPE.SOA, ttl=50, rdata=SOA("ns", "host", (1, 2, 3, 4, 50)))
        )
        return [bytes(made.pack())]

    other = upstream(none)
    await other.open()
    served = serve(upstream=(other.address,), upstream_port=other.port, clock=clock)
    for wait, times in ((0, 1), (49, 1), (1, 2)):
        clock.now += wait
        assert (await served.answer("no.example.org")).header.rcode == 3 and len(
            other.asked
        ) == times


async def test_a_question_that_is_open_is_not_asked_again_and_a_client_has_so_many(
    serve: Serve, upstream: Callable[..., Upstream], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forwarder, "EACH", 4)
    other = upstream(lambda asked, times: [])
    await other.open()
    served = serve(upstream=(other.address,), upstream_port=other.port)
    same = [asyncio.create_task(served.asks(ask("www.example.org", number))) for number in range(3)]
    last = asyncio.create_task(served.asks(ask("w3.example.org", 3)))
    async with asyncio.timeout(10):
        while len(other.asked) < 2 or served.recorder.counters["dns.forward"] < 4:
            await asyncio.sleep(0.01)
    assert (await served.asks(ask("w4.example.org"))).header.rcode == 2, (
        "too much is open of this client"
    )
    assert sorted(str(DNSRecord.parse(data).q.qname) for data, _ in other.asked) == [
        "w3.example.org.",
        "www.example.org.",
    ]
    for (data, port), address in zip(list(other.asked), ("192.0.2.1", "192.0.2.1"), strict=True):
        other.udp.sendto(answer(DNSRecord.parse(data), address), ("127.0.0.1", port))
    assert [(await task).header.id for task in (*same, last)] == [0, 1, 2, 3]


async def test_a_circle_of_servers_ends(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forwarder, "WAIT_S", 0.2)
    first = serve(upstream=("127.0.0.1",))
    assert first.forwarder.servers == (), "it never asks itself"
    assert (await first.answer("www.example.org")).header.rcode == 5
    second = serve(upstream=("127.0.0.5",))
    asked = await second.asks(ask("www.example.org"), source="127.0.0.5")
    assert (asked.header.rcode, asked.header.ra) == (5, 0), "nor for the server that it would ask"
