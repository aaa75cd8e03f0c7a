"""The trainers' steps on a CPU: the loss falls, the averages load, latents have the pipeline's scale."""

from collections.abc import Iterator

import pytest
import torch

from samples.train.common.training import Clock
from samples.train.image.dit import Settings, Trainer, initialise
from samples.train.image.latents import WORDINGS, Bucket, LatentPool, encode_pictures
from samples.train.image.models import SHAPES
from samples.train.image.pictures import PictureSource
from samples.train.image.vae import quality


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    yield
    torch.set_num_threads(threads)


def test_the_denoiser_learns_two_pictures() -> None:
    model = SHAPES["toy"].transformer(24)
    initialise(model)
    trainer = Trainer(model, Settings(seconds=1.0, compiles=False), torch.device("cpu"))
    pool = LatentPool(torch.randn(2, 16, 8, 8).half(), torch.randn(2 * WORDINGS, 32, 24), torch.full((4,), 12))
    bucket = Bucket(64, 64, 32, 1.0, 8, 2)
    step = trainer.step_of(bucket, pool, (torch.zeros(1, 32, 24), torch.tensor([9])))
    trainer.optimizer.rate.fill_(3e-3)
    losses = [step()[0].item() for _ in range(80)]
    assert losses[0] == pytest.approx(2.0, abs=0.2)  # the prediction begins at zero: E(x - n)^2 = 2
    assert sum(losses[-10:]) / 10 < 0.75 * losses[0]
    averaged = trainer.averaged()
    model.load_state_dict({name: value.float() for name, value in averaged.items()})


def test_training_stops_with_its_budget_and_reports() -> None:
    model = SHAPES["toy"].transformer(24)
    initialise(model)
    settings = Settings(seconds=2.0, reserve_s=0.5, log_every=5, compiles=False)
    trainer = Trainer(model, settings, torch.device("cpu"))
    pool = LatentPool(torch.randn(2, 16, 4, 4).half(), torch.randn(2 * WORDINGS, 32, 24), torch.full((4,), 12))
    step = trainer.step_of(Bucket(32, 32, 32, 1.0, 2, 2), pool, (torch.zeros(1, 32, 24), torch.tensor([9])))
    figures = trainer.train([step], [1.0], Clock(), seed=0)
    assert figures["steps"] >= 1 and 0 < figures["loss"] < 4  # a busy machine makes few steps in the budget


def test_latents_are_scaled_as_the_pipeline_unscales_them() -> None:
    vae = SHAPES["toy"].vae().eval()
    vae.register_to_config(scaling_factor=0.4, shift_factor=0.3)
    source = PictureSource(0, torch.device("cpu"))
    images = source.render(source.scenes(2), 64, 64)
    latents = encode_pictures(vae, images).float()
    with torch.no_grad():
        mode = vae.encode(images.float() / 127.5 - 1).latent_dist.mode()
    assert torch.allclose(latents / 0.4 + 0.3, mode, atol=5e-3)


def test_quality_of_a_broken_autoencoder_is_bad() -> None:
    source = PictureSource(0, torch.device("cpu"))
    images = source.render(source.scenes(2), 64, 64)
    assert quality(SHAPES["toy"].vae().eval(), images)["mean"] < 15
