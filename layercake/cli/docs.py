"""`layercake docs`: the documentation in a terminal. It needs no head."""

from __future__ import annotations

import difflib
import io
import posixpath
import re
from collections.abc import Mapping

import click

from layercake import documentation
from layercake.client.command import Answer, App, command
from layercake.client.output import Output
from layercake.kraken.errors import NotFound, OperationFailed

MOST_WIDE = 100
"""Columns beyond which a text is hard to read."""
_LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(([^)\s]+)\)")
_PICTURE = re.compile(r"!\[([^\]]*)\]\([^)]*\)")
_CONTENTS = re.compile(r"^```\{toctree\}\n(.*?)^```$", re.M | re.S)
_DEFINED = re.compile(r"^(\w[^\n]*)\n: +(.+(?:\n +\S.*)*)$", re.M)
"""A term and its definition, which Markdown proper does not have and so draws on one line."""
_FENCE = re.compile(r"^(`{3,}|~{3,}).*?^\1\s*$", re.M | re.S)


@command()
@click.argument("page", default="")
def docs(app: App, page: str) -> Answer:
    """Show a page of the documentation, or without PAGE the list of them. It works without a head.

    PAGE is a name of the list, such as howto/consoles or just consoles. On a terminal the page is
    shown by the pager.
    """
    directory = documentation.pages_directory()
    if directory is None:
        raise OperationFailed(
            "cannot show the documentation: its pages are not on this machine",
            hint="the head serves them at "
            f"{app.target.url or 'https://HEAD:8443'}{documentation.URL}",
        )
    titles = documentation.titles(directory)
    if not page:
        return Answer(
            {"pages": [{"page": name, "title": title} for name, title in titles.items()]},
            lambda out: _list(out, titles),
        )
    name = find(page, titles)
    text = (directory / f"{name}.md").read_text()
    return Answer(
        {"page": name, "title": titles[name], "text": text},
        lambda out: _show(out, text, name, titles),
    )


def find(page: str, titles: Mapping[str, str]) -> str:
    """The full name of a page that is named as people do: by its path, with or without the ending,
    or by its last part. Raises NotFound, with the nearest names."""
    wanted = (
        page.partition("#")[0]
        .removeprefix("docs/")
        .removesuffix(".md")
        .removesuffix(".html")
        .strip("/")
    )
    candidates = [name for name in titles if name == wanted] or [
        name
        for name in titles
        if name.rpartition("/")[2] == wanted or name == f"{wanted}/{documentation.INDEX}"
    ]
    if len(candidates) == 1:
        return candidates[0]
    short = {
        name.rpartition("/")[2]: name for name in titles if not name.endswith(documentation.INDEX)
    }
    near = candidates or list(
        dict.fromkeys(
            short.get(name, name)
            for name in difflib.get_close_matches(wanted, [*titles, *short], n=3)
        )
    )
    why = "several have that name" if candidates else "there is no such page"
    raise NotFound(
        f"cannot show {page}: {why}",
        hint=f"{'one of ' if len(near) > 1 else ''}{', '.join(near)}?"
        if near
        else "`layercake docs` lists them",
    )


def _list(out: Output, titles: Mapping[str, str]) -> None:
    width = max(map(len, titles))
    for name, title in titles.items():
        out.line(f"{name.ljust(width)}  {title}")


def _show(out: Output, text: str, name: str, titles: Mapping[str, str]) -> None:
    if not out.terminal:
        out.raw(text)
        return
    from rich.console import Console  # slow to import, and only a terminal wants it
    from rich.markdown import Markdown

    drawn = io.StringIO()
    console = Console(
        file=drawn,
        width=min(out.width, MOST_WIDE),
        force_terminal=out.colour,
        no_color=not out.colour,
        color_system="standard" if out.colour else None,
    )
    console.print(Markdown(followed(text, name, titles), hyperlinks=False))
    page = drawn.getvalue()
    if page.count("\n") < out.height:
        click.echo(page, nl=False, color=out.colour)
    else:
        # By None click has `less` show colours (LESS=-R); by True it does not, and they are
        # garbage.
        click.echo_via_pager(page, color=None if out.colour else False)


def followed(text: str, name: str, titles: Mapping[str, str]) -> str:
    """A page whose links to other pages are what one types to read those, whose pictures are
    their descriptions, and whose definitions are a list."""

    def contents(match: re.Match[str]) -> str:
        entries = [
            line.strip()
            for line in match[1].splitlines()
            if line.strip() and not line.startswith(":")
        ]
        targets = [
            posixpath.normpath(posixpath.join(posixpath.dirname(name), entry)) for entry in entries
        ]
        return "\n".join(
            f"- {titles.get(target, target)}: `{documentation.command(target)}`"
            for target in targets
        )

    def link(match: re.Match[str]) -> str:
        path = match[2].partition("#")[0]
        if "://" in path:
            return f"{match[1]} ({match[2]})"
        if not path.endswith(".md"):
            return match[1]
        target = posixpath.normpath(
            posixpath.join(posixpath.dirname(name), path.removesuffix(".md"))
        )
        return f"{match[1]} (`{documentation.command(target)}`)"

    def prose(piece: str) -> str:
        piece = _LINK.sub(link, _PICTURE.sub(r"*Picture: \1*", piece))
        return _DEFINED.sub(r"- **\1**\n\n  \2", piece)

    text = _CONTENTS.sub(contents, text)
    pieces = []
    at = 0
    for fence in _FENCE.finditer(text):  # what is typed and printed stays as it is
        pieces += [prose(text[at : fence.start()]), fence[0]]
        at = fence.end()
    return "".join([*pieces, prose(text[at:])])
