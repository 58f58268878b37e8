"""The sockets: by UDP and TCP, who is answered, how often, and that nothing in a datagram ends
it."""

from __future__ import annotations

import asyncio
import contextlib
import random

import pytest
from dnslib import EDNS0, DNSHeader, DNSQuestion, DNSRecord

from pxe.dns import stream
from pxe.nodes import from_record
from tests.dns.conftest import RECORDS, Serve
from tests.support.clock import FakeClock


def question(name: str, kind: int = 1, *, number: int = 7, size: int = 0) -> bytes:
    made = DNSRecord(DNSHeader(id=number, rd=1), q=DNSQuestion(name, kind))
    if size:
        made.add_ar(EDNS0(udp_len=size))
    return bytes(made.pack())


async def test_the_same_question_again_is_answered_the_same_and_a_change_is_seen_at_once(
    serve: Serve,
) -> None:
    served = serve()
    first, second = await served.many(question("n1", number=1), question("n1", number=2))
    assert first[2:] == second[2:] and (first[:2], second[:2]) == (b"\0\1", b"\0\2")
    assert served.recorder.counters["dns.answered"] == 2
    served.names.update_node(from_record("n1", {**RECORDS[0], "ip": "127.0.1.99"}, served.settings))
    assert str((await served.asks(question("n1", number=3))).rr[0].rdata) == "127.0.1.99"
    served.names.remove("n1")
    assert (await served.asks(question("n1.cluster.internal"))).header.rcode == 3


async def test_who_is_in_no_network_of_the_site_is_refused_whatever_is_asked(serve: Serve) -> None:
    served = serve(upstream=("127.0.0.9",), allow=("127.9.0.0/16",))
    assert (await served.asks(question("n1"))).rr, "and the answer is ready now"
    for name in ("n1", "nosuch.cluster.internal", "www.example.org"):
        reply = await served.asks(question(name), source="127.1.2.3")
        assert reply.header.rcode == 5 and not reply.rr
    assert (await served.asks(question("n1"), source="127.9.1.1")).rr
    assert served.recorder.counters["dns.foreign"] == 3


async def test_strangers_are_not_even_refused_often(serve: Serve, clock: FakeClock) -> None:
    served = serve(clock=clock)
    found = served.many(
        *(question(f"n{number}", number=number) for number in range(10)), source="127.1.2.3"
    )
    assert len(await found) == 10
    for number in range(200):
        served.server.handle(question("n1", number=number), ("127.1.2.4", 9))
    clock.now += 1
    assert (await served.asks(question("n1"), source="127.1.2.4")).header.rcode == 5
    assert served.recorder.counters["dns.foreign"] == 211


def kinds(replies: list[bytes]) -> dict[int, str]:
    """What became of each question, by its number."""
    return {
        int.from_bytes(reply[:2], "big"): "cut" if DNSRecord.parse(reply).header.tc else "whole"
        for reply in replies
    }


async def test_a_flood_of_one_question_is_told_to_ask_by_tcp_and_can(
    serve: Serve, clock: FakeClock
) -> None:
    served, last = serve(clock=clock, rate=5), question("login.rack1", number=99)
    alike = [question("n1", number=number, size=1232 * (number % 2)) for number in range(9)]
    assert kinds(await served.many(*alike, last)) == dict.fromkeys(range(5), "whole") | {
        5: "cut",
        7: "cut",
        99: "whole",
    }
    assert DNSRecord.parse((await served.by_tcp(question("n1")))[0]).rr
    made_up = [question(f"no{number}.cluster.internal", number=number) for number in range(9)]
    found = kinds(await served.many(*made_up, question("n3", number=99)))
    assert found == dict.fromkeys(range(5), "whole") | {5: "cut", 7: "cut", 99: "whole"}, (
        "what does not exist is counted together"
    )
    assert served.recorder.counters["dns.limited"] == 8


async def test_several_messages_on_one_connection(serve: Serve) -> None:
    served = serve()
    found = await served.by_tcp(
        *(question(f"n{number % 2}.cluster.internal", number=number) for number in range(40))
    )
    assert [DNSRecord.parse(reply).header.id for reply in found] == list(range(40))
    assert {DNSRecord.parse(reply).header.rcode for reply in found} == {0, 3}


async def test_a_connection_that_holds_no_query_ends(serve: Serve) -> None:
    served = serve()
    assert await served.by_tcp(b"\0\7\x81\0\0\1\0\0\0\0\0\0\1a\0\0\1\0\1") == [], "an answer"
    assert await served.by_tcp(b"short") == []
    (broken,) = await served.by_tcp(question("n1")[:-1])
    assert DNSRecord.parse(broken).header.rcode == 1
    assert DNSRecord.parse((await served.by_tcp(question("n1")))[0]).rr, "others are served"


async def test_a_connection_with_nothing_to_ask_ends(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = serve()
    monkeypatch.setattr(stream, "IDLE_S", 0.05)
    reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
    writer.write(b"\0\x20half")
    async with asyncio.timeout(10):
        with contextlib.suppress(ConnectionResetError):
            assert await reader.read() == b""
    writer.close()


async def test_nothing_in_a_datagram_ends_it(serve: Serve) -> None:
    served, chance = serve(rate=0), random.Random(3)
    for number in range(3000):
        data = bytearray(question("n1.cluster.internal", number=number & 255, size=1232))
        for _ in range(chance.randrange(1, 6)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        served.server.handle(bytes(data[: chance.randrange(1, len(data) + 1)]), ("127.0.0.1", 9))
    assert (await served.asks(question("n1"))).rr
