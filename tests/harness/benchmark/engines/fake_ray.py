"""As much of Ray's interface as runs on a cluster need, in this process and without a cluster."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import SimpleNamespace
from typing import Any

GB = 1e9


class RayError(Exception):
    """What Ray raises of processes and nodes."""


class RayTaskError(RayError):
    """What Ray raises for an exception of the code that it runs."""

    def __init__(self, cause: Exception) -> None:
        super().__init__(str(cause))
        self.cause = cause


class Future:
    """An answer that is there once `answer` gives one; None before."""

    def __init__(self, answer: Callable[[], tuple[Any, Exception | None] | None]) -> None:
        self._answer, self._known = answer, None

    def known(self) -> tuple[Any, Exception | None] | None:
        if self._known is None:
            self._known = self._answer()
        return self._known


class Handle:
    """An actor; its methods answer when they are waited for, those that wait themselves when they are woken."""

    def __init__(self, made: Any) -> None:
        self._made = made

    def __getattr__(self, name: str) -> Any:
        def remote(*arguments: Any) -> Future:
            method = getattr(self._made, name)
            if name == "take":
                return Future(lambda: self._now(method) if self._made._some.is_set() else None)
            future = Future(lambda: self._now(method, *arguments))
            if inspect.iscoroutinefunction(method):
                future.known()
            return future

        return SimpleNamespace(remote=remote)

    @staticmethod
    def _now(method: Callable[..., Any], *arguments: Any) -> tuple[Any, Exception | None]:
        try:
            answer = method(*arguments)
            if inspect.iscoroutine(answer):
                try:
                    answer.send(None)
                except StopIteration as end:
                    answer = end.value
        except RayError as error:
            return None, error
        except Exception as error:
            return None, RayTaskError(error)
        return answer, None


class FakeRay:
    """The module; `nodes_` are the resources of each node."""

    __spec__ = ModuleSpec("ray", None)
    exceptions = SimpleNamespace(RayError=RayError, RayTaskError=RayTaskError)
    util = SimpleNamespace(
        scheduling_strategies=SimpleNamespace(NodeAffinitySchedulingStrategy=lambda *_, **__: "here")
    )

    def __init__(self, *nodes: dict[str, float], hosts: int = 1) -> None:
        self.nodes_, self._hosts = nodes or ({"CPU": 2.0, "memory": 8 * GB},), hosts
        self.options: list[dict[str, Any]] = []
        self.made: list[Any] = []
        self.killed: list[Any] = []
        self.joined: list[str | None] = []

    def init(self, address: str | None, **_: Any) -> None:
        self.joined.append(address)

    def shutdown(self) -> None:
        self.joined.append("left")

    def nodes(self) -> list[dict[str, Any]]:
        return [
            {"Alive": True, "NodeManagerAddress": f"10.0.0.{number % self._hosts}", "Resources": resources}
            for number, resources in enumerate(self.nodes_)
        ]

    def get_runtime_context(self) -> Any:
        return SimpleNamespace(get_node_id=lambda: "node")

    def remote(self, made_of: type) -> Any:
        def make(*arguments: Any) -> Handle:
            made = made_of(*arguments)
            self.made.append(made)
            return Handle(made)

        def options(**given: Any) -> Any:
            self.options.append(given)
            return SimpleNamespace(remote=make)

        return SimpleNamespace(options=options)

    def put(self, value: Any) -> Future:
        return Future(lambda: (value, None))

    def get(self, future: Future) -> Any:
        known = future.known()
        assert known is not None, "nothing would ever answer this"
        answer, error = known
        if error is not None:
            raise error
        return answer

    def wait(self, futures: Sequence[Future], *, num_returns: int, timeout: float | None) -> tuple[list[Future], Any]:
        assert num_returns == 1
        done = next(([future] for future in futures if future.known()), [])
        assert done or timeout is not None, "this would wait for ever"
        return done, None

    def kill(self, handle: Handle) -> None:
        self.killed.append(handle._made)
