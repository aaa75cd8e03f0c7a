"""Functions that the model may call: `@tool`. Their schema is read from their annotations; knows no engine."""

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, get_type_hints

import msgspec

from hemiola.core.errors import InvalidRequest

from .threads import on_a_thread


@dataclass(frozen=True, slots=True)
class Tool:
    """A function and what the model is told of it.

    Fields:
        types: of its arguments, by name.
        required: those without a default.
    """

    function: Callable[..., Any]
    name: str
    description: str
    types: Mapping[str, Any]
    required: tuple[str, ...]

    @property
    def schema(self) -> dict[str, Any]:
        """As the OpenAI API has it."""
        schemas, shared = msgspec.json.schema_components(self.types.values(), ref_template="#/$defs/{name}")
        properties = dict(zip(self.types, schemas, strict=True))
        parameters = {"type": "object", "properties": properties, "required": list(self.required)}
        parameters |= {"$defs": shared} if shared else {}
        described = {"description": self.description} if self.description else {}
        return {"type": "function", "function": {"name": self.name, **described, "parameters": parameters}}

    async def call(self, arguments: str) -> str:
        """Calls the function, in a thread unless it is a coroutine function, with arguments checked and converted.

        Whatever goes wrong is the answer: it is the model's to read.
        """
        try:
            given = self._checked(arguments)
            if inspect.iscoroutinefunction(self.function):
                result = await self.function(**given)
            else:
                result = await on_a_thread(partial(self.function, **given), self.name)
            return result if isinstance(result, str) else msgspec.json.encode(result).decode()
        except Exception as error:
            return f"Error: {_told(error)}"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)

    def _checked(self, arguments: str) -> dict[str, Any]:
        given: dict[str, Any] = msgspec.json.decode(arguments or "{}", type=dict[str, Any])
        for name in given:
            if name not in self.types:
                raise InvalidRequest(name, f"{self.name} has no argument '{name}'. It has: {', '.join(self.types)}.")
        for name in self.required:
            if name not in given:
                raise InvalidRequest(name, f"{self.name} needs an argument '{name}'.")
        return {name: msgspec.convert(value, self.types[name]) for name, value in given.items()}


def tool(function: Callable[..., Any]) -> Tool:
    """A function that the model may call, described by its name, docstring and annotations.

    Raises:
        InvalidRequest: an argument has no annotation, cannot be given by name, or is of a type that JSON cannot give.
    """
    if not inspect.isroutine(function):
        raise InvalidRequest("tool", f"Invalid tool: {function!r}. Allowed: functions and methods.")
    hints = _hints(function)
    parameters = inspect.signature(function).parameters
    for name, parameter in parameters.items():
        is_named = parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
        if name not in hints or not is_named:
            text = f"'{name}' of {function.__name__}: arguments of tools have names and annotations."
            raise InvalidRequest(name, text)
        try:
            msgspec.json.schema(hints[name])
        except TypeError as error:
            reason = str(error).splitlines()[-1].removesuffix(".")  # what is before it is for users of msgspec
            text = f"'{name}' of {function.__name__} has the type {_shown(hints[name])}, which JSON cannot give: "
            raise InvalidRequest(name, f"{text}{reason}. Allowed: {_JSON_TYPES}.") from error
    return Tool(
        function,
        function.__name__,
        inspect.getdoc(function) or "",
        {name: hints[name] for name in parameters},
        tuple(name for name, parameter in parameters.items() if parameter.default is parameter.empty),
    )


_JSON_TYPES = (
    "str, int, float, bool, None, Any, Literal, enums, list, tuple, set, dict, TypedDict, dataclasses, "
    "msgspec Structs, dates and times, and unions of these that JSON can tell apart"
)


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    try:
        return get_type_hints(function)
    except (NameError, SyntaxError, TypeError) as error:
        text = f"Invalid tool: an annotation of {function.__name__} is no type: {error}. Allowed: {_JSON_TYPES}."
        raise InvalidRequest("tool", text) from error


def _shown(hint: Any) -> str:
    return hint.__qualname__ if type(hint) is type else str(hint)


def checked_tools(name: str, tools: Any) -> tuple[Tool, ...]:
    """What a `gen` of that name offers.

    Raises:
        InvalidRequest: these are not tools, or two have the same name.
    """
    given = tuple(tools) if isinstance(tools, Iterable) else (None,)
    wrong = [each for each in given if not isinstance(each, Tool)]
    if wrong:
        shown = tools if wrong[0] is None else wrong[0]
        raise InvalidRequest("tools", f"Invalid 'tools' of '{name}': {shown!r}. Allowed: a list of @hm.tool functions.")
    names = [each.name for each in given]
    if len(set(names)) != len(names):
        text = f"Invalid 'tools' of '{name}': {', '.join(names)}. Allowed: functions with different names."
        raise InvalidRequest("tools", text)
    return given


def _told(error: Exception) -> str:
    """In words; a message that is none, or only a key, says little without the kind of error."""
    return repr(error) if isinstance(error, KeyError) or not str(error) else str(error)


async def call_named(tools: Mapping[str, Tool], name: str, arguments: str) -> str:
    """The result of a call, or an error that says what there is."""
    if name not in tools:
        return f"Error: no function is called {name}. There are: {', '.join(tools)}."
    return await tools[name].call(arguments)
