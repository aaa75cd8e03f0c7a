"""What holds of the engine on a CPU holds on a GPU: aborts, failures, parking, interleaving, and results as alone.

In float32 and over tiny models, whose results hardly depend on the kernels: what is tested is who runs when and where.
"""

import random

import pytest
import torch

from hemiola.core.request import Request
from hemiola.scheduler.policy import POLICIES
from hemiola.tests.engine.models import chat, picture, prompt_ids
from hemiola.tests.engine.rig import Rig
from hemiola.tests.engine.test_aborts import (
    test_all_of_a_crowd_are_aborted_at_once,
    test_alone_an_abort_gives_every_byte_back,
    test_beside_others_an_abort_ends_the_victim_alone,
)
from hemiola.tests.engine.test_failures import test_a_failure_ends_the_request_at_fault_and_no_other
from hemiola.tests.engine.test_interleaving import test_media_goes_on_while_text_is_decoded
from hemiola.tests.engine.test_solo_equality import judge, run_schedule

__all__ = [
    "test_a_failure_ends_the_request_at_fault_and_no_other",
    "test_all_of_a_crowd_are_aborted_at_once",
    "test_alone_an_abort_gives_every_byte_back",
    "test_beside_others_an_abort_ends_the_victim_alone",
    "test_media_goes_on_while_text_is_decoded",
]

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


@pytest.mark.parametrize("policy", POLICIES)
def test_survivors_of_random_schedules_equal_their_solo_runs(policy: str) -> None:
    for seed in range(3):
        rng = random.Random(f"{policy}-{seed}")
        rig = Rig(policy=policy, max_batch_tokens=rng.choice((16, 64)))
        judge(rig, *run_schedule(rig, rng))


def test_denoise_blocks_are_replayed_beside_decodes() -> None:
    rig = Rig()
    requests: list[Request] = [picture(f"p{i}", seed=i, num_inference_steps=12) for i in range(2)]
    requests.append(chat("c", prompt_ids(40), 60))
    rig.run(*requests)
    for request in requests:
        rig.assert_as_alone(request)
    graphs = rig.made.pipelines["own"].graphs
    assert graphs is not None and graphs.num_graphs > 0 and graphs.num_slots > 0
    rig.assert_nothing_is_held()
