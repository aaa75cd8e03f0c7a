"""What can be wrong with stored results, beyond what the engine raises."""

from hemiola.core.errors import HemiolaError


class ResultNotFound(HemiolaError):
    """Nothing is kept under that id: it never was, was deleted, or has expired.

    Args:
        kind: what was looked for, "video" or "image"; the code is `video_not_found` or `image_not_found`.
    """

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.code = f"{kind}_not_found"


class QuotaExceeded(HemiolaError):
    """No room for another result: says how much is kept, how much may be, and what makes room."""

    code = "storage_quota_exceeded"


class StorageFailed(HemiolaError):
    """The disk or the database would not do what it had to: full, broken, gone."""

    code = "storage_failed"


class DataFolderInUse(HemiolaError):
    """Another server keeps its results there."""

    code = "data_folder_in_use"
