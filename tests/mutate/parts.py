"""The parts of the product whose tests are measured by mutants."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Part:
    """Files and folders of the product, the tests that answer for them, and what is asked of
    these."""

    files: tuple[str, ...]
    tests: tuple[str, ...]
    at_least: int
    """Of a hundred mutants, so many are killed."""


PARTS = {
    "engine": Part(files=("layercake/kraken",), tests=("tests/engine", "tests/wire"), at_least=95),
    "guard": Part(
        files=("layercake/features/guard", "layercake/features/guard/turns"),
        tests=("tests/guard",),
        at_least=90,
    ),
    "rolls": Part(
        files=(
            "layercake/features/rolls/decide.py",
            "layercake/features/rolls/facts.py",
            "layercake/features/rolls/policy.py",
            "layercake/features/rolls/observe.py",
        ),
        tests=(
            "tests/rolls/test_decide.py",
            "tests/rolls/test_moves.py",
            "tests/rolls/test_policy.py",
            "tests/rolls/test_told.py",
            "tests/rolls/test_properties.py",
            "tests/rolls/test_manager.py",
            "tests/rolls/test_boot_rolls.py",
        ),
        at_least=90,
    ),
    "dhcp": Part(
        files=(
            "pxe/dhcp/answers.py",
            "pxe/dhcp/decision.py",
            "pxe/dhcp/proxydhcp.py",
            "pxe/dhcp/relay.py",
            "pxe/dhcp/reply.py",
        ),
        tests=(
            "tests/boot/test_answers.py",
            "tests/boot/test_defects.py",
            "tests/boot/test_dhcp_decision.py",
            "tests/boot/test_dhcp_notes.py",
            "tests/boot/test_dhcp_packet.py",
            "tests/boot/test_golden.py",
            "tests/boot/test_proxydhcp.py",
            "tests/boot/test_relay.py",
            "tests/boot/test_unanswered.py",
        ),
        at_least=90,
    ),
    "releases": Part(
        files=("layercake/features/releases",), tests=("tests/releases",), at_least=90
    ),
    "joins": Part(
        files=("layercake/agents/joining.py", "layercake/agents/https/join.py"),
        tests=(
            "tests/head/test_join.py",
            "tests/head/test_join_answers.py",
            "tests/head/test_joining.py",
        ),
        at_least=90,
    ),
}
