"""Templates of files: Jinja2 in its sandbox, with names that must be known, bounded in time, memory
and output. Pure; it runs in a process of its own (worker.py)."""

from __future__ import annotations

import re
import signal
import traceback
from collections.abc import Callable, Mapping
from types import FrameType
from typing import Any

import jinja2
from jinja2.exceptions import SecurityError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from layercake.features.files.inventory import MAX_CONTENT

MAX_OUTPUT = 4 * MAX_CONTENT
"""Bytes of a rendered file."""
SECONDS = 1.0
"""How long a file may be rendered, on a processor."""
_MOST = 1 << 20
_BITS = 4096
OPENS = "\ue000"
CLOSES = "\ue001"
"""What stands around a secret's name until a node fetches the file: characters that no template may
have itself."""
_SECRET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_NAME = "<template>"


class NotRendered(Exception):
    """Why a template gives no file: the line, 0 if it is not known, and the text."""

    def __init__(self, line: int, text: str) -> None:
        super().__init__(text)
        self.line = line
        self.text = text

    def __str__(self) -> str:
        return f"line {self.line}: {self.text}" if self.line else self.text


class _Late(Exception):
    """The time is over."""


def _check_power(base: Any, exponent: Any) -> None:
    """Raises SecurityError."""
    small = isinstance(exponent, int | float) and abs(exponent) <= 64 and abs(base) <= _MOST
    if not small:
        raise SecurityError("** is for small numbers")


def _check_product(left: Any, right: Any) -> None:
    """Raises SecurityError."""
    sizes = [len(side) for side in (left, right) if isinstance(side, str | bytes | list | tuple)]
    times = [side for side in (left, right) if isinstance(side, int)]
    if sizes and times and sizes[0] * times[0] > _MOST:
        raise SecurityError("* makes a text or list that is too long")
    if sum(number.bit_length() for number in times) > _BITS:
        raise SecurityError("* is for small numbers")


def _check_format(text: Any, values: Any) -> None:
    """Raises SecurityError. Of numbers, % is the remainder."""
    if isinstance(text, str) and (len(text) > 1000 or re.search(r"\d{4}|\*", text)):
        raise SecurityError("% is for short formats, of widths below 1000")


_CHECKS: Mapping[str, Callable[[Any, Any], None]] = {
    "**": _check_power,
    "*": _check_product,
    "%": _check_format,
}


class _Sandbox(ImmutableSandboxedEnvironment):
    """Numbers and texts do not become larger than a file may be."""

    intercepted_binops = frozenset(_CHECKS)

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        """See ImmutableSandboxedEnvironment. Raises SecurityError."""
        check = _CHECKS.get(operator)
        if check is not None:
            check(left, right)
        return super().call_binop(context, operator, left, right)


def _secret(name: object) -> str:
    """In the place of a secret, until the node fetches the file."""
    if not isinstance(name, str) or not _SECRET.fullmatch(name):
        raise SecurityError(
            "secret() takes the name of a file below files/ in the directory of secrets"
        )
    return f"{OPENS}{name}{CLOSES}"


def environment() -> jinja2.Environment:
    """Templates read no files and include none."""
    made = _Sandbox(
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=False,
        cache_size=0,
    )
    kept = {name: made.globals[name] for name in ("range", "dict", "namespace", "joiner")}
    made.globals.clear()
    made.globals.update(kept, secret=_secret)
    return made


class Templates:
    """Compiled templates by a key; the newest `most` of them."""

    def __init__(self, most: int = 1000) -> None:
        self._environment = environment()
        self._most = most
        self._made: dict[str, jinja2.Template] = {}

    def render(
        self, key: str, text: str, facts: Mapping[str, Any], seconds: float = SECONDS
    ) -> str:
        """The file that a template makes of some facts. `key` stands for the text. `seconds` are
        those of this process on a processor: a busy machine makes no template late. Takes
        SIGVTALRM. Raises NotRendered."""

        def work() -> str:
            template = self._made.get(key)
            if template is None:
                if OPENS in text or CLOSES in text:
                    raise NotRendered(
                        0, "it has a character of those that stand around secrets (U+E000, U+E001)"
                    )
                while len(self._made) >= self._most:
                    del self._made[next(iter(self._made))]
                template = self._made[key] = self._environment.from_string(text)
            return _bounded(template, facts)

        return _in_time(work, seconds)


def _bounded(template: jinja2.Template, facts: Mapping[str, Any]) -> str:
    parts = []
    size = 0
    for part in template.generate(facts):
        parts.append(part)
        size += len(part)
        if size > MAX_OUTPUT:
            raise NotRendered(0, f"it makes more than {MAX_OUTPUT >> 10} KiB")
    return "".join(parts)


def _in_time(work: Callable[[], str], seconds: float) -> str:
    """Does it, or raises NotRendered with what went wrong and where."""

    def late(number: int, frame: FrameType | None) -> None:
        raise _Late

    before = signal.signal(signal.SIGVTALRM, late)
    try:
        signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
        try:
            return work()
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    except NotRendered:
        raise
    except _Late as error:
        raise NotRendered(_line(error), f"it takes longer than {seconds:g} s") from None
    except MemoryError:
        raise NotRendered(0, "it takes too much memory") from None
    except jinja2.TemplateSyntaxError as error:
        raise NotRendered(error.lineno, error.message or "bad syntax") from None
    # Whatever a site's template does wrong is told with its line.
    except Exception as error:  # noqa: BLE001
        raise NotRendered(_line(error), str(error)[:300] or type(error).__name__) from None
    finally:
        signal.signal(signal.SIGVTALRM, before)


def _line(error: BaseException) -> int:
    """The last line of the template in a traceback; jinja2 puts them there."""
    lines = [
        frame.lineno
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename == _NAME
    ]
    return lines[-1] or 0 if lines else 0
