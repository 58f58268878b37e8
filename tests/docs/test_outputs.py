"""What pages show of commands is what these print: blocks are run on simulations, and every block
with an output is run or has a reason."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from docs.outputs import blocks, masks
from docs.outputs.__main__ import pages
from docs.outputs.blocks import Step
from docs.outputs.places import FIRST_DAY, PLOTS, Sims

pytestmark = pytest.mark.waits
DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGES = pages()
NOT_RUN = {
    "node.drivers-fetched": "a simulated node has no devices",
    "check --inventory": "a simulation has no network to check",
    "machine list": "no unknown machines are simulated",
    "power setup": "a simulated BMC is not set up from inside",
    "layercake init": "it sets up this machine",
    "1 asking": "every simulated node has a BMC",
    "usually 94 s": "it takes five boots of the same node",
    "If-None-Match": "it needs the id of a change that was told before",
    "layercake node show n0": "a simulated node has no clock and no cards",
    "vagrant": "it needs libvirt",
    "image add debian-1": "it needs libvirt",
    "layercake boot build": "it fetches a kernel and builds minOS",
    "dhcp.other-server": "a simulation has no other DHCP server",
    "power.medium": "a simulated BMC has no virtual drive",
    "machine disks": "a simulated node has no disks",
    "layercake files": "it needs files in the head's directory of files",
    "layercake plan site.yaml": "it needs files in the head's directory of files",
    "ssh-known-hosts": "simulated nodes have no host keys",
    "layercake apply rack.yaml\nn[0-3]: rolled": "it asks on a terminal",
    "profile build vendor": "commands alone",
}
"""What a block that is not run contains, and why not. The tutorial's are of the virtual rack."""


@pytest.fixture(scope="module")
def printed() -> Iterator[dict[Path, list[list[str]]]]:
    """What the commands of all pages print."""
    with Sims(sorted(PLOTS)) as sims:
        yield sims.outputs(PAGES)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_page_shows_what_is_printed(page: Path, printed: dict[Path, list[list[str]]]) -> None:
    for step, output in zip(PAGES[page], printed[page], strict=True):
        found = masks.difference(step.shown, output)
        assert not found, (
            f"{step.command}\n{found}\n`python -m docs.outputs --write` writes it anew; look at it"
        )


def test_the_pages_that_begin_with_an_inventory_or_a_fleet_show_those_nodes() -> None:
    day = (DOCS / "howto/first-day.md").read_text()
    assert f"```yaml\n# rack.yaml\n{FIRST_DAY.read_text()}```\n" in day
    assert "<!-- run: day -->" in day and "<!-- run: sim -->" not in day
    small = (DOCS / "howto/try-it-on-10000-nodes.md").read_text()
    first = small.partition("<!-- run: small -->")[0]
    assert f"--nodes {PLOTS['small'].count}\n" in first and "<!-- run: sim -->" not in small


TYPED = re.compile(r"[#$] \S|layercake |dig ")


def with_output(text: str) -> Iterator[str]:
    """The blocks of a page that show what a command prints, and are not run."""
    text = re.sub(r"<!-- run: \w+ -->\n```\w*\n.*?^```$", "", text, flags=re.M | re.S)
    fenced = re.findall(r"^```(\S*)\n(.*?)^```$", text, re.M | re.S)
    found = [block for language, block in fenced if language in ("", "console", "text")]
    plain = re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S)
    found += [
        re.sub("(?m)^    ", "", block) for block in re.findall(r"(?:^    .*\n)+", plain, re.M)
    ]
    for block in found:
        lines = block.splitlines()
        typed = [
            bool(TYPED.match(line)) or (n > 0 and lines[n - 1].endswith("\\"))
            for n, line in enumerate(lines)
        ]
        printed = [line for line, was in zip(lines, typed, strict=True) if line.strip() and not was]
        if any(typed) and printed and "layercake" in block:
            yield block


def test_every_output_comes_from_a_run_or_has_a_reason() -> None:
    found = [
        (page.name, block)
        for page in sorted((DOCS / "howto").glob("*.md"))
        for block in with_output(page.read_text())
    ]
    assert found
    without = [
        f"{name}: {block[:200]}"
        for name, block in found
        if not any(words in block for words in NOT_RUN)
    ]
    assert not without, without
    assert not [words for words in NOT_RUN if not any(words in block for _, block in found)], (
        "reasons for nothing"
    )


PAGE = """# A page

<!-- quietly: sim: touch it -->
<!-- run: sim -->
```console
# layercake status
head  version 0.2.0, up 2m, epoch 123456789012
...
last 1
# layercake \\
    thaw
```
"""


def test_a_page_is_read_and_written_anew() -> None:
    quiet, status, thaw = blocks.steps(PAGE)
    assert quiet == Step("sim", "touch it")
    assert status.command == "layercake status" and len(status.shown) == 3
    assert thaw.command == "layercake \\\n    thaw" and not thaw.shown
    outputs = [["never shown"], ["head  version 9", "a", "b", "last 2"], ["thawed"]]
    written = blocks.rewritten(PAGE, outputs)
    assert (
        "head  version 9\n...\nlast 2\n" in written
        and "thawed" not in written
        and "never" not in written
    )
    assert blocks.steps(written)[1].shown == ("head  version 9", "...", "last 2")


def test_times_and_ids_may_differ_and_nothing_else() -> None:
    shown = [
        "head      version 0.1.0, up 2m, epoch 4923918851631322734",
        "NAME  STATUS  SEEN",
        "n0    converged  5.2s",
    ]
    again = [
        "head  version 0.2.0, up 45s, epoch 5739269056001609082",
        "NAME       STATUS  SEEN",
        "n0 converged 140ms",
    ]
    assert masks.difference(shown, again) == ""
    for line, other in ((1, "NAME  STATE  SEEN"), (2, "n0 working 5s"), (2, "n1 converged 5s")):
        assert masks.difference(shown, [*again[:line], other, *again[line + 1 :]])
    assert masks.difference(shown, again[:2]) and masks.difference(shown[:2], again)


def test_how_far_nodes_are_with_staging_may_differ() -> None:
    shown = ["  0.0s  roll 1 to web:2: staging; 4 staging"]
    assert not masks.difference(shown, ["0.1s  roll 1 to web:2: staging; 3 waiting, 1 staging"])
    assert masks.difference(shown, ["0.1s  roll 1 to web:2: paused; 4 staging"])


def test_what_is_left_out_may_be_anything_and_what_is_shown_may_not() -> None:
    output = ["first", "second", "third", "last"]
    for shown in (
        ["first", "...", "last"],
        ["...", "last"],
        ["first", "..."],
        ["...", "second", "...", "last"],
        ["first", "...", "second", "third", "last"],
    ):
        assert masks.difference(shown, output) == "", shown
    for shown in (
        ["first", "...", "third"],
        ["second", "..."],
        ["...", "fourth", "..."],
        ["last", "...", "first"],
        ["first", "last"],
    ):
        assert masks.difference(shown, output), shown
