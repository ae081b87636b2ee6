"""A checkpoint, and what waits on it, through the steps from one version to another."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ...errors import EvolutionError
from . import inputs, shaping, waiting
from .naming import Gone, Names
from .shaping import Shape
from .steps import Stage, StateSchema
from .tasks import Task
from .waiting import Batch


@dataclass(frozen=True, slots=True)
class Walk:
    """Where the steps have led."""

    shape: Shape
    stages: Sequence[Stage]
    batches: tuple[Batch, ...]

    def task(self, task: Task) -> Task:
        """A task of the first version in the names of the last.

        Raises:
            Gone: if its node is no more.
        """
        for stage in self.stages:
            task = Names(stage.nodes).task(task)
        return task


def walk(
    schema: StateSchema,
    shape: Shape,
    path: str,
    from_: int,
    to: int,
    batches: Iterable[Batch] = (),
) -> Walk:
    """The checkpoint of the graph at `path`, and the batches, at version `to`.

    Raises:
        EvolutionError: if they cannot be brought there without losing anything.
    """
    held = tuple(batches)
    stages = schema.stages(from_, to, path)
    if any(stage.shapes or stage.frees for stage in stages):
        shape = inputs.opened(shape)
    for stage in stages:
        try:
            shape, kept = shaping.staged(shape, stage)
            held = tuple(waiting.staged(batch, stage, kept, shape.checkpoint) for batch in held)
        except Gone as gone:
            raise gone_error(schema, shape, stage.version, gone.node) from None
        except EvolutionError as error:
            error.checkpoint = error.checkpoint or shape.checkpoint["id"]
            error.args = (f"{error}, in the step to version {stage.version}",)
            raise
    return Walk(shape, stages, held)


def gone_error(schema: StateSchema, shape: Shape, version: int, node: str) -> EvolutionError:
    checkpoint = shape.checkpoint["id"]
    return EvolutionError(
        f"Checkpoint {checkpoint} waits for node {node!r}, which is no more at version {version} "
        f"of graph {schema.graph!r}; drop_node(…, to=…) says which node takes over",
        checkpoint=checkpoint,
    )
