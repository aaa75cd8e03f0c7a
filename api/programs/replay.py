"""From a program that is written down to what it does: every step is done to a state, as its lines would do it."""

import asyncio
from collections.abc import Callable
from typing import Any

from hemiola.core.errors import InvalidRequest

from ..front.terms import CallTerms, engine_clock
from .execution import Execution, ProgramEvent
from .expressions import Gen, Media, gen, gen_float, gen_image, gen_int, gen_json, gen_video, select
from .graph import Node, Place, ValueOf
from .run import Run
from .schema import (
    MAX_BRANCHES,
    MAX_NAME_LEN,
    MAX_NODES,
    MAX_REFERENCES,
    MAX_RETRIES,
    ForkStep,
    GenStep,
    ImageStep,
    JoinStep,
    KeepStep,
    LetStep,
    Part,
    Piece,
    Pieces,
    ProgramGraph,
    Reference,
    Said,
    SelectStep,
    Step,
    TurnStep,
    Value,
    Values,
    VideoStep,
)
from .state import State
from .turns import Generated, TextOf, Turn
from .values import Text, Variable, gathered, joined

RealName = Callable[[str | None], str | None]


def replay(
    graph: ProgramGraph, state: State, *, param: str = "program", real_name: RealName = lambda name: name
) -> None:
    """Does all steps, and waits for nothing.

    Args:
        state: of a program that has just begun.
        param: what the graph is called in errors.
        real_name: what a model is served as, given one of its names.

    Raises:
        InvalidRequest: a step cannot be done; names it.
    """
    doing = _Replay(state, real_name)
    for i, step in enumerate(graph.steps):
        where = f"{param}.steps[{i}]"
        try:
            doing.do(step, Place(f"{param}.steps", i))
        except InvalidRequest as error:
            field = f"{where}.{error.param}" if error.param in _fields(step) else where
            lead = "In" if error.message.startswith("Invalid ") else "Invalid"
            raise InvalidRequest(field, f"{lead} '{where}': {error.message}", error.code) from error


def _fields(step: Step) -> set[str]:
    """That it has, or one of its parts."""
    parts = step.parts if isinstance(step, TurnStep) and not isinstance(step.parts, str) else ()
    structs = [step, *(part for part in parts if not isinstance(part, str))]
    return {field for struct in structs for field in struct.__struct_fields__}


class _Replay:
    def __init__(self, state: State, real_name: RealName) -> None:
        self._real_name = real_name
        self._branches = {"": state}
        self._nodes = state.nodes
        self._plural: set[int] = set()
        self._num_references = 0

    def do(self, step: Step, place: Place) -> None:
        if isinstance(step, JoinStep):
            self._join(step)
            return
        state = self._branch(step.branch)
        state.at = place
        match step:
            case TurnStep():
                self._turn(state, step)
            case ImageStep() | VideoStep():
                state.add(self._media(step))
            case ForkStep():
                self._fork(state, step)
            case KeepStep():
                index = step.index
                state.keep(step.name, index if isinstance(index, int) else self._variable(index))
            case LetStep():
                state[_checked(step.name)] = self._variable(step.value)
        if len(self._nodes) > MAX_NODES:
            raise InvalidRequest("steps", f"more than {MAX_NODES} nodes. Allowed: {MAX_NODES} at most.")

    # Steps

    def _turn(self, state: State, step: TurnStep) -> None:
        if step.role:
            state.begin(step.role)
        for part in (step.parts,) if isinstance(step.parts, str) else step.parts:
            self._part(state, part)

    def _part(self, state: State, part: Part) -> None:
        match part:
            case GenStep():
                state.write(self._gen(part))
                if part.n > 1:
                    self._plural.add(len(self._nodes) - 1)
            case SelectStep(name, choices, scoring, model):
                state.write(select(_checked(name), choices, scoring=scoring, model=self._real_name(model)))
            case _:
                state.extend(self._text(part))

    def _fork(self, state: State, step: ForkStep) -> None:
        if len(self._branches) + step.n > MAX_BRANCHES:
            raise InvalidRequest("n", f"more than {MAX_BRANCHES} branches. Allowed: {MAX_BRANCHES} at most.")
        self._branches |= {fork.branch: fork for fork in state.fork(step.n)}

    def _join(self, step: JoinStep) -> None:
        forks = [self._branch(branch) for branch in step.branches]
        parents = {branch.rpartition(".")[0] for branch in step.branches}
        if len(parents) != 1 or "" in step.branches or len(set(step.branches)) != len(forks):
            given, allowed = ", ".join(step.branches) or "none", "different branches that were forked from the same one"
            raise InvalidRequest("branches", f"'branches' are {given}. Allowed: {allowed}.")
        self._branch(parents.pop()).join(forks, step.how)

    def _branch(self, name: str) -> State:
        if name not in self._branches:
            known = ", ".join(f"'{each}'" for each in self._branches)
            raise InvalidRequest("branch", f"there is no branch '{name:.40}'. Allowed: {known[:400]}.")
        return self._branches[name]

    # Expressions

    def _gen(self, step: GenStep) -> Gen:
        options: dict[str, Any] = {
            "max_tokens": step.max_tokens,
            "stop": step.stop,
            "n": step.n,
            "temperature": step.temperature,
            "top_p": step.top_p,
            "top_k": step.top_k,
            "seed": step.seed,
            "model": self._real_name(step.model),
            "enable_thinking": step.enable_thinking,
        }
        name, bounds = _checked(step.name), {"minimum": step.minimum, "maximum": step.maximum}
        if step.read not in ("int", "float") and (step.minimum, step.maximum) != (None, None):
            raise InvalidRequest("minimum", f"bounds of '{name}' need 'read' to be int or float, not {step.read}.")
        if step.retries > MAX_RETRIES:
            text = f"Invalid 'retries' of '{name}': {step.retries}. Allowed: {MAX_RETRIES} at most."
            raise InvalidRequest("retries", text)
        match step.read:
            case "int":
                return gen_int(name, retries=step.retries, **{k: _whole(k, v) for k, v in bounds.items()}, **options)
            case "float":
                return gen_float(name, retries=step.retries, **bounds, **options)
            case "json":
                return gen_json(name, retries=step.retries, **options)
        if step.retries:
            raise InvalidRequest("retries", f"retries of '{name}' need 'read' to be int, float or json, not text.")
        return gen(name, **options)

    def _media(self, step: ImageStep | VideoStep) -> Media:
        common: dict[str, Any] = {
            "negative_prompt": step.negative_prompt,
            "size": step.size,
            "steps": step.steps,
            "guidance": step.guidance,
            "seed": step.seed,
            "model": self._real_name(step.model),
        }
        name, prompt = _checked(step.name), self._pieces(step.prompt)
        if isinstance(step, ImageStep):
            return gen_image(name, prompt, n=step.n, **common)
        return gen_video(name, prompt, frames=step.frames, fps=step.fps, **common)

    # Texts

    def _pieces(self, pieces: Pieces) -> Text:
        if isinstance(pieces, str):
            return pieces
        texts = [self._text(piece) for piece in pieces]
        return texts[0] if len(texts) == 1 else joined(*texts)

    def _text(self, piece: Piece) -> Text:
        return piece if isinstance(piece, str) else self._variable(piece)

    def _variable(self, reference: Reference) -> Variable:
        self._num_references += 1
        if self._num_references > MAX_REFERENCES:
            raise InvalidRequest("parts", f"more than {MAX_REFERENCES} references. Allowed: {MAX_REFERENCES} at most.")
        match reference:
            case Value(idx, path):
                node = self._node(idx)
                variable = Variable([node], ValueOf(node))
                for key in path:
                    variable = variable[key]
                return variable
            case Said(idx, choice):
                return self._said(idx, choice)
            case Values(items):
                return gathered([self._variable(item) for item in items])
        return joined(*(self._text(piece) for piece in reference.pieces))

    def _said(self, idx: int, choice: int | Reference | None) -> Variable:
        is_plural = self._node(idx).idx in self._plural
        if is_plural != (choice is not None):
            said = "has several answers: 'choice' has to say which" if is_plural else "has one answer: no 'choice'"
            raise InvalidRequest("choice", f"node {idx} {said}.")
        chosen = choice if isinstance(choice, int | None) else self._variable(choice)
        generated = Generated(self._node(idx), is_plural, chosen)
        return Variable(generated.nodes, TextOf((Turn("", (generated,)),)))

    def _node(self, idx: int) -> Node:
        if not 0 <= idx < len(self._nodes):
            allowed = f"0 to {len(self._nodes) - 1}, those before this step" if self._nodes else "none before this step"
            raise InvalidRequest("node", f"there is no node {idx}. Allowed: {allowed}.")
        return self._nodes[idx]


def _checked(name: str) -> str:
    if not 1 <= len(name) <= MAX_NAME_LEN:
        raise InvalidRequest("name", f"'name' has {len(name)} characters. Allowed: 1 to {MAX_NAME_LEN}.")
    return name


def _whole(name: str, bound: float | None) -> int | None:
    if bound is None or bound == int(bound):
        return None if bound is None else int(bound)
    raise InvalidRequest(name, f"'{name}' is {bound}. Allowed: whole numbers, since 'read' is int.")


async def run_graph(
    graph: ProgramGraph,
    calls: Any,
    *,
    terms: CallTerms,
    timeout_s: float | None = None,
    emit: Callable[[ProgramEvent], None] | None = None,
    real_name: RealName = lambda name: name,
    id: str | None = None,
) -> Run:
    """Runs a program that is written down, on the loop, as `Program.arun` does. Being cancelled cancels all its nodes.

    Raises:
        TimeoutError: the time limit has passed; nothing of it goes on.
    """
    execution = Execution(calls, terms, emit, id)
    state = State(execution)

    async def steps() -> None:
        replay(graph, state, real_name=real_name)

    async with asyncio.timeout(timeout_s):
        await execution.run(steps)
    return Run(execution, state, engine_clock() - execution.started_s)
