"""Scenes by advice: those that call for it and those that only look like it, and what is asked of each."""

from collections.abc import Callable
from dataclasses import dataclass, field
from inspect import signature

import pytest

from collectors.vocabulary import Metric

from .scenarios import ADD, GEMM, Scene

SceneOf = Callable[[], Scene]
Recipe = Callable[..., object]
"""What each of five steps is made of; one that takes nothing makes its scene itself."""


@dataclass
class Cases:
    """Scenes of one topic."""

    calling: list[tuple[str, SceneOf]] = field(default_factory=list)
    quiet: list[tuple[str, SceneOf]] = field(default_factory=list)

    def calls_for(self, *kinds: str, **scenes: Recipe) -> Callable[[Recipe], SceneOf]:
        """Each of the scenes must be told these, and the one that is decorated."""
        return self._mark(self.calling, kinds, scenes)

    def silent(self, *kinds: str, **scenes: Recipe) -> Callable[[Recipe], SceneOf]:
        """None of the scenes must be told these, nor the one that is decorated."""
        return self._mark(self.quiet, kinds, scenes)

    @staticmethod
    def _mark(
        cases: list[tuple[str, SceneOf]], kinds: tuple[str, ...], scenes: dict[str, Recipe]
    ) -> Callable[[Recipe], SceneOf]:
        def add(recipe: Recipe, name: str = "") -> SceneOf:
            scene = _scene_of(recipe, name or recipe.__name__)
            cases.extend((kind, scene) for kind in kinds)
            return scene

        for name, recipe in scenes.items():
            add(recipe, name)
        return add

    def tests(self) -> tuple[Callable[[str, SceneOf], None], Callable[[str, SceneOf], None]]:
        """A test of what must be given, and one of what must not."""

        @pytest.mark.parametrize(("kind", "scene"), self.calling, ids=_name)
        def given(kind: str, scene: SceneOf) -> None:
            advice = scene().advice()
            assert kind in advice
            for advisory in advice.values():
                assert advisory.says and advisory.suggests and advisory.evidence
                assert 0.5 <= advisory.confidence < 1
                assert advisory.saves_at_most is None or 0 < advisory.saves_at_most < 1
                assert advisory.saves is None or advisory.saves <= advisory.saves_at_most

        @pytest.mark.parametrize(("kind", "scene"), self.quiet, ids=_name)
        def silent(kind: str, scene: SceneOf) -> None:
            assert kind not in scene().advice()

        return given, silent


def _scene_of(recipe: Recipe, name: str) -> SceneOf:
    def scene() -> Scene:
        made = looped(recipe) if signature(recipe).parameters else recipe()
        assert isinstance(made, Scene)
        return made

    scene.__name__ = name
    return scene


def _name(part: object) -> str:
    return getattr(part, "__name__", str(part))


def looped(body: Callable[[Scene], object], steps: int = 5, scene: Scene | None = None) -> Scene:
    """Steps of the same."""
    scene = scene or Scene()
    for _ in range(steps):
        body(scene)
        scene.step()
    return scene


def small(scene: Scene, count: int = 200, gap: float = 12.0, name: str = ADD) -> None:
    """Kernels that end before the next is launched."""
    for _ in range(count):
        scene.kernel(name, 2.0, late=gap, blocks=8)


def large(scene: Scene, count: int = 20, us: float = 300.0) -> None:
    """Products launched ahead."""
    for _ in range(count):
        scene.kernel(GEMM, us, blocks=132)


def memory(scene: Scene, used: float) -> Scene:
    """Readings of so much of the memory in use."""
    scene.gauge(Metric.MEMORY_TOTAL_BYTES, 140e9)
    return scene.gauge(Metric.MEMORY_USED_BYTES, used * 140e9)


def without_calls(scene: Scene) -> Scene:
    """The same as a tier sees it that records kernels only."""
    scene.calls.clear()
    return scene
