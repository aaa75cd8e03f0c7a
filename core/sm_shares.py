"""Streams whose kernels run on some of a GPU's SMs only: green contexts of the CUDA driver.

https://docs.nvidia.com/cuda/cuda-driver-api/group__CUDA__GREEN__CONTEXTS.html, called through `cuda-bindings`, since
torch has no such streams that restrict (torch.cuda.green_contexts of torch 2.11 does not). Where the driver or the
package does not offer them, every share is the whole device, and lanes go by stream priorities alone.
"""

import importlib
import logging
from typing import Any

import torch

log = logging.getLogger(__name__)


class SharesUnsupported(RuntimeError):
    """No stream can be restricted here; the message says why."""


class SmShares:
    """The shares of one device's SMs.

    Fields:
        num_sms: of the device.
        why_not: why no stream can be restricted; None if it can be.
    """

    def __init__(self, device: torch.device) -> None:
        self._index = torch.cuda.current_device() if device.index is None else device.index
        self.num_sms: int = torch.cuda.get_device_properties(self._index).multi_processor_count
        self.why_not: str | None = None
        self._contexts: dict[int, Any] = {}
        try:
            self._driver: Any = importlib.import_module("cuda.bindings.driver")
            torch.cuda.current_stream(self._index).synchronize()  # the device's context must be there
            self._all = self._ask("cuDeviceGetDevResource", self._index, self._driver.CUdevResourceType(1))
        except (ImportError, SharesUnsupported) as error:
            self.why_not = str(error)
            log.warning("SM shares: off, streams go by priority alone (%s)", error)

    def stream(self, share: float, priority: int) -> Any:
        """A stream on `share` of the SMs (the driver rounds it up to whole groups); on all, where shares are off."""
        if self.why_not is None and share < 1.0:
            try:
                return self._restricted(max(1, round(share * self.num_sms)), priority)
            except SharesUnsupported as error:
                self.why_not = str(error)
                log.warning("SM shares: off, streams go by priority alone (%s)", error)
        return torch.cuda.Stream(self._index, priority=priority)

    def _restricted(self, num_sms: int, priority: int) -> Any:
        context = self._contexts.get(num_sms)
        if context is None:
            groups, _, _ = self._ask("cuDevSmResourceSplitByCount", 1, self._all, 0, num_sms)
            descriptor = self._ask("cuDevResourceGenerateDesc", groups[:1], 1)
            flags = int(self._driver.CUgreenCtxCreate_flags.CU_GREEN_CTX_DEFAULT_STREAM)
            context = self._contexts[num_sms] = self._ask("cuGreenCtxCreate", descriptor, self._index, flags)
            log.info("SM shares: %d of %d SMs as a green context", groups[0].sm.smCount, self.num_sms)
        non_blocking = int(self._driver.CUstream_flags.CU_STREAM_NON_BLOCKING)
        stream = self._ask("cuGreenCtxStreamCreate", context, non_blocking, priority)
        return torch.cuda.ExternalStream(int(stream), device=self._index)

    def _ask(self, function: str, *args: Any) -> Any:
        """Calls the driver. Raises SharesUnsupported where it says anything but success."""
        if not hasattr(self._driver, function):
            raise SharesUnsupported(f"cuda-bindings has no {function}")
        try:
            status, *results = getattr(self._driver, function)(*args)
        except RuntimeError as error:  # the package knows the function, and the installed driver is older than it
            raise SharesUnsupported(f"{function}: {error}") from error
        if int(status) != 0:
            raise SharesUnsupported(f"{function}: {status}")
        return results[0] if len(results) == 1 else tuple(results)
