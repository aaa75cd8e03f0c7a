"""What is asked for with POST /v1/programs, from its fields: all of a program is checked before anything of it runs."""

from dataclasses import dataclass
from typing import Literal, cast

from starlette.requests import Request

from hemiola.core.errors import InvalidRequest
from hemiola.core.request import MediaRequest

from ..front.terms import CallTerms, missing
from ..programs.checking import check_asked
from ..programs.replay import replay
from ..programs.schema import ProgramGraph, read_graph
from ..programs.writing import Writing, WrittenState
from .fields import Fields, FieldTable
from .server import server_of
from .text_asks import read_terms

_LONGEST_S = 86_400.0

PROGRAM_FIELDS = FieldTable(
    honoured={
        "program": "the program: `{version: 1, steps: [...]}`, as `Program.graph` writes it (api/programs/schema.py)",
        "stream": "events as it runs, instead of one answer at the end",
        "response_format": "'b64_json' (the default) or 'url', which pictures are kept at for at least an hour",
        "video_format": "'mp4' (the default), or 'png' for a PNG of each frame, which loses nothing",
        "deadline_s": "seconds within which all of it is wanted; what others wait for is due earlier",
        "timeout_s": "seconds after which all of it is cancelled",
        "priority": "lower runs earlier; 0 is ordinary",
        "service_class": "how soon it matters: 'interactive', 'standard' or 'background'",
    },
    harmless=frozenset("user safety_identifier metadata store service_tier request_id rid session_id".split()),
    unsupported={"model": (), "tools": ([],), "background": (False,)},
    hints={
        "model": "Each step names its own.",
        "tools": "Functions run where the program was written: run it there.",
    },
)


@dataclass(frozen=True, slots=True)
class ProgramAsk:
    """Fields: the program, on what terms, how many nodes it has, and how what it gives is sent."""

    graph: ProgramGraph
    terms: CallTerms
    timeout_s: float | None
    num_nodes: int
    is_streamed: bool
    is_by_url: bool
    video_format: Literal["mp4", "png"]
    num_pictures: int
    picture_bytes_at_most: int


def read_program_ask(fields: Fields, request: Request) -> ProgramAsk:
    """
    Raises:
        InvalidRequest: names the field, the value and what is allowed.
        ModelNotFound: a node's model is not served.
    """
    server = server_of(request)
    _, given = fields.given("program") or ("program", None)
    if given is None:
        raise missing("program")
    terms = read_terms(fields, request)
    deadline_s = fields.number("deadline_s", smallest=0.0, largest=_LONGEST_S)
    terms = CallTerms(
        tenant=terms.tenant, priority=terms.priority, service_class=terms.service_class, deadline_s=deadline_s
    )
    terms.fields("", 0, 1)  # checks them
    timeout_s = fields.number("timeout_s", smallest=0.0, largest=_LONGEST_S)
    is_streamed = fields.boolean("stream") or False
    is_by_url = fields.choice("response_format", allowed=("b64_json", "url")) == "url"
    video_format = fields.choice("video_format", allowed=("mp4", "png")) or "mp4"
    fields.refuse_rest(PROGRAM_FIELDS, is_strict=server.settings.strict_params)
    graph, writing = read_graph(given), Writing()
    replay(graph, WrittenState(writing), real_name=server.real_name)  # type: ignore[arg-type]  # stands for an Execution
    if not writing.nodes:
        raise InvalidRequest("program.steps", "Invalid 'program.steps': nothing is asked for. Allowed: 1 node or more.")
    requests = check_asked(server.calls, writing.nodes, writing.asked)
    media = [each for each in requests if isinstance(each, MediaRequest)]
    if is_by_url and any(node.kind == "video" for node in writing.nodes):
        text = "Unsupported value for 'response_format': 'url' where a clip is made. Allowed then: 'b64_json'."
        raise InvalidRequest("response_format", text, "unsupported_value")
    return ProgramAsk(
        graph=graph,
        terms=terms,
        timeout_s=timeout_s,
        num_nodes=len(writing.nodes),
        is_streamed=is_streamed,
        is_by_url=is_by_url,
        video_format=cast(Literal["mp4", "png"], video_format),
        num_pictures=len(media),
        picture_bytes_at_most=sum(each.width * each.height * 3 + 4096 for each in media),
    )
