"""What a dispatcher asks about the handlers of its node."""

from __future__ import annotations

from holdfast.handler import Registry


class Kinds:
    """The handlers of one queue, as its dispatcher asks for them."""

    def __init__(self, registry: Registry, queue: str) -> None:
        handlers = [handler for handler in registry if handler.queue == queue]
        self.deadlines_s = {handler.kind: handler.deadline.seconds for handler in registry}
        self.skipping_errors = frozenset(h.kind for h in registry if h.skips_errors)
        self._names = frozenset(h.kind for h in registry)
        self.mine = sorted(h.kind for h in handlers)
        # Of all kinds: a task may be enqueued into another queue than its kind's own.
        self.turns = {handler.kind: handler.turns for handler in registry}

    def handles(self, kind: str) -> bool:
        return kind in self._names
