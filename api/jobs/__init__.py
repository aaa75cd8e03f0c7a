"""Results that outlive a request: clips as jobs, and pictures by URL, in one folder that survives restarts.

    async with open_media(calls, folder, JobLimits()) as media:
        job = await media.videos.create(ask, seconds="2")

SQLite says what there is, and files are named in it only once they are whole: killing the server at any moment leaves
nothing half. Knows `Calls` and no HTTP.
"""

from .errors import DataFolderInUse, QuotaExceeded, ResultNotFound, StorageFailed
from .folder import check_data_folder
from .limits import JobLimits
from .media import Media, open_media
from .records import StoredFile, VideoAsk, VideoJob

__all__ = [
    "DataFolderInUse",
    "JobLimits",
    "Media",
    "QuotaExceeded",
    "ResultNotFound",
    "StorageFailed",
    "StoredFile",
    "VideoAsk",
    "VideoJob",
    "check_data_folder",
    "open_media",
]
