"""`layercake new module` and `layercake new variable`: the beginning of a site's own module, which
works at once."""

from __future__ import annotations

import ast
import importlib.util
import keyword
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from string import Template

import click

from layercake.base.files import write_atomic
from layercake.client.command import Answer, App, command
from layercake.client.output import Output
from layercake.kraken.errors import InputError

TEMPLATES = Path(__file__).parent / "templates"
_NAME = re.compile(r"[a-z][a-z0-9_]{0,23}")
_VALUE = re.compile(r"[A-Z][A-Z0-9_]{0,31}")


@click.group()
def new() -> None:
    """Begin a module of your own."""


@command(new)
@click.argument("name")
@click.option(
    "--directory",
    "-d",
    type=click.Path(path_type=Path),
    help="Where to; a new directory NAME if not given.",
)
def module(app: App, name: str, directory: Path | None) -> Answer:
    """Write the Python package NAME: a module with one variable, the mutation that discovers it,
    and a test."""
    parts = _parts(name, ("GOOD", "BAD"))
    if importlib.util.find_spec(name) is not None:
        raise InputError(
            f"cannot make module {name}: Python has a module of that name already",
            hint="take another name",
        )
    place = directory or Path(name)
    files = {
        place / "pyproject.toml": _filled("pyproject", parts),
        place / f"{name}.py": _checked(
            name, _filled("module", {**parts, "code": _filled("variable", parts)})
        ),
        place / f"test_{name}.py": _filled("test", parts),
    }
    existing = [str(path) for path in files if path.exists()]
    if existing:
        raise InputError(
            f"cannot make module {name}: {', '.join(existing)} exists already",
            hint="name another --directory",
        )
    _write(files)
    config = ["modules:", f"  {name}: {{}}"]
    return _answer(
        files,
        [
            "To use it, install it beside Layercake, by the pip of the Python that Layercake runs "
            "in:",
            f"  pip install -e {place.resolve()}",
            "(beside Debian's package: pip install --no-deps --target /usr/local/lib/layercake, "
            "and the directory)",
            "and add this to the head's config.yaml, and start the head again:",
            *(f"  {line}" for line in config),
        ],
    )


@command(new)
@click.argument("directory", metavar="MODULE_DIR", type=click.Path(path_type=Path))
@click.argument("name")
@click.argument("values", metavar="VALUE...", nargs=-1, required=True)
def variable(app: App, directory: Path, name: str, values: tuple[str, ...]) -> Answer:
    """Add the variable NAME to a module made by `new module`, with the mutation that discovers it.

    The first VALUE is what is wanted of a node that shall be up. MODULE_DIR is where the module is.
    """
    parts = _parts(name, values)
    tests = list(directory.glob("test_*.py"))
    file = (
        directory / tests[0].name.removeprefix("test_")
        if len(tests) == 1
        else directory / "module.py"
    )
    if not file.is_file():
        raise InputError(
            f"cannot add variable {name}: {directory} has no module and its test",
            hint="`layercake new module NAME` makes them",
        )
    code = file.read_text()
    test = tests[0].read_text()
    code = _checked(name, _replaced(code, r"^(?=VARIABLES = )", _filled("variable", parts), file))
    wanted = f'"{name}": "{parts["first"]}"'
    for line, more in (
        ("VARIABLES", parts["constant"]),
        ("MUTATIONS", parts["function"]),
        ("WANTED", wanted),
    ):
        code = _replaced(code, rf"(?<=^{line} = )(.*?),?(?=[)}}]$)", rf"\1, {more}", file)
    discover = f'    "{name}-discover": {{"{name}": "{parts["first"]}"}},\n'
    files = {file: code, tests[0]: _replaced(test, r"(^FINDS = \{\n)", rf"\1{discover}", tests[0])}
    _write(files)
    return _answer(
        files, [f"Now let {parts['function']} find out what is so, and start the head again."]
    )


def _answer(files: Mapping[Path, str], then: Sequence[str]) -> Answer:
    def show(out: Output) -> None:
        for line in (*(f"wrote {path}" for path in files), *then):
            out.line(line)

    return Answer({"files": [str(path) for path in files], "then": list(then)}, show)


def _parts(name: str, values: Sequence[str]) -> dict[str, str]:
    """What the templates are filled with. Raises InputError for names that cannot be."""
    if not _NAME.fullmatch(name) or keyword.iskeyword(name):
        raise InputError(
            f"cannot use {name!r} as a name: lower case, digits and _ make one, at most 24 "
            "characters"
        )
    wrong = [v for v in values if not _VALUE.fullmatch(v) or v == "UNKNOWN"]
    if wrong or len(set(values)) != len(values):
        raise InputError(
            f"cannot use the values {' '.join(values)}: they are distinct words in upper case, as "
            "GOOD BAD",
            hint="UNKNOWN is always one of them, and needs no mention",
        )
    return {
        "name": name,
        "constant": name.upper(),
        "function": f"{name}_discover",
        "first": values[0],
        "values": ", ".join(f'"{v}"' for v in values),
    }


def _filled(template: str, parts: Mapping[str, str]) -> str:
    return Template((TEMPLATES / f"{template}.txt").read_text()).substitute(parts)


def _replaced(text: str, pattern: str, new_text: str, file: Path) -> str:
    """Raises InputError unless the pattern is there once."""
    changed, count = re.subn(pattern, new_text, text, flags=re.MULTILINE)
    if count != 1:
        raise InputError(
            f"cannot add to {file}: it no longer has the lines that `layercake new` looks for",
            hint="add it by hand",
        )
    return changed


def _checked(name: str, code: str) -> str:
    """The code of a module. Raises InputError if a name in it means two things now, or it is no
    Python."""
    try:
        tree = ast.parse(code)
    except SyntaxError as error:
        raise InputError(f"cannot add {name}: the module is no Python: {error}") from None
    names: list[str] = []
    for node in tree.body:
        if isinstance(node, ast.ImportFrom):
            names += [alias.asname or alias.name for alias in node.names]
        elif isinstance(node, ast.Assign):
            names += [target.id for target in node.targets if isinstance(target, ast.Name)]
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.append(node.name)
    twice = [repeated for repeated, count in Counter(names).items() if count > 1]
    if twice:
        raise InputError(
            f"cannot add {name}: the module has {', '.join(twice)} already",
            hint="take another name",
        )
    return code


def _write(files: Mapping[Path, str]) -> None:
    for path, text in files.items():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(path, text, mode=0o644)
        except OSError as error:
            raise InputError(f"cannot write {path}: {error.strerror}") from None
