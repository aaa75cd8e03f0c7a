"""A victim, to which something is going to happen, and those who run beside it, to whom nothing must."""

from hemiola.core.request import Request

from .models import chat, picture, prompt_ids

SHARED = prompt_ids(50)
"""What the victim's prompt and a survivor's have in common."""


VICTIM_SEED = 77


def victim_chat() -> Request:
    return chat("victim", SHARED + prompt_ids(30, 1), 12, temperature=0.9, seed=VICTIM_SEED)


def victim_picture(model: str, prompt: str = "a red fox") -> Request:
    return picture("victim", prompt, model=model, num_inference_steps=3, seed=VICTIM_SEED)


def survivors() -> list[Request]:
    """Some share a prefix, a prompt or a batch with the victim, some only the device."""
    return [
        chat("c1", SHARED + prompt_ids(9, 2), 20),
        chat("c2", prompt_ids(20, 3), 20, temperature=0.8, seed=4),
        picture("p1", model="image", seed=1, num_inference_steps=3),
        picture("p2", model="own", seed=2, num_inference_steps=3),
        picture("p3", "a house", model="own", size=(32, 16), guidance_scale=0.0),
        picture("f1", model="flux", seed=2, num_inference_steps=3),
        picture("v1", model="clip", seed=3, num_inference_steps=3),
    ]
