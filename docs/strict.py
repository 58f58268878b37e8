"""Takes scripts and styles out of the pages of the site into files beside them, once Sphinx has
built it.

The head serves the site from the origin of its dashboard, with a Content-Security-Policy under
which nothing that stands in a page runs (layercake/dashboard/documentation.py). The theme writes a
script, a style sheet and two style attributes into each page. They are the same on all, so they
become few files, named by their content.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

from sphinx.application import Sphinx

_SCRIPT = re.compile(
    r"<script(?![^>]*\bsrc=)(?![^>]*type=\"application/)[^>]*>(.*?)</script>", re.S
)
_STYLE = re.compile(r"<style[^>]*>(.*?)</style>", re.S)
_ATTRIBUTE = re.compile(r"<([a-zA-Z][\w-]*)((?:\s[^<>]*?)?)\sstyle=\"([^\"]*)\"([^<>]*)>")
_CLASS = re.compile(r"\sclass=\"([^\"]*)\"")
_HANDLER = re.compile(r"<[a-zA-Z][^<>]*\son[a-z]+=")


def setup(app: Sphinx) -> dict[str, bool]:
    """Called by Sphinx."""
    app.connect("build-finished", _finished)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _finished(app: Sphinx, error: Exception | None) -> None:
    if error is None and app.builder.format == "html":
        for page in sorted(Path(app.outdir).rglob("*.html")):
            text = page.read_text()
            strict = strict_page(
                text,
                Path(app.outdir) / "_static",
                "../" * (len(page.relative_to(app.outdir).parts) - 1),
            )
            if strict != text:
                page.write_text(strict)


def strict_page(text: str, static: Path, up: str) -> str:
    """A page without scripts or styles of its own; those are in files in `static`, which is `up`
    from the page. Raises ValueError for a page that has an event handler as an attribute."""
    if found := _HANDLER.search(text):
        raise ValueError(f"a page has an event handler in its markup: {found[0][:100]}")
    rules: dict[str, None] = {}

    def attribute(match: re.Match[str]) -> str:
        name = f"inline-{_mark(match[3])}"
        declarations = "; ".join(
            f"{part.strip()} !important" for part in match[3].split(";") if part.strip()
        )
        rules[f".{name} {{ {declarations} }}\n"] = None
        rest = match[2] + match[4]
        if has := _CLASS.search(rest):
            return f'<{match[1]}{rest[: has.start()]} class="{has[1]} {name}"{rest[has.end() :]}>'
        closing = "/" if rest.endswith("/") else ""
        return f'<{match[1]}{rest.removesuffix("/")} class="{name}"{closing}>'

    text = _ATTRIBUTE.sub(attribute, text)
    text = _SCRIPT.sub(
        lambda match: f'<script src="{up}_static/{_keep(static, match[1], "js")}"></script>', text
    )
    text = _STYLE.sub(
        lambda match: (
            f'<link rel="stylesheet" href="{up}_static/{_keep(static, match[1], "css")}">'
        ),
        text,
    )
    if rules:
        sheet = _keep(static, "".join(sorted(rules)), "css")
        text = text.replace(
            "</head>", f'<link rel="stylesheet" href="{up}_static/{sheet}">\n</head>', 1
        )
    return text


def _keep(static: Path, text: str, kind: str) -> str:
    """Writes a file; its name."""
    name = f"inline-{_mark(text)}.{kind}"
    (static / name).write_text(text)
    return name


def _mark(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]
