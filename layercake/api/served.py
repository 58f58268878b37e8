"""Which requests the head's web server has answered, and how long that took, by route: for the
head's metrics.

What tells requests apart is the template of a route ("/v1/nodes/{name}"), so that nobody makes
series up by asking for paths that there are not: those are all one, OTHER.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable

from aiohttp import web
from aiohttp.typedefs import Handler

from layercake.base.histogram import Histogram
from layercake.moduleapi.fast_response import FastResponse, PlainRequest

BOUNDS = (0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 30.0)
"""Seconds: from an answer that was ready to one that waits for BMCs."""
CLASSES = ("2xx", "4xx", "5xx")
"""The classes of answers that every route has a counter of from the beginning."""
OTHER = "other"
"""The route of requests that no route is for."""

Key = tuple[str, str]
"""Method and template of a route."""


class ServedRequests:
    """Counts. `timer` gives seconds."""

    def __init__(self, timer: Callable[[], float] = time.perf_counter) -> None:
        self._timer = timer
        self.answers: Counter[tuple[str, str, str]] = Counter()
        """By method, template and class of the answer."""
        self.took: dict[Key, Histogram] = {}
        """Seconds, of the routes that were asked for. Answers that go on for as long as somebody
        follows them are not in it."""

    def expect(self, routes: Iterable[Key]) -> None:
        """These routes there are: each has its counters from now on, at 0."""
        for method, template in (*routes, ("", OTHER)):
            for kind in CLASSES:
                self.answers[method, template, kind] += 0

    def add(self, method: str, template: str, status: int, seconds: float | None) -> None:
        """One request was answered; `seconds` None: how long it took means nothing."""
        self.answers[method, template, f"{status // 100}xx"] += 1
        if seconds is not None:
            self.took.setdefault((method, template), Histogram(BOUNDS)).add(seconds)

    def watch(self, app: web.Application) -> None:
        """Counts what an application answers from now on. All its routes have to be there."""
        app.middlewares.insert(0, self._counted)
        self.expect(_key(route) for route in app.router.routes())

    @web.middleware
    async def _counted(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        began = self._timer()
        key = _key(request.match_info.route)
        try:
            response = await handler(request)
        except web.HTTPException as answer:
            self.add(*key, answer.status, self._timer() - began)
            raise
        goes_on = response.prepared
        self.add(*key, response.status, None if goes_on else self._timer() - began)
        return response

    def quick(
        self, answer: Callable[[PlainRequest], FastResponse | None]
    ) -> Callable[[PlainRequest], FastResponse | None]:
        """The same for answers out of hand."""

        def counted(asked: PlainRequest) -> FastResponse | None:
            began = self._timer()
            found = answer(asked)
            if found is not None:
                method = "GET" if asked.body is None else "POST"
                self.add(method, found.route, int(found.status), self._timer() - began)
            return found

        return counted


def _key(route: web.AbstractRoute) -> Key:
    resource = route.resource
    if resource is None:
        return "", OTHER
    return "GET" if route.method == "HEAD" else route.method, resource.canonical
