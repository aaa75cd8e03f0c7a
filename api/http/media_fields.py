"""Every field of image and video requests that clients are known to send, and what becomes of it.

The documentation prints these tables. A field that is in none of them is unknown: ignored and logged, or refused when
the server is strict.
"""

from collections.abc import Collection, Mapping
from typing import Any

from .fields import FieldTable

# Honoured: name -> what it does.
_BOTH: dict[str, str] = {
    "prompt": "what to make; up to 32,000 characters",
    "negative_prompt": "what to keep away from",
    "model": "the served model; may be left out where only one makes such things",
    "size": "'WIDTHxHEIGHT' in pixels, or 'auto' for the model's own",
    "width": "pixels; with 'height', in place of 'size'",
    "height": "pixels; with 'width', in place of 'size'",
    "seed": "of the noise; random if left out, and returned",
    "num_inference_steps": "denoise steps, 1 to 200",
    "guidance_scale": "classifier-free guidance, 0 to 20, in the model's own convention",
    "priority": "lower runs earlier; 0 is ordinary",
    "service_class": "how soon it matters: 'interactive', 'standard' or 'background'",
    "extra_body": "an object whose fields count as if they stood beside it",
    "extra_params": "as 'extra_body'",
    "extra_args": "as 'extra_body'",
    "diffusers_kwargs": "as 'extra_body'",
}
HONOURED_BY_IMAGES: Mapping[str, str] = _BOTH | {
    "n": "how many, 1 to 10; picture i is made with seed + i",
    "num_outputs_per_prompt": "as 'n'",
    "response_format": "'b64_json' (the default) or 'url', which is kept for at least an hour",
    "output_format": "'png' (the default), 'jpeg' or 'webp'",
    "output_compression": "quality of JPEG and WebP, 0 to 100",
    "output_quality": "as 'output_compression'",
    "background": "'opaque' or 'auto'",
    "stream": "events as it is made, instead of one answer at the end",
    "partial_images": "how many previews at most, 0 to 3, where the model has any",
}
HONOURED_BY_VIDEOS: Mapping[str, str] = _BOTH | {
    "seconds": "how long, a number or a number in a string",
    "num_frames": "in place of 'seconds'; rounded to the model's grid, and returned",
    "fps": "frames per second of the file, 1 to 120",
}

# Accepted, and without effect.
_HARMLESS = frozenset(
    (
        "user safety_identifier metadata moderation quality style store service_tier request_id rid session_id "
        "input_fidelity"
    ).split()
)

# Refused, unless a value says what is so anyway: name -> such values.
_UNSUPPORTED: dict[str, Collection[Any]] = {
    "true_cfg_scale": (),
    "flow_shift": (),
    "max_sequence_length": (),
    "strength": (),
    "generator_device": ("cpu",),
    "lora": ({}, ()),
    "lora_path": ("",),
    "layers": (),
    "enable_teacache": (False,),
    "enable_cache_dit": (False,),
    "cache_dit_params": ({},),
    "enable_upscaling": (False,),
    "upscaling_scale": (),
    "upscaling_model_path": (),
    "vae_use_slicing": (False,),
    "vae_use_tiling": (False,),
    "enhance_prompt": (False,),
    "profile": (False,),
    "perf_dump_path": (),
    "return_stage_metrics": (False,),
    "output_path": (),
    "url": ([], ""),
    "reference_url": (),
    "image": ([],),
    "mask": (),
}
_OF_IMAGES: dict[str, Collection[Any]] = {
    "svg": (),
    "frame_count": (),
    "frame_duration_ms": (),
    "complexity": ("auto",),
    "images": ([],),
    "mask_image": (),
    "reference_image": (),
    "markup": (),
}
_OF_VIDEOS: dict[str, Collection[Any]] = {
    "n": (1,),
    "num_outputs_per_prompt": (1,),
    "input_reference": (),
    "image_reference": (),
    "video_reference": (),
    "audio_reference": (),
    "control_reference": (),
    "video": (),
    "video_url": (),
    "image_url": (),
    "characters": ([],),
    "guidance_scale_2": (),
    "boundary_ratio": (),
    "aspect_ratio": (),
    "short_edge": (),
    "generate_sound": (False,),
    "sound_duration": (),
    "enable_frame_interpolation": (False,),
    "frame_interpolation_exp": (),
    "frame_interpolation_scale": (),
    "frame_interpolation_model_path": (),
    "x264_preset": (),
    "output_compression": (),
    "output_quality": ("default",),
}
_HINTS = {
    "true_cfg_scale": "Use 'guidance_scale'.",
    "guidance_scale_2": "Use 'guidance_scale'.",
    "aspect_ratio": "Use 'size'.",
    "short_edge": "Use 'size'.",
    "n": "One request makes one video.",
    "num_outputs_per_prompt": "One request makes one video.",
    "input_reference": "The served models make videos from text alone.",
    "output_path": "Download the result instead.",
}

IMAGE_FIELDS = FieldTable(HONOURED_BY_IMAGES, _HARMLESS, _UNSUPPORTED | _OF_IMAGES, _HINTS)
VIDEO_FIELDS = FieldTable(HONOURED_BY_VIDEOS, _HARMLESS, _UNSUPPORTED | _OF_VIDEOS, _HINTS)
