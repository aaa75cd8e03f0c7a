"""What stage.py promises of denoise stages, so that their blocks can be captured and nothing in a step waits."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from hemiola.diffusion.components import Components
from hemiola.diffusion.edge import open_edge
from hemiola.diffusion.families import FAMILIES as CLASSES
from hemiola.diffusion.families import Family, load_family
from hemiola.diffusion.solvers import base
from hemiola.diffusion.stage import Carry, Clean
from hemiola.tests.diffusion.rows import requests_for, rows_for
from hemiola.tests.tiny_diffusion import FAMILIES, tiny_pipeline_dir


def layout(carry: Carry) -> dict[str, Any]:
    return {name: (x.shape, x.stride(), x.dtype) for name, x in carry.tensors.items()}


def storage(tensor: Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


def model_of(family: Any) -> nn.Module:
    stage = family.denoise
    model: nn.Module = stage._model if hasattr(stage, "_model") else stage._transformer.model
    return model


class Reads(TorchDispatchMode):
    """Fails when an operation reads what is neither known nor was made meanwhile."""

    def __init__(self, known: Sequence[Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._alive = list(known)  # so that no storage's address is used twice
        self._known = {storage(tensor) for tensor in known}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        for value in tree_leaves((args, kwargs)):
            assert not isinstance(value, Tensor) or storage(value) in self._known, f"{func} reads something else"
        made = func(*args, **(kwargs or {}))
        tensors = [value for value in tree_leaves(made) if isinstance(value, Tensor)]
        self._alive += tensors
        self._known.update(map(storage, tensors))
        return made


@pytest.fixture(scope="module", params=FAMILIES)
def family(request: pytest.FixtureRequest) -> Family:
    """In bfloat16, in which no weight is repacked."""
    return load_family(tiny_pipeline_dir(request.param), dtype=torch.bfloat16)


@pytest.mark.parametrize("num_rows", [1, 2, 4])
@torch.inference_mode()
def test_blocks_read_their_carry_and_the_weights_alone_and_equal_layouts_look_alike(
    family: Family, num_rows: int
) -> None:
    requests = requests_for(family)[:num_rows]
    weights = [*model_of(family).parameters(), *model_of(family).buffers()]
    carries = [family.denoise.open(rows_for(family, requests, seed)) for seed in (0, 1)]
    assert carries[0].facts == carries[1].facts and hash(carries[0].facts) == hash(carries[1].facts)
    for block in family.denoise.blocks(family.denoise_shape(requests[0])):
        assert block.is_capturable
        for carry in carries:
            before = {name: (x, x.clone()) for name, x in carry.tensors.items()}
            with Reads([*weights, *carry.tensors.values()]):
                block.run(carry)
            assert carry.tensors.keys() == before.keys()
            assert all(torch.equal(x, copy) for x, copy in before.values()), "a block wrote into its carry"
        assert layout(carries[0]) == layout(carries[1])


@torch.inference_mode()
def test_another_layout_has_other_facts(family: Family) -> None:
    requests = requests_for(family)
    facts = [family.denoise.open(rows_for(family, chosen, 0)).facts for chosen in (requests[:1], requests[:2])]
    assert facts[0] != facts[1]


class OnDevice(TorchDispatchMode):
    """Fails on what would copy from the host or wait for the device, if `meta` were one that computes."""

    WAITING = ("_local_scalar_dense", "nonzero", "masked_select", "_unique", "is_nonzero", "equal")

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        assert name not in self.WAITING, f"{name} waits"
        made = func(*args, **(kwargs or {}))
        for value in tree_leaves((args, kwargs, made)):
            assert not isinstance(value, Tensor) or value.is_meta, f"{name} has to do with a tensor on the host"
        return made


@pytest.mark.parametrize("name", FAMILIES)
@torch.inference_mode()
def test_nothing_of_a_step_is_copied_from_the_host(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "to_device", lambda tensor, device: tensor.to(device))  # schedules, once a request
    edge = open_edge(tiny_pipeline_dir(name))
    components = Components(edge.files, dtype=torch.bfloat16, device="meta", load_format="auto")
    family = CLASSES[edge.files.pipeline_class](edge, components)
    requests = requests_for(family)
    rows = rows_for(family, requests, 0, "meta")
    coefficients = [family.schedule(request).coefficients for request in requests]
    clean = [Clean(row.latents) for row in rows[:1]]
    with OnDevice():  # type: ignore[no-untyped-call]
        for stage, batch, shape in (
            (family.denoise, rows, family.denoise_shape(requests[0])),
            (family.decode, clean, family.latents_shape(requests[0])),
        ):
            carry = stage.open(batch)  # type: ignore[arg-type]
            for block in stage.blocks(shape):
                block.run(carry)
            results = stage.close(carry, batch)  # type: ignore[arg-type]
            assert all(result.is_meta for result in results)
        latents = torch.stack([row.latents for row in rows[:2]])
        history = [latents] * family.solver.num_history
        family.solver.step(torch.stack([each[0] for each in coefficients[:2]]), latents, latents, history)
