"""What the HTTP server is set to. Frozen; whoever starts the server fills it in."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from hemiola.core.bounds import Bounds, check_fields

from ..jobs.limits import JobLimits

_DAY_S = 86_400
BOUNDS = {
    "max_body_bytes": Bounds(1, 1 << 40),
    "max_json_bytes": Bounds(1, 1 << 40),
    "keep_alive_s": Bounds(0, _DAY_S, is_open=True),
    "first_event_s": Bounds(0, _DAY_S),
    "retry_after_s": Bounds(1, _DAY_S),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Settings of one server.

    Fields:
        api_keys: any of these opens all routes but the administrator's; none at all: everybody may do everything.
        admin_keys: open all routes. Without any, `api_keys` do.
        strict_params: refuse fields that are not known, instead of ignoring them.
        aliases: other names of served models.
        reasoning_field: what an answer's reasoning is called; clients read one or the other, some of them both.
        max_body_bytes: of any request, uploads too.
        max_json_bytes: of a body of JSON.
        cors_origins: whose pages may call the server from a browser.
        keep_alive_s: a stream that has nothing to say sends a comment this often, so that nothing in between closes it.
        first_event_s: how long a stream waits for its first event before it begins, so that what fails at once fails
            with a status of its own.
        retry_after_s: told to clients that come when the server is full.
        data_dir: where pictures and clips are kept.
        jobs: how many of them, and for how long.

    Raises:
        InvalidRequest: a field is of another type or out of its bounds.
    """

    api_keys: tuple[str, ...] = ()
    admin_keys: tuple[str, ...] = ()
    strict_params: bool = False
    aliases: Mapping[str, str] = field(default_factory=dict)
    reasoning_field: Literal["reasoning_content", "reasoning"] = "reasoning_content"
    max_body_bytes: int = 64 << 20
    max_json_bytes: int = 8 << 20
    cors_origins: tuple[str, ...] = ("*",)
    keep_alive_s: float = 15.0
    first_event_s: float = 2.0
    retry_after_s: int = 2
    data_dir: Path = field(default_factory=lambda: Path("~/.local/share/hemiola").expanduser())
    jobs: JobLimits = field(default_factory=JobLimits)

    def __post_init__(self) -> None:
        check_fields(self, BOUNDS)
