"""In which order the images of a set start: after those that they depend on. Pure; the head checks
sets by it too."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from layercake.kraken.errors import InputError

Dependencies = Mapping[str, Iterable[str]]
"""{image: the images that it depends on, as it names them}"""


def meant(name: str, known: Iterable[str]) -> list[str]:
    """The images that a dependency means: the one of that name or, without a tag, whatever tag of
    it there is."""
    return sorted(
        k for k in known if k == name or (":" not in name and k.partition(":")[0] == name)
    )


def start_order(sets: Dependencies) -> list[str]:
    """The names, each after those that it depends on; by name where that leaves a choice. Raises
    InputError for a dependency that is not in the set, and for a circle."""
    needs: dict[str, set[str]] = {}
    for name in sorted(sets):
        needs[name] = set()
        for dependency in sets[name]:
            providers = meant(dependency, sets)
            if not providers:
                raise InputError(
                    f"cannot use image set: {name} depends on {dependency}, which is not in it "
                    f"(it has: {', '.join(sorted(sets))})",
                    hint=f"add {dependency}, or an image of that name",
                )
            needs[name].update(providers)
    order: list[str] = []
    while len(order) < len(needs):
        ready = next((n for n in sorted(needs) if n not in order and needs[n] <= set(order)), None)
        if ready is None:
            raise InputError(
                "cannot use image set: its images depend on each other: "
                f"{' -> '.join(_circle(needs, order))}",
                hint="one of them has to start first",
            )
        order.append(ready)
    return order


def _circle(needs: Mapping[str, set[str]], order: list[str]) -> list[str]:
    """One circle among what cannot be ordered."""
    path = [min(n for n in needs if n not in order)]
    while True:
        following = min(n for n in needs[path[-1]] if n not in order)
        if following in path:
            return [*path[path.index(following) :], following]
        path.append(following)


def ranks(sets: Dependencies) -> dict[str, int]:
    """A rank for each image such that dependencies have lower ones; what is missing or circular is
    passed over, because what runs has to be stopped in some order whatever it says."""
    order: list[str] = []
    rest = sorted(sets)
    while rest:
        ready = next(
            (
                n
                for n in rest
                if not any(m in rest and m != n for d in sets[n] for m in meant(d, sets))
            ),
            rest[0],
        )
        rest.remove(ready)
        order.append(ready)
    return {name: rank for rank, name in enumerate(order)}
