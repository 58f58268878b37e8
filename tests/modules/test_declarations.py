"""What cannot work is refused when the head starts, before any process runs: with the module's
name, and the place in the file."""

from __future__ import annotations

import itertools
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from layercake.head import settings
from layercake.head.loading import load_modules
from layercake.kraken.errors import DeclarationError, GraphTooLarge, InputError, LayercakeError

HEAD = "interface: lo\naddress: 127.0.0.1\n"
GRADE = "variables: {grade: {values: [GOOD, BAD]}}\n"
LOOK = "  grade-look: {changes: {grade: [UNKNOWN, GOOD]}}\n"
LETTERS = ["UNKNOWN", *"ABCDEFG"]


def write(directory: Path, declares: str) -> None:
    """A head with the module warmth, which declares this."""
    (directory / "module.yaml").write_text("doc: x\n" + declares)
    modules = f"modules:\n  warmth: {{command: [/bin/true], declares: {directory}/module.yaml}}\n"
    (directory / settings.FILE_NAME).write_text(HEAD + modules)


def loaded(directory: Path) -> None:
    """As the head does it when it starts."""
    load_modules(directory, settings.load(directory))


def too_many() -> str:
    """Eight variables of eight values, each independent of the others."""
    variables = [f"  v{i}: {{values: [{', '.join(LETTERS[1:])}]}}" for i in range(8)]
    steps = [
        f"  v{i}-{a.lower()}: {{changes: {{v{i}: [{a}, {b}]}}}}"
        for i in range(8)
        for a, b in itertools.pairwise(LETTERS)
    ]
    return "\n".join(["variables:", *variables, "mutations:", *steps])


BAD: dict[str, tuple[str, type[LayercakeError], tuple[str, ...]]] = {
    "unreachable goal": (
        f"{GRADE}mutations:\n{LOOK}goals: {{up: {{grade: BAD}}}}",
        DeclarationError,
        ("module warmth: no mutations lead from UNKNOWN to its goal grade=BAD",),
    ),
    "another goal for the same variable": (
        "goals: {up: {power: 'OFF'}}",
        DeclarationError,
        ("module warmth", "wants power=OFF", "contradiction", "power=ON"),
    ),
    "goals that exclude each other": (
        f"{GRADE}mutations:\n  look: {{changes: {{grade: [UNKNOWN, GOOD]}}, "
        "requires: {power: 'OFF'}}\ngoals: {up: {grade: GOOD}}",
        DeclarationError,
        ("module warmth", "wants grade=GOOD", "contradiction", "power=ON"),
    ),
    "a variable twice": (
        "variables: {power: {values: [WEAK, STRONG]}}",
        DeclarationError,
        ("module warmth: variable power is declared by module powerman already",),
    ),
    "a mutation twice": (
        f"{GRADE}mutations:\n  power-on: {{changes: {{grade: [UNKNOWN, GOOD]}}}}",
        DeclarationError,
        ("module warmth: mutation power-on is declared by module powerman already",),
    ),
    "a mutation of an unknown variable": (
        "mutations:\n  fix: {changes: {grad: [BAD, GOOD]}}",
        DeclarationError,
        ("module warmth", "mutation fix", "not declared", "grad=BAD"),
    ),
    "a variable that nothing discovers": (
        f"{GRADE}mutations:\n  fix: {{changes: {{grade: [BAD, GOOD]}}}}",
        DeclarationError,
        ("module warmth", "mutation fix", "no mutation discovers its variable grade"),
    ),
    "a goal of an unknown variable": (
        "goals: {up: {grade: GOOD}}",
        DeclarationError,
        ("module warmth", "'grade'", "not declared"),
    ),
    "an unknown variable that is watched": (
        "watches: [grade]",
        DeclarationError,
        ("module warmth", "'grade'", "not declared"),
    ),
    "a name that is none": (
        "variables: {Grade: {values: [GOOD]}}",
        DeclarationError,
        ("module warmth", "variable 'Grade'"),
    ),
    "an event kind of another": (
        "events: {head.started: {meaning: x}}",
        DeclarationError,
        ("module warmth", "declared by module head"),
    ),
    "too many states": (
        too_many(),
        GraphTooLarge,
        ("module warmth", "more than 200000 states", "v7 (8)"),
    ),
    "an unknown key": (
        "variabels: {}",
        InputError,
        ("of module warmth", "module.yaml:2:1", "did you mean variables?"),
    ),
    "an unknown key further in": (
        "mutations:\n  fix: {changes: {}, retry: 3}",
        InputError,
        ("of module warmth", "module.yaml:3:22", "mutations.fix.retry", "did you mean retries?"),
    ),
    "a value of another type": (
        "mutations:\n  fix: {changes: {grade: [BAD]}}",
        InputError,
        ("of module warmth", "module.yaml:3:18", "mutations.fix.changes", "length 2"),
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_it_is_refused(tmp_path: Path, case: str) -> None:
    declares, kind, said = BAD[case]
    write(tmp_path, declares)
    with pytest.raises(kind) as refused:
        loaded(tmp_path)
    assert [word for word in said if word not in str(refused.value)] == []


def test_what_is_right_is_loaded(tmp_path: Path) -> None:
    write(tmp_path, f"{GRADE}mutations:\n{LOOK}goals: {{up: {{grade: GOOD}}}}")
    loaded(tmp_path)


CONFIG = {
    "  warmth: {comand: [x]}": (
        "config.yaml:4:12",
        "modules.warmth.comand",
        "did you mean command?",
    ),
    "  warmth: {command: [x]}": (
        "module warmth",
        "it has a command and declares nothing",
        "modules.warmth.declares",
    ),
    "  warmth: {command: [x], declares: /none.yaml}": (
        "cannot read /none.yaml",
        "no such file",
        "modules.warmth.declares",
    ),
    "  warmth: {declares: /nowhere/module.yaml}": (
        "module warmth",
        "it declares and has no program",
        "modules.warmth.command",
    ),
    "  warmht: {}": ("module warmht", "no installed package offers it", "did you mean warmth?"),
    "  warmth: {settings: {limit: hot}}": ("module warmth: its settings: ", "$.limit"),
    "  warmth: {settings: {limt: 3}}": ("module warmth: its settings: ", "`limt`"),
    "  broken: {}": ("module broken: its package fails: ZeroDivisionError: division by zero",),
    "  quits: {}": ("module quits: its package fails: SystemExit",),
    "  other: {}": ("module other: its entry point is not a Module of that name",),
    "  handless: {}": ("module handless: nobody carries out its mutation look",),
}


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Packages of the site, as pip would have installed them: one that works, and what can be wrong
    with one."""
    code = {
        "warmth": """
            import msgspec
            from layercake.moduleapi.module import Module
            class Settings(msgspec.Struct, forbid_unknown_fields=True):
                limit: int = 70
            MODULE = Module(name="warmth", doc="x", settings=Settings)
            """,
        "broken": "1 / 0",
        "quits": "raise SystemExit(3)",
        "other": "from sitemodule_warmth import MODULE",
        "handless": """
            from layercake.kraken.mutation import declare
            from layercake.moduleapi.module import Module
            from layercake.kraken.variables import Variable
            look = declare("look", changes={"grade": ("UNKNOWN", "GOOD")})
            MODULE = Module(name="handless", doc="x", variables=(Variable("grade", ("UNKNOWN", "GOOD")),), mutations=(look,))
            """,
    }
    for name, text in code.items():
        (tmp_path / f"sitemodule_{name}.py").write_text(textwrap.dedent(text))
    about = tmp_path / "sitemodules-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: sitemodules\nVersion: 1.0\n")
    points = [f"{name} = sitemodule_{name}:MODULE" for name in code]
    (about / "entry_points.txt").write_text("\n".join(["[layercake.modules]", *points]))
    monkeypatch.syspath_prepend(str(tmp_path))


@pytest.mark.parametrize("line", CONFIG)
@pytest.mark.usefixtures("packages")
def test_a_wrong_entry_in_the_settings_is_refused(tmp_path: Path, line: str) -> None:
    (tmp_path / settings.FILE_NAME).write_text(f"{HEAD}modules:\n{line}\n")
    with pytest.raises(LayercakeError) as refused:
        loaded(tmp_path)
    assert [word for word in CONFIG[line] if word not in str(refused.value)] == []


@pytest.mark.usefixtures("packages")
def test_a_package_is_loaded_with_its_settings(tmp_path: Path) -> None:
    (tmp_path / settings.FILE_NAME).write_text(
        HEAD + "modules:\n  warmth: {settings: {limit: 80}}\n"
    )
    table, _ = load_modules(tmp_path, settings.load(tmp_path))
    assert table.settings["warmth"].limit == 80


def test_a_sites_module_from_before_keeps_its_variable(tmp_path: Path) -> None:
    write(
        tmp_path,
        "variables: {thermal: {values: [NORMAL, HIGH]}}\nmutations:\n"
        "  thermal-discover: {changes: {thermal: [UNKNOWN, NORMAL]}, requires: {run: "
        "SYNC}}\ngoals: {up: {thermal: NORMAL}}",
    )
    table, launches = load_modules(tmp_path, settings.load(tmp_path))
    assert "warmth" in launches and "thermal" not in table.modules and "thermal" not in table.parts
    assert [v.values for v in table.variables if v.name == "thermal"] == [
        ("UNKNOWN", "NORMAL", "HIGH")
    ]


@pytest.mark.parametrize(
    "case", ["unreachable goal", "too many states", "an unknown key further in"]
)
def test_serve_says_so_and_ends(tmp_path: Path, case: str) -> None:
    declares, _, said = BAD[case]
    write(tmp_path, declares)
    command = [sys.executable, "-m", "layercake.cli.main", "serve", "--data-dir", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=180)
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    assert [word for word in said if word not in done.stderr] == []
