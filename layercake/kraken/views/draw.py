"""The state graph as a picture: DOT for graphviz, and a plain layered SVG where there is no
graphviz."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape

from layercake.kraken.errors import InputError
from layercake.kraken.facts import NodeState
from layercake.kraken.planner import Planner
from layercake.kraken.variables import UNKNOWN

MOST_STATES = 300
"""Beyond this many states a picture helps nobody; with a node, its path is drawn then."""

_COLUMN = 220
_ROW = 44
_LINE = 15
_PAD = 10
_COLOURS = {"here": "#ffd27f", "path": "#cfe8ff", "goal": "#c8f0c8", "": "#ffffff"}


@dataclass(frozen=True, slots=True)
class _Picture:
    """What to draw: labels of states, their roles ("here", "path", "goal" or ""), and edges {(from,
    to): labels}."""

    labels: dict[int, tuple[str, ...]]
    roles: dict[int, str]
    edges: dict[tuple[int, int], tuple[str, ...]]
    path: frozenset[tuple[int, int]]


def _picture(planner: Planner, node: NodeState | None) -> _Picture:
    trail = [] if node is None else [node.state]
    taken: list[tuple[int, int, str]] = []
    for m in (planner.chain(node.state, node.goal) or ()) if node is not None else ():
        trail.append(planner.after(m.name, trail[-1]))
        taken.append((trail[-2], trail[-1], m.name))
    states = _shown_states(planner, trail)
    edges = _edges(planner, set(states), taken)
    roles = dict.fromkeys(states, "")
    if node is not None:
        roles |= dict.fromkeys(trail, "path")
        roles |= {trail[-1]: "goal"} if node.goal.met(trail[-1]) else {}
        roles |= {trail[0]: "here"}
    labels = {s: _label(planner, s) for s in states}
    return _Picture(
        labels,
        roles,
        {k: tuple(sorted(v)) for k, v in sorted(edges.items())},
        frozenset((a, b) for a, b, _ in taken),
    )


def _shown_states(planner: Planner, trail: list[int]) -> list[int]:
    """All states, or only those of the trail where there are too many to draw. Raises
    InputError."""
    states = list(planner.graph.states)
    if len(states) > MOST_STATES:
        if not trail:
            raise InputError(
                f"cannot draw the state graph: it has {len(states)} states",
                hint="name a node, then its path is drawn",
            )
        states = []
    return [*states, *(state for state in trail if state not in states)]


def _edges(
    planner: Planner, shown: set[int], taken: list[tuple[int, int, str]]
) -> dict[tuple[int, int], list[str]]:
    """The mutations that lead from one shown state to another, and those that are `taken`."""
    graph = planner.graph
    edges: dict[tuple[int, int], list[str]] = {}
    for source, index, target in graph.edges:
        if source in shown and target in shown:
            edges.setdefault((source, target), []).append(graph.steps[index].mutation.name)
    for source, target, name in taken:
        names = edges.setdefault((source, target), [])
        if name not in names:
            names.append(name)
    return edges


def _label(planner: Planner, state: int) -> tuple[str, ...]:
    return tuple(f"{k}={v}" for k, v in planner.layout.unpack(state).items() if v != UNKNOWN) or (
        "nothing known",
    )


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def dot(planner: Planner, node: NodeState | None = None) -> str:
    """The graph in Graphviz DOT; with a node, where it is, its path and its end are coloured.
    Raises InputError if too large."""
    picture = _picture(planner, node)
    names = {state: f"s{i}" for i, state in enumerate(picture.labels)}
    lines = [
        "digraph layercake {",
        "  rankdir=LR;",
        '  node [shape=box, style="rounded,filled", fontname="sans-serif", fontsize=10];',
        '  edge [fontname="sans-serif", fontsize=9];',
    ]
    for state, label in picture.labels.items():
        role = picture.roles[state]
        width = ", penwidth=2" if role else ""
        lines.append(
            f"  {names[state]} [label={_quoted(chr(10).join(label))}, "
            f'fillcolor="{_COLOURS[role]}"{width}];'
        )
    for (source, target), mutations in picture.edges.items():
        bold = (
            ', color="#1060c0", fontcolor="#1060c0", penwidth=2.5'
            if (source, target) in picture.path
            else ""
        )
        lines.append(
            f"  {names[source]} -> {names[target]} "
            f"[label={_quoted(chr(10).join(mutations))}{bold}];"
        )
    return "\n".join([*lines, "}", ""])


def _layers(picture: _Picture) -> list[list[int]]:
    """Longest-path layers. Edges that close a circle do not count."""
    order, following = _without_circles(picture)
    depth = dict.fromkeys(picture.labels, 0)
    for state in reversed(order):
        for target in following[state]:
            depth[target] = max(depth[target], depth[state] + 1)
    # Successors come first here: a state that nothing leads to moves up beside what it leads to.
    for state in order:
        if following[state] and state:
            depth[state] = min(depth[target] for target in following[state]) - 1
    layers: list[list[int]] = [[] for _ in range(max(depth.values()) + 1)]
    for state in sorted(depth):
        layers[depth[state]].append(state)
    return _untangled(layers, picture)


def _without_circles(picture: _Picture) -> tuple[list[int], dict[int, list[int]]]:
    """The states, each after all that follow it, and what follows each of them: without the edges
    that close a circle, found by walking depth first from the least known state."""
    following: dict[int, list[int]] = {s: [] for s in picture.labels}
    for source, target in picture.edges:
        following[source].append(target)
    order: list[int] = []
    forward: dict[int, list[int]] = {s: [] for s in picture.labels}
    on_path: dict[int, bool] = {}  # of the states that were reached
    for start in sorted(picture.labels, key=lambda s: (len(picture.labels[s]), s)):
        stack = [(start, iter(following[start]))] if start not in on_path else []
        on_path.setdefault(start, True)
        while stack:
            state, rest = stack[-1]
            for target in rest:
                if not on_path.get(target):
                    forward[state].append(target)
                if target not in on_path:
                    on_path[target] = True
                    stack.append((target, iter(following[target])))
                    break
            else:
                on_path[state] = False
                order.append(state)
                stack.pop()
    return order, forward


def _untangled(layers: list[list[int]], picture: _Picture) -> list[list[int]]:
    """Each layer sorted by the mean place of its neighbours, forwards and backwards, a few
    times."""
    neighbours: dict[int, list[int]] = {s: [] for s in picture.labels}
    for source, target in picture.edges:
        neighbours[source].append(target)
        neighbours[target].append(source)
    place = {s: float(i) for layer in layers for i, s in enumerate(layer)}
    for turn in range(6):
        for layer in layers if turn % 2 == 0 else reversed(layers):
            mean = sorted(
                (sum(place[n] for n in neighbours[s]) / max(1, len(neighbours[s])), s)
                for s in layer
            )
            layer[:] = [s for _, s in mean]
            place |= {s: float(i) for i, s in enumerate(layer)}
    return layers


_Box = tuple[float, float, float, float]


def _boxes(layers: list[list[int]], picture: _Picture) -> dict[int, _Box]:
    """{state: (x, y, width, height)}, each layer centred in its column."""
    heights = {s: _LINE * len(label) + _PAD for s, label in picture.labels.items()}
    tall = max(sum(heights[s] + _ROW for s in layer) for layer in layers)
    boxes: dict[int, _Box] = {}
    for column, layer in enumerate(layers):
        y = 20 + (tall - sum(heights[s] + _ROW for s in layer)) / 2
        for state in layer:
            width = 7.0 * max(len(text) for text in picture.labels[state]) + 2 * _PAD
            boxes[state] = (20.0 + column * _COLUMN, y, width, heights[state])
            y += heights[state] + _ROW
    return boxes


def _edge(a: _Box, b: _Box, names: tuple[str, ...], bold: bool) -> list[str]:
    forward = b[0] > a[0]
    x1 = a[0] + (a[2] if forward else a[2] / 2)
    y1 = a[1] + (a[3] / 2 if forward else a[3])
    x2 = b[0] + (0 if forward else b[2] / 2)
    y2 = b[1] + (b[3] / 2 if forward else b[3])
    bend = max(40.0, abs(x2 - x1) / 2)
    if forward:
        c1 = (x1 + bend, y1)
        c2 = (x2 - bend, y2)
    else:
        drop = 30 + abs(x1 - x2) / 12
        c1 = (x1, y1 + drop)
        c2 = (x2, y2 + drop)
    colour, width = ("#1060c0", 2.5) if bold else ("#777777", 1)
    lines = [
        f'<path d="M{x1:.0f} {y1:.0f} C{c1[0]:.0f} {c1[1]:.0f} {c2[0]:.0f} {c2[1]:.0f} {x2:.0f} '
        f'{y2:.0f}" fill="none" '
        f'stroke="{colour}" stroke-width="{width}" '
        f'marker-end="url(#{"bold" if bold else "thin"})"/>'
    ]
    # On the curve at 0.4, nearer the tail: labels of edges that meet at one head would lie upon
    # each other.
    x = 0.216 * x1 + 0.432 * c1[0] + 0.288 * c2[0] + 0.064 * x2
    y = 0.216 * y1 + 0.432 * c1[1] + 0.288 * c2[1] + 0.064 * y2
    for i, name in enumerate(names):
        # Twice: a white shadow keeps the name readable on top of lines. Not every renderer knows
        # paint-order.
        at = f'<text x="{x:.0f}" y="{y + 10 * i - 3:.0f}" class="edge'
        lines += [
            f'{at} shadow">{escape(name)}</text>',
            f'{at}" fill="{colour}">{escape(name)}</text>',
        ]
    return lines


_HEADER = """\
<svg xmlns="http://www.w3.org/2000/svg"
 width="{width:.0f}" height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}">
<style>
text {{font: 11px sans-serif}}
.edge {{font-size: 10px; text-anchor: middle}}
.shadow {{stroke: #ffffff; stroke-width: 3px; fill: #ffffff}}
</style>
<defs>{thin}{bold}</defs>
<rect width="{width:.0f}" height="{height:.0f}" fill="#ffffff"/>"""
_ARROW = (
    '<marker id="{id}" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="{size}" '
    'markerHeight="{size}" '
    'markerUnits="userSpaceOnUse" orient="auto"><path d="M0 1L10 5L0 9z" fill="{colour}"/></marker>'
)


def svg(planner: Planner, node: NodeState | None = None) -> str:
    """The graph as an SVG document; colours as in `dot`. Raises InputError if it is too large to
    draw."""
    picture = _picture(planner, node)
    layers = _layers(picture)
    boxes = _boxes(layers, picture)
    width = max(x + w for x, _, w, _ in boxes.values()) + 20
    height = max(y + h for _, y, _, h in boxes.values()) + 90
    thin = _ARROW.format(id="thin", size=8, colour="#777777")
    bold = _ARROW.format(id="bold", size=11, colour="#1060c0")
    lines = [_HEADER.format(width=width, height=height, thin=thin, bold=bold)]
    for (source, target), names in picture.edges.items():
        lines += _edge(boxes[source], boxes[target], names, (source, target) in picture.path)
    for state, (x, y, w, h) in boxes.items():
        role = picture.roles[state]
        lines.append(
            f'<rect x="{x:.0f}" y="{y:.0f}" width="{w:.0f}" height="{h:.0f}" rx="5" '
            f'fill="{_COLOURS[role]}" '
            f'stroke="#333333" stroke-width="{2 if role else 1}"/>'
        )
        for i, text in enumerate(picture.labels[state]):
            lines.append(
                f'<text x="{x + _PAD:.0f}" '
                f'y="{y + _PAD / 2 + _LINE * i + 11:.0f}">{escape(text)}</text>'
            )
    return "\n".join([*lines, "</svg>", ""])
