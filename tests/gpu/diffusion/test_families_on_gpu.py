"""The stages of all families on a GPU: nothing waits, results are those of a CPU, random weights take no more room."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest
import torch
from torch import Tensor

from hemiola.core.hub.dummies import shapes_folder
from hemiola.diffusion.components import Components
from hemiola.diffusion.edge import open_edge
from hemiola.diffusion.families import Family, load_family
from hemiola.diffusion.stage import Clean, Noisy
from hemiola.tests.diffusion.rows import requests_for, rows_for
from hemiola.tests.tiny_diffusion import FAMILIES, tiny_pipeline_dir

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


@contextmanager
def waiting_is_an_error() -> Iterator[None]:
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


def denoised(family: Family, rows: Sequence[Noisy], num_first: int) -> list[Tensor]:
    """Predictions of rows, by blocks of the first row's request."""
    carry = family.denoise.open(rows)
    for block in family.denoise.blocks(family.denoise_shape(requests_for(family)[num_first])):
        block.run(carry)
    return list(family.denoise.close(carry, rows))


def decoded(family: Family, latents: Tensor) -> Tensor:
    rows = [Clean(latents)]
    carry = family.decode.open(rows)
    for block in family.decode.blocks(tuple(latents.shape)):
        block.run(carry)
    return family.decode.close(carry, rows)[0]


@pytest.mark.parametrize("name", FAMILIES)
@torch.inference_mode()
def test_nothing_of_a_step_waits_for_the_device_not_even_for_a_new_layout(name: str) -> None:
    family = load_family(tiny_pipeline_dir(name), dtype=torch.bfloat16, device="cuda")
    requests = requests_for(family)
    first, second = (rows_for(family, chosen, 0, "cuda") for chosen in (requests, requests[1:]))
    coefficients = torch.stack([family.schedule(request).coefficients[0] for request in requests[:2]])
    decoded(family, first[0].latents)  # kernels that are compiled or chosen on first use
    denoised(family, first, 0)
    with waiting_is_an_error():
        predictions = denoised(family, second, 1)
        decoded(family, second[0].latents)
        latents = torch.stack([row.latents for row in second[:1]] * 2)
        history = [latents] * family.solver.num_history
        family.solver.step(coefficients, torch.stack([predictions[0]] * 2), latents, history)


@pytest.mark.parametrize("name", FAMILIES)
@torch.inference_mode()
def test_predictions_and_pixels_in_float32_are_those_of_a_cpu(name: str) -> None:
    on_cpu, on_gpu = (load_family(tiny_pipeline_dir(name), device=device) for device in ("cpu", "cuda"))
    requests = requests_for(on_cpu)
    theirs, ours = rows_for(on_cpu, requests, 1), rows_for(on_gpu, requests, 1, "cuda")
    for a, b in zip(denoised(on_cpu, theirs, 0), denoised(on_gpu, ours, 0), strict=True):
        assert (a - b.cpu()).abs().max() <= 2e-3 * a.abs().max()
    a, b = decoded(on_cpu, theirs[0].latents), decoded(on_gpu, ours[0].latents).cpu()
    assert (a - b).abs().max() <= 5e-3


@pytest.mark.parametrize("name", FAMILIES)
@torch.inference_mode()
def test_bfloat16_is_as_far_from_float32_as_on_a_cpu(name: str) -> None:
    exact = load_family(tiny_pipeline_dir(name))
    requests = requests_for(exact)
    reference = denoised(exact, rows_for(exact, requests, 1), 0)
    errors = []
    for device in ("cpu", "cuda"):
        family = load_family(tiny_pipeline_dir(name), dtype=torch.bfloat16, device=device)
        made = denoised(family, rows_for(family, requests, 1, device), 0)
        errors.append(sum((a.cpu() - b).square().mean().item() for a, b in zip(made, reference, strict=True)) ** 0.5)
    assert 0 < errors[1] < 1.5 * errors[0]


def test_random_weights_never_take_more_than_their_own_bytes() -> None:
    edge = open_edge(shapes_folder() / "wan-1.3b")
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    components = Components(edge.files, dtype=torch.bfloat16, device="cuda", load_format="dummy")
    module = components.model("transformer")
    nbytes = sum(parameter.numel() * parameter.element_size() for parameter in module.parameters())
    assert torch.cuda.max_memory_allocated() - before < 1.05 * nbytes + (64 << 20)
