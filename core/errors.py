"""Everything that Hemiola raises, and the code that each error carries to HTTP, gRPC and events.

HemiolaError
├── InvalidRequest       the user's mistake: names the field, the value and what is allowed
│   └── ContextTooLong   the prompt does not fit the model's context
├── ModelNotFound        nothing is served under that name, or no files are where we looked
├── UnsupportedModel     the files are there, but no code here runs them
├── CorruptWeights       the files are there, but broken or not what the config says
├── CannotFit            needs more bytes than there can ever be: says needed and available
├── Overloaded           a queue is full or the engine is draining: worth trying again
├── RequestAborted       somebody asked for the end of it
├── StepFailed           a step of this request raised; others are unharmed
│   └── StepOutOfMemory  for want of the device's memory
└── EngineDied           the engine's loop is gone
"""


class HemiolaError(Exception):
    """Base of all errors. `code` is stable and machine-readable; the message is for people."""

    code = "internal_error"

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class InvalidRequest(HemiolaError):
    """A request that can never be served as it is.

    Args:
        param: the field at fault, as the user wrote it.
        message: names the value and what is allowed.
        code: a finer code of the OpenAI vocabulary (`invalid_value`, `invalid_type`, ...).
    """

    code = "invalid_value"

    def __init__(self, param: str, message: str, code: str | None = None) -> None:
        super().__init__(message)
        self.param = param
        if code is not None:
            self.code = code


class ContextTooLong(InvalidRequest):
    """The prompt leaves no room for a single new token."""

    code = "context_length_exceeded"


class ModelNotFound(HemiolaError):
    """No such model: the message lists what was looked for, and where."""

    code = "model_not_found"


class UnsupportedModel(HemiolaError):
    """An architecture or pipeline that no code here runs: the message lists what is supported."""

    code = "unsupported_model"


class CorruptWeights(HemiolaError):
    """A weight file is truncated, or its tensors are not those of the config."""

    code = "corrupt_weights"


class CannotFit(HemiolaError):
    """More bytes are needed than the budget can ever give.

    Args:
        what: who needs them, for people.
        bytes_needed, bytes_available: both in bytes.
        hint: a sentence on what would help.
    """

    code = "insufficient_memory"

    def __init__(self, what: str, bytes_needed: int, bytes_available: int, hint: str = "") -> None:
        unit, size = ("MiB", 2**20) if bytes_needed >= 10 * 2**20 else ("KiB", 2**10)
        needed, available = (f"{nbytes / size:.1f} {unit}" for nbytes in (bytes_needed, bytes_available))
        text = f"{what} needs {needed}, but {available} can be had at most."
        super().__init__(f"{text} {hint}" if hint else text)
        self.bytes_needed = bytes_needed
        self.bytes_available = bytes_available


class Overloaded(HemiolaError):
    """Not now: the queue is full or the engine is stopping.

    Args:
        retry_after_s: when it will be worth trying again, where that is known.
    """

    code = "server_overloaded"

    def __init__(self, message: str, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class RequestAborted(HemiolaError):
    """The request was aborted by its owner or by an administrator."""

    code = "request_aborted"


class StepFailed(HemiolaError):
    """A step raised for this request alone. `__cause__` holds what was raised."""

    code = "step_failed"


class StepOutOfMemory(StepFailed):
    """A step found too little of the device's memory: the message says how much, and what to lower."""

    code = CannotFit.code


class EngineDied(HemiolaError):
    """The engine's loop has ended, by an error or because it was closed; nothing that was running will finish."""

    code = "engine_died"
