"""Writes a program down before it runs: its function is called once, and nothing that it asks for is asked for.

That works as long as no line looks at a value: then what comes next would depend on it. Such a line is an error here.
"""

import threading
import uuid
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

from hemiola.core.errors import InvalidRequest

from ..front.terms import engine_clock
from .execution import Work
from .expressions import Gen, Media, Select
from .forecasts import model_of, size_of
from .graph import Kind, Node, Outcome, Place, ValueOf, calling_place
from .reading import ReadFloat, ReadInt, ReadJson
from .schema import (
    VERSION,
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
    Texts,
    TurnStep,
    Value,
    Values,
    VideoStep,
)
from .state import Forks, State
from .turns import Generated, TextOf, Turn, is_conversation
from .values import Gathered, Item, Joined, Text, Variable

_READS: dict[type, Literal["int", "float", "json"]] = {ReadInt: "int", ReadFloat: "float", ReadJson: "json"}


@dataclass(eq=False, slots=True)
class WrittenNode(Node):
    """A node that nobody runs here. It may be filled by whoever runs it elsewhere."""

    def wait(self) -> Outcome:
        if not self.result.done():
            raise self._looked_at()
        return self.result.result()

    async def arrived(self) -> Outcome:
        return self.wait()

    def _looked_at(self) -> InvalidRequest:
        text = (
            f"{calling_place()} looks at the value of '{self.name}' ({self.place}), which is not there while the "
            "program is only written down. What comes next may not depend on values: pass them on, or run the program "
            "where this function is: program.on(...).run(...), without remote=True."
        )
        return InvalidRequest(self.name, text)


class Writing:
    """Stands where the Execution of a run does, and notes instead of running.

    Fields:
        id, nodes, started_s: as of an Execution.
        steps: what was written down.
        places: the program's line for each step.
        asked: the expression of each node.
    """

    def __init__(self) -> None:
        self.id = uuid.uuid4().hex[:12]
        self.nodes: list[Node] = []
        self.started_s = engine_clock()
        self.steps: list[Step] = []
        self.places: list[Place] = []
        self.asked: list[Gen | Select | Media] = []
        self._open: list[Part] | None = None  # parts of the last step, if that is a turn
        self._lock = threading.Lock()

    @property
    def graph(self) -> ProgramGraph:
        return ProgramGraph(VERSION, tuple(self.steps))

    def add(
        self,
        kind: Kind,
        asked: Gen | Select | Media,
        branch: str,
        place: Place,
        inputs: tuple[Node, ...],
        work: Work,
        root: object = None,
    ) -> Node:
        """A new node. See `Execution.add`."""
        with self._lock:
            thread = threading.get_ident()
            node = WrittenNode(len(self.nodes), kind, asked.name, branch, place, inputs, thread, engine_clock())
            node.size, node.model, node.root = size_of(asked), model_of(asked), root
            self.nodes.append(node)
            self.asked.append(asked)
        if isinstance(asked, Media):
            self.note(_media_step(asked, branch))
        return node

    def note(self, step: Step) -> None:
        """Writes a step down."""
        self._open = None
        self.steps.append(step)
        self.places.append(calling_place())

    def begin(self, branch: str, role: str) -> None:
        """A turn, to which parts are added."""
        self.note(TurnStep(branch, role))  # type: ignore[arg-type]  # states check roles
        self._open = []

    def add_part(self, branch: str, part: Part) -> None:
        """To the branch's last turn."""
        last = self.steps[-1] if self.steps else None
        if self._open is None or not isinstance(last, TurnStep) or last.branch != branch:
            self.begin(branch, "")
            last = self.steps[-1]
        assert isinstance(last, TurnStep) and self._open is not None, "A turn was just begun."
        self._open.append(part)
        self.steps[-1] = TurnStep(branch, last.role, tuple(self._open))


class WrittenState(State):
    """A state that writes down what is done to it."""

    _execution: Any
    _is_quiet = False

    @property
    def _writing(self) -> Writing:
        writing: Writing = self._execution
        return writing

    def begin(self, role: str) -> None:
        super().begin(role)
        self._writing.begin(self.branch, role)

    def _extend(self, part: Text | Generated) -> None:
        super()._extend(part)
        if not (self._is_quiet or isinstance(part, Generated)):
            self._writing.add_part(self.branch, _piece(part))

    def write(self, asked: Gen | Select) -> Variable:
        step = _select_step(asked) if isinstance(asked, Select) else _gen_step(asked)
        variable = super().write(asked)
        self._writing.add_part(self.branch, step)
        return variable

    def keep(self, name: str, index: int | Variable) -> None:
        super().keep(name, index)
        self._writing.note(KeepStep(name, index if isinstance(index, int) else _reference(index), self.branch))

    def __setitem__(self, name: str, value: Variable) -> None:
        super().__setitem__(name, value)
        self._writing.note(LetStep(name, _reference(value), self.branch))

    def fork(self, n: int = 1) -> Forks:
        forks = super().fork(n)
        self._writing.note(ForkStep(self.branch, len(forks)))
        return forks

    def join(self, forks: Sequence[State], how: Literal["gather", "concatenate"] = "gather") -> None:
        self._is_quiet = True
        super().join(forks, how)
        self._is_quiet = False
        self._writing.note(JoinStep(tuple(fork.branch for fork in forks), how))


# Expressions


def _gen_step(asked: Gen) -> GenStep:
    if asked.tools:
        raise _cannot(asked.name, "tools", "functions of this process")
    options = dict(asked.options)
    if isinstance(stop := options.get("stop"), Sequence) and not isinstance(stop, str):
        options["stop"] = tuple(stop)
    read = asked.read
    if read is None:
        return GenStep(asked.name, n=asked.n, **options)
    if type(read) not in _READS or (isinstance(read, ReadJson) and read.into is not None):
        raise _cannot(asked.name, "into", "a type of this process")
    if isinstance(read, ReadInt | ReadFloat):
        options |= {"minimum": read.minimum, "maximum": read.maximum}
    return GenStep(asked.name, read=_READS[type(read)], retries=asked.retries, **options)


def _select_step(asked: Select) -> SelectStep:
    return SelectStep(asked.name, asked.choices, asked.scoring, asked.model)


def _media_step(asked: Media, branch: str) -> ImageStep | VideoStep:
    names = {"num_inference_steps": "steps", "guidance_scale": "guidance", "num_frames": "frames"}
    options = {names.get(name, name): value for name, value in asked.options.items()}
    if isinstance(size := options.get("size"), Sequence) and not isinstance(size, str):
        options["size"] = (int(size[0]), int(size[1]))
    step = ImageStep if asked.kind == "image" else VideoStep
    for name in options:
        if name not in step.__struct_fields__:
            raise _cannot(asked.name, name, "something that cannot be written down")
    return step(name=asked.name, prompt=_pieces(asked.prompt), branch=branch, **options)


def _cannot(name: str, option: str, what: str) -> InvalidRequest:
    text = f"'{option}' of '{name}' ({calling_place()}) is {what}: the program runs only where this function is."
    return InvalidRequest(option, text, "unsupported_parameter")


# Texts


def _pieces(text: Text) -> Pieces:
    piece = _piece(text)
    return piece if isinstance(piece, str) else piece.pieces if isinstance(piece, Texts) else (piece,)


def _piece(text: Text) -> Piece:
    return text if isinstance(text, str) else _reference(text)


def _reference(variable: Variable) -> Reference:
    """How the variable is read, in words."""
    match variable.read:
        case ValueOf(node):
            return Value(node.idx)
        case Joined(parts):
            return Texts(tuple(map(_piece, parts)))
        case Gathered(variables):
            return Values(tuple(map(_reference, variables)))
        case TextOf(turns):
            pieces = _transcript(turns)
            only = pieces[0] if len(pieces) == 1 else None
            return only if isinstance(only, Said) else Texts(tuple(pieces))
        case Item(of, key):
            whole = _reference(of)
            if isinstance(whole, Value) and isinstance(key, str | int) and not isinstance(key, bool):
                return Value(whole.node, (*whole.path, key))
            if isinstance(whole, Values) and isinstance(key, int):
                with suppress(IndexError):
                    return whole.items[key]
    names = ", ".join(node.name for node in variable.nodes) or "no node"
    text = f"What {calling_place()} makes of {names} cannot be written down. Allowed: values, parts of them, texts."
    raise InvalidRequest("value", text)


def _transcript(turns: Sequence[Turn]) -> list[Piece]:
    """As `turns.as_text` puts it."""
    pieces: list[Piece] = []
    for i, turn in enumerate(turns):
        if is_conversation(turns):
            pieces.append(("\n" if i else "") + f"{turn.role}: ")
        pieces += [_said(part) if isinstance(part, Generated) else _piece(part) for part in turn.parts]
    return pieces


def _said(part: Generated) -> Said:
    choice = part.choice
    if isinstance(choice, Variable):
        return Said(part.node.idx, _reference(choice))
    return Said(part.node.idx, None if choice is None else int(choice))
