"""`s`: what a program has said so far, its variables, and its forks. Adding to it never waits."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Literal

from hemiola.core.errors import InvalidRequest

from .arguments import check_name, check_whole
from .asking import media_work, select_work, text_work
from .execution import Execution
from .expressions import Expression, Gen, Media, Select, Spoken, select
from .graph import Kind, Node, Place, ValueOf, calling_place
from .scoring import Scoring
from .turns import Generated, TextOf, Turn, added_since, as_messages, is_conversation, nodes_in
from .values import Text, Variable, gathered, nodes_of


class State:
    """One line of a program: a conversation (it begins with a role) or plain text (it begins with a text).

        s += hm.user("Tell me a short story about a fox.")
        s += hm.assistant(hm.gen("story"))
        s += hm.gen_image("picture", s["story"])
        with s.assistant():
            s += "The moral is "
            s += hm.gen("moral", stop=".")

    In a conversation, a `gen` or `select` on its own is a turn of the assistant.

    Fields:
        at: where in the program what is added now stands; None: the line that adds it.
    """

    def __init__(
        self,
        execution: Execution,
        branch: str = "",
        turns: Sequence[Turn] = (),
        variables: Mapping[str, Variable] | None = None,
    ) -> None:
        self._execution = execution
        self.branch = branch
        self._turns = list(turns)
        self._base = tuple(turns)
        self._is_open = False
        self._variables = dict(variables or {})
        self.forks: list[State] = []
        self.at: Place | None = None

    # Adding

    def __iadd__(self, added: Text | Expression) -> "State":
        if isinstance(added, str | Variable):
            self._say(added)
        else:
            self.add(added)
        return self

    def add(self, expression: Expression) -> Variable:
        """As `s += expression`; gives the variable of its last `gen`, picture or clip.

        Raises:
            InvalidRequest: it has no place here.
        """
        if not isinstance(expression, Expression):
            text = f"Invalid addition to a program: {expression!r:.80}, of type {type(expression).__name__}. "
            text += "Allowed: gen(...), select(...), gen_image(...), gen_video(...), a turn, such as user(...), and, "
            raise InvalidRequest("expression", text + "with +=, texts and variables.", "invalid_type")
        if isinstance(expression, Spoken):
            return self._speak(expression)
        if isinstance(expression, Media):
            inputs = nodes_of(expression.prompt)
            work = media_work(expression)
            node = self._execution.add(expression.kind, expression, self.branch, self._place, inputs, work)
            return self._set(expression.name, Variable([node], ValueOf(node)))
        if not self._is_open and is_conversation(self._turns):
            return self._speak(Spoken("assistant", (expression,)))
        return self.write(expression)

    def select(
        self, name: str, choices: Sequence[str], *, scoring: Scoring = "mean", model: str | None = None
    ) -> Variable:
        """As `s += select(...)`; gives the variable."""
        return self.add(select(name, choices, scoring=scoring, model=model))

    def _speak(self, spoken: Spoken) -> Variable:
        last = Variable((), str)
        with self.role(spoken.role):
            for part in spoken.parts:
                if isinstance(part, Gen | Select):
                    last = self.write(part)
                else:
                    self._say(part)
        return last

    @contextmanager
    def role(self, role: str) -> Iterator[None]:
        """A turn of that speaker: what is added inside is said by it.

        Raises:
            InvalidRequest: this is plain text, or a turn is open already.
        """
        if self._is_open:
            raise InvalidRequest(role, f"A turn of the {self._turns[-1].role} is open: no other begins inside it.")
        self.begin(role)
        self._is_open = True
        try:
            yield
        finally:
            self._is_open = False

    def begin(self, role: str) -> None:
        """A turn of that speaker, to which is added what comes."""
        if self._turns and not is_conversation(self._turns):
            text = "This began as plain text, which has no roles. Begin with system(...) or user(...)."
            raise InvalidRequest(role, text)
        self._turns.append(Turn(role))

    def system(self) -> AbstractContextManager[None]:
        """`with s.system(): s += ...`"""
        return self.role("system")

    def user(self) -> AbstractContextManager[None]:
        """`with s.user(): s += ...`"""
        return self.role("user")

    def assistant(self) -> AbstractContextManager[None]:
        """`with s.assistant(): s += ...`"""
        return self.role("assistant")

    def take(self, turns: Sequence[Turn]) -> None:
        """Says what was said elsewhere."""
        for turn in turns:
            if turn.role:
                self._turns.append(turn)
            else:
                for part in turn.parts:
                    self._extend(part)

    def _say(self, text: Text) -> None:
        if not self._is_open and is_conversation(self._turns):
            raise InvalidRequest("text", "Say whose text this is: system(...), user(...) or assistant(...).")
        self.extend(text)

    def extend(self, text: Text) -> None:
        """Adds to the last turn, or begins a plain text."""
        self._extend(text)

    def _extend(self, part: Text | Generated) -> None:
        if not self._turns:
            self._turns.append(Turn(""))
        self._turns[-1] = self._turns[-1].and_then(part)

    def write(self, asked: Gen | Select) -> Variable:
        """Adds what the model writes to the last turn, which is the assistant's, or to plain text."""
        role = self._turns[-1].role if self._turns else ""
        if role not in ("", "assistant"):
            raise InvalidRequest(asked.name, f"'{asked.name}': the model does not write what the {role} says.")
        turns = tuple(self._turns) or (Turn(""),)
        kind: Kind = "gen" if isinstance(asked, Gen) else "select"
        work = text_work(asked, turns) if isinstance(asked, Gen) else select_work(asked, turns)
        node = self._execution.add(kind, asked, self.branch, self._place, nodes_in(turns), work, turns[0])
        self._extend(Generated(node, is_plural=isinstance(asked, Gen) and asked.n > 1))
        return self._set(asked.name, Variable([node], ValueOf(node)))

    @property
    def _place(self) -> Place:
        """The line that adds."""
        return self.at or calling_place()

    def keep(self, name: str, index: int | Variable) -> None:
        """Goes on with one of the answers of `gen(name, n=...)`."""
        for i, turn in enumerate(self._turns):
            for j, part in enumerate(turn.parts):
                if isinstance(part, Generated) and part.is_plural and part.node.name == name and part.choice is None:
                    kept = Generated(part.node, True, index)
                    self._turns[i] = Turn(turn.role, (*turn.parts[:j], kept, *turn.parts[j + 1 :]))
                    return
        raise InvalidRequest(name, f"'{name}' has no several answers here of which one could be kept.")

    @property
    def nodes(self) -> Sequence[Node]:
        """Of the whole program, in order of creation."""
        return self._execution.nodes

    # Variables and what was said

    def __getitem__(self, name: str) -> Variable:
        """The newest variable of that name, of this state or of what it was forked from.

        Raises:
            InvalidRequest: there is none.
        """
        if name not in self._variables:
            known = ", ".join(self._variables) or "none"
            raise InvalidRequest(name, f"No variable is called '{name}'. There are: {known}.")
        return self._variables[name]

    def scores(self, name: str) -> Variable:
        """The Scores of all choices of the newest `select` of that name.

        Raises:
            InvalidRequest: nothing of that name was selected.
        """
        nodes = self[name].nodes
        if len(nodes) != 1 or nodes[0].kind != "select":
            raise InvalidRequest(name, f"'{name}' was not selected, so there are no scores.")
        return Variable(nodes, lambda: nodes[0].result.result().scores)

    def __setitem__(self, name: str, value: Variable) -> None:
        """Names a variable, so that the run has it as well."""
        check_name(name)
        if not isinstance(value, Variable):
            text = (
                f"Invalid value of '{name}': {value!r:.80}. Allowed: a variable, such as s['x'], s['x'][0], s.text()."
            )
            raise InvalidRequest(name, text, "invalid_type")
        self._set(name, value)

    def __contains__(self, name: object) -> bool:
        return name in self._variables

    @property
    def names(self) -> tuple[str, ...]:
        """Of all variables."""
        return tuple(self._variables)

    def _set(self, name: str, variable: Variable) -> Variable:
        self._variables[name] = variable
        return variable

    def text(self) -> Variable:
        """All that was said until now, as text."""
        turns = tuple(self._turns)
        return Variable(nodes_in(turns), TextOf(turns))

    def messages(self) -> Variable:
        """All that was said until now, as the OpenAI API has it."""
        turns = tuple(self._turns)
        return Variable(nodes_in(turns), lambda: as_messages(turns))

    # Forks

    def fork(self, n: int = 1) -> "Forks":
        """`n` states that go on from here, each for itself and all at once."""
        if self._is_open:
            raise InvalidRequest("fork", "A turn is open: fork before or after it.")
        n = check_whole("n", "fork", n, 1)
        first = len(self.forks)
        lead = f"{self.branch}." if self.branch else ""
        made = [type(self)(self._execution, f"{lead}{first + i}", self._turns, self._variables) for i in range(n)]
        self.forks += made
        return Forks(self, made)

    def join(self, forks: "Sequence[State]", how: Literal["gather", "concatenate"] = "gather") -> None:
        """See `Forks.join`."""
        if how not in ("gather", "concatenate"):
            raise InvalidRequest("how", f"Invalid 'how': {how!r}. Allowed: gather, concatenate.")
        if not forks or not all(isinstance(each, State) for each in forks):
            raise InvalidRequest("forks", f"Invalid 'forks' to join: {forks!r:.80}. Allowed: at least one state.")
        mine = dict(self._variables)
        for name in forks[0].names:
            theirs = [state[name] for state in forks if name in state]
            if len(theirs) == len(forks) and any(each is not mine.get(name) for each in theirs):
                self._set(name, gathered(theirs))
        if how == "concatenate":
            self.take([turn for state in forks for turn in state.added])

    @property
    def added(self) -> list[Turn]:
        """What was said since it was forked."""
        return added_since(self._base, self._turns)


class Forks(Sequence[State]):
    """States that were forked together."""

    def __init__(self, parent: State, states: Sequence[State]) -> None:
        self._parent = parent
        self._states = tuple(states)

    def __len__(self) -> int:
        return len(self._states)

    def __getitem__(self, index: int) -> State:  # type: ignore[override]
        return self._states[index]

    def join(self, how: Literal["gather", "concatenate"] = "gather") -> None:
        """Gives the forks' variables to the state that they were forked from. Waits for nothing.

        Args:
            how: "gather": each name becomes the list of the forks' values, where all of them have it. "concatenate":
                besides, the state says what all forks have said, one after the other.
        """
        self._parent.join(self._states, how)
