"""How long results are kept, how many, how large, and how many clips are made at once."""

from dataclasses import dataclass

from hemiola.core.bounds import Bounds, check_fields

HOUR_S = 3600.0
_CENTURY_S = 100 * 366 * 24 * HOUR_S
BOUNDS = {
    "keep_videos_s": Bounds(1, _CENTURY_S),
    "keep_pictures_s": Bounds(HOUR_S, _CENTURY_S),
    "max_bytes": Bounds(0, 1 << 60),
    "max_videos": Bounds(0, 1 << 40),
    "max_pictures": Bounds(0, 1 << 40),
    "max_running": Bounds(1, 1 << 20),
    "max_attempts": Bounds(1, 1 << 20),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class JobLimits:
    """Bounds of the results that a server keeps.

    Fields:
        keep_videos_s: how long clips, and the reports of failed ones, are kept after their end.
        keep_pictures_s: how long pictures that were asked for by URL are kept; clients count on an hour.
        max_bytes: of all files together, with room reserved for clips that are being made.
        max_videos: clips that are kept, waiting and running ones among them.
        max_pictures: pictures that are kept.
        max_running: clips handed to the engine at once; the rest wait in order. The engine shares its steps among
            these, so more of them make each one later.
        max_attempts: how often a clip is begun before being interrupted (a crash, the engine's death) fails it.
    """

    keep_videos_s: float = 24 * HOUR_S
    keep_pictures_s: float = HOUR_S
    max_bytes: int = 8 << 30
    max_videos: int = 1000
    max_pictures: int = 10_000
    max_running: int = 4
    max_attempts: int = 2

    def __post_init__(self) -> None:
        check_fields(self, BOUNDS)
