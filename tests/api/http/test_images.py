"""Pictures over HTTP: what is asked, what comes, as events, by URL, and what is refused."""

import base64
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from hemiola.api.http.media_fields import HONOURED_BY_IMAGES, IMAGE_FIELDS
from hemiola.api.jobs import JobLimits
from hemiola.core.errors import EngineDied, Overloaded
from hemiola.tests.api.http.media_rig import colour
from hemiola.tests.api.http.media_server import MediaServer, serving, soon

PATH = "/v1/images/generations"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MediaServer]:
    with serving(tmp_path_factory.mktemp("images")) as made:
        yield made


@pytest.fixture(autouse=True)
def rested(server: MediaServer) -> Iterator[None]:
    """Every test leaves the backend idle and as it was."""
    yield
    painter = server.painter
    painter.let_go()
    soon(lambda: painter.num_running == 0)
    painter.refusal, painter.death, painter.has_previews = None, None, False


def picture(b64: str) -> Image.Image:
    return Image.open(io.BytesIO(base64.b64decode(b64)))


# What comes


def test_a_prompt_alone_gives_a_png_of_the_models_size_and_its_random_seed(server: MediaServer) -> None:
    first, second = (server.post(PATH, prompt="fox").json() for _ in range(2))
    (one,) = first["data"]
    made = picture(one["b64_json"])
    assert (made.format, made.size) == ("PNG", (64, 64))
    assert made.getpixel((5, 5)) == tuple(colour(one["seed"]))
    assert one["seed"] != second["data"][0]["seed"] and 0 <= one["seed"] < 2**32
    assert (first["size"], first["output_format"], first["background"]) == ("64x64", "png", "opaque")
    assert first["usage"]["input_tokens"] == first["usage"]["total_tokens"] == 2  # the word and the full stop
    assert first["usage"]["num_steps"] == 4
    assert first["id"].startswith("image_") and first["inference_time_s"] > 0 and first["model"] == "brush"


def test_the_openai_client_makes_several_with_their_seeds(server: MediaServer) -> None:
    answer = server.sdk().images.generate(
        model="brush", prompt="fox", n=3, size="96x32", extra_body={"seed": 5, "num_inference_steps": 2}
    )
    assert answer.data is not None
    assert [each.to_dict()["seed"] for each in answer.data] == [5, 6, 7]
    for i, each in enumerate(answer.data):
        assert picture(each.b64_json or "").size == (96, 32)
        assert picture(each.b64_json or "").getpixel((0, 0)) == tuple(colour(5 + i))
    assert answer.usage is not None and answer.usage.input_tokens == 2


def test_everything_that_is_said_reaches_the_engine(server: MediaServer) -> None:
    said = {
        "prompt": "fox", "negative_prompt": "fox fox", "width": 32, "height": 48, "seed": 9, "guidance_scale": 2,
        "num_inference_steps": 3, "priority": -3, "service_class": "background", "model": "brush", "n": 1,
    }  # fmt: skip
    assert server.post(PATH, **said).status_code == 200
    request = server.painter.requests[-1]
    assert (request.width, request.height, request.seed, request.num_inference_steps) == (32, 48, 9, 3)
    assert (request.guidance_scale, request.priority, request.service_class) == (2.0, -3, "background")
    assert len(request.negative_token_ids["text_encoder"]) == 3


@pytest.mark.parametrize(("name", "magic"), [("png", b"\x89PNG"), ("jpeg", b"\xff\xd8\xff"), ("webp", b"RIFF")])
def test_files_are_what_was_asked_for(server: MediaServer, name: str, magic: bytes) -> None:
    answer = server.post(PATH, prompt="fox", output_format=name).json()
    assert answer["output_format"] == name
    assert base64.b64decode(answer["data"][0]["b64_json"]).startswith(magic)


def test_compression_is_the_quality_of_jpeg(server: MediaServer) -> None:
    coarse, fine = (
        picture(
            server.post(PATH, prompt="fox", output_format="jpeg", output_compression=q).json()["data"][0]["b64_json"]
        )
        for q in (10, 90)
    )
    assert sum(coarse.quantization[0]) > 3 * sum(fine.quantization[0])  # type: ignore[attr-defined]


def test_a_form_says_the_same_as_json(server: MediaServer) -> None:
    fields = {
        "prompt": "fox",
        "n": "2",
        "seed": "7",
        "size": "AUTO",
        "extra_body[num_inference_steps]": "2",
        "style": "vivid",
    }
    response = server.http.post(PATH, files={name: (None, value) for name, value in fields.items()})
    assert [each["seed"] for each in response.json()["data"]] == [7, 8]
    assert server.painter.requests[-1].num_inference_steps == 2


def test_wrapped_fields_never_override_declared_ones(server: MediaServer) -> None:
    server.post(PATH, prompt="fox", seed=1, extra_params={"seed": 2, "num_inference_steps": 3}, extra_args={"n": 2})
    assert [(r.seed, r.num_inference_steps) for r in server.painter.requests[-2:]] == [(1, 3), (2, 3)]


def test_null_is_as_good_as_nothing(server: MediaServer) -> None:
    names = [*HONOURED_BY_IMAGES, *IMAGE_FIELDS.harmless, *IMAGE_FIELDS.unsupported]
    response = server.post(PATH, **{**dict.fromkeys(names), "prompt": "fox"})
    assert response.status_code == 200


# By URL


def test_pictures_by_url_can_be_fetched_without_a_key_whole_and_in_parts(tmp_path: Path) -> None:
    with serving(tmp_path, api_keys=("secret",)) as server:
        server.http.headers["authorization"] = "Bearer secret"
        answer = server.post(PATH, prompt="fox", n=2, seed=3, response_format="url", output_format="webp").json()
        assert "b64_json" not in answer["data"][0]
        urls = [each["url"] for each in answer["data"]]
        assert urls == [f"{server.url}/v1/images/{answer['id']}/content?variant={i}" for i in range(2)]
        whole = httpx.get(urls[1])
        assert (whole.status_code, whole.headers["content-type"]) == (200, "image/webp")
        assert Image.open(io.BytesIO(whole.content)).size == (64, 64)
        head = httpx.head(urls[1])
        assert (head.status_code, head.headers["content-length"], head.content) == (200, str(len(whole.content)), b"")
        part = httpx.get(urls[1], headers={"range": "bytes=0-3"})
        assert (part.status_code, part.content) == (206, b"RIFF")
        again = httpx.get(urls[1], headers={"if-none-match": whole.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")
        for wrong in (urls[0].replace("variant=0", "variant=2"), urls[0].replace("variant=0", "variant=../0")):
            refused = httpx.get(wrong)
            assert (refused.status_code, refused.json()["error"]["code"]) == (404, "image_not_found")
    with serving(tmp_path) as other:
        path = urls[0].removeprefix(server.url)
        assert other.http.get(path).headers["content-type"] == "image/webp"


def test_pictures_beyond_the_quota_are_refused_before_they_are_made(tmp_path: Path) -> None:
    with serving(tmp_path, jobs=JobLimits(max_pictures=1)) as server:
        assert server.post(PATH, prompt="fox", response_format="url").status_code == 200
        response = server.post(PATH, prompt="fox", response_format="url")
        error = response.json()["error"]
        assert (response.status_code, error["code"]) == (429, "storage_quota_exceeded")
        assert response.headers["x-should-retry"] == "false" and "b64_json" in error["message"]
        assert len(server.painter.requests) == 1
        assert server.post(PATH, prompt="fox").status_code == 200


# As events


def events_of(text: str) -> list[tuple[str | None, Any]]:
    """(event, data) of each frame, and (None, comment) of comments."""
    found: list[tuple[str | None, Any]] = []
    for block in text.strip().split("\n\n"):
        if block.startswith(":"):
            found.append((None, block[1:].strip()))
        else:
            name, data = block.split("\n")
            found.append((name.removeprefix("event: "), json.loads(data.removeprefix("data: "))))
    return found


def test_the_openai_client_gets_each_picture_as_it_is_done(server: MediaServer) -> None:
    stream = server.sdk().images.generate(prompt="fox", model="brush", n=2, stream=True, extra_body={"seed": 4})
    events: list[dict[str, Any]] = [event.to_dict() for event in stream]
    done = {event["index"]: event for event in events}
    assert sorted(done) == [0, 1]
    for i, event in done.items():
        assert event["type"] == "image_generation.completed"
        assert (event["seed"], event["size"], event["output_format"]) == (4 + i, "64x64", "png")
        assert event["model"] == "brush"
        assert event["usage"]["total_tokens"] == 2
        assert picture(str(event["b64_json"])).getpixel((0, 0)) == tuple(colour(4 + i))


def test_every_step_is_told_in_a_comment(server: MediaServer) -> None:
    response = server.post(PATH, prompt="fox", stream=True, num_inference_steps=5, partial_images=2)
    assert response.headers["content-type"].startswith("text/event-stream")
    found = events_of(response.text)
    comments = [json.loads(each.removeprefix("progress ")) for name, each in found if name is None]
    assert comments == [{"index": 0, "done": i + 1, "total": 5} for i in range(5)]
    assert [name for name, _ in found if name] == ["image_generation.completed"]


@pytest.mark.parametrize("wanted", [0, 1, 3])
def test_as_many_previews_come_as_were_asked_for(server: MediaServer, wanted: int) -> None:
    server.painter.has_previews = True
    response = server.post(PATH, prompt="fox", stream=True, num_inference_steps=8, partial_images=wanted)
    partial = [data for name, data in events_of(response.text) if name == "image_generation.partial_image"]
    assert [each["partial_image_index"] for each in partial] == list(range(wanted))
    assert all(picture(each["b64_json"]).size == (64, 64) for each in partial)


def test_what_fails_at_once_has_a_status_and_what_fails_later_an_event(server: MediaServer) -> None:
    server.painter.death = "insufficient_memory"
    at_once = server.post(PATH, prompt="fox", stream=True, num_inference_steps=1)
    # The one step's progress may be heard first.
    if at_once.status_code != 200:
        assert at_once.json()["error"]["code"] == "insufficient_memory"
    server.painter.hold()
    with server.http.stream("POST", PATH, json={"prompt": "fox", "stream": True}) as response:
        assert response.status_code == 200
        server.painter.let_go()
        name, data = events_of(response.read().decode())[-1]
    assert (name, data["error"]["code"]) == ("error", "insufficient_memory")
    server.painter.refusal = Overloaded("The queue is full.")
    refused = server.post(PATH, prompt="fox", stream=True)
    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "server_overloaded")
    assert "retry-after" in refused.headers


@pytest.mark.parametrize(
    ("death", "status", "code"),
    [("engine_died", 500, "internal_error"), ("insufficient_memory", 400, "insufficient_memory")],
)
def test_a_failure_of_the_engine_is_told(server: MediaServer, death: str, status: int, code: str) -> None:
    server.painter.death = death
    assert server.error(PATH, prompt="fox")[0] == status
    assert server.error(PATH, prompt="fox")[1]["code"] == code
    server.painter.refusal = EngineDied("The engine died.")
    assert server.error(PATH, prompt="fox")[0] == 500


@pytest.mark.parametrize("is_streamed", [False, True])
def test_a_client_that_leaves_takes_its_pictures_with_it(server: MediaServer, is_streamed: bool) -> None:
    server.painter.hold()
    num_aborted = len(server.painter.aborted)
    body = {"prompt": "fox", "n": 2, "stream": is_streamed}
    if is_streamed:
        with server.http.stream("POST", PATH, json=body) as response:
            next(response.iter_bytes())
            assert server.painter.num_running == 2
    else:
        with pytest.raises(httpx.ReadTimeout):
            server.http.post(PATH, json=body, timeout=0.5)
    soon(lambda: server.painter.num_running == 0)
    assert len(server.painter.aborted) == num_aborted + 2


# What is refused


@pytest.mark.parametrize(
    ("said", "param", "code", "words"),
    [
        ({"prompt": None}, "prompt", "missing_required_parameter", "'prompt'"),
        ({"prompt": ""}, "prompt", "invalid_value", "empty"),
        ({"prompt": 3}, "prompt", "invalid_type", "expected a string"),
        ({"prompt": "x" * 32_001}, "prompt", "string_above_max_length", "32000"),
        ({"model": "sora"}, "model", "model_not_found", "brush"),
        ({"model": "film"}, "model", "invalid_value", "brush"),
        ({"n": 0}, "n", "integer_below_min_value", ">= 1"),
        ({"n": 11}, "n", "integer_above_max_value", "<= 10"),
        ({"n": "3"}, "n", "invalid_type", "a string"),
        ({"n": True}, "n", "invalid_type", "a boolean"),
        ({"n": 2.0}, "n", "invalid_type", "a decimal"),
        ({"n": 2, "num_outputs_per_prompt": 3}, "num_outputs_per_prompt", "invalid_value", "contradicts 'n'"),
        ({"size": "100x64"}, "size", "invalid_value", "multiples of 16, at most 256x256. The nearest"),
        ({"size": "100x64"}, "size", "invalid_value", "valid is '96x64'"),
        ({"size": "100000x8"}, "size", "invalid_value", "'256x16'"),
        ({"size": "big"}, "size", "invalid_value", "WIDTHxHEIGHT"),
        ({"size": [64, 64]}, "size", "invalid_type", "an array"),
        ({"width": 40}, "width", "invalid_value", "'48x64'"),
        ({"height": 272}, "height", "integer_above_max_value", "<= 256"),
        ({"size": "64x64", "width": 96}, "width", "invalid_value", "contradicts 'size'"),
        ({"seed": -1}, "seed", "integer_below_min_value", ">= 0"),
        ({"seed": 2**63}, "seed", "integer_above_max_value", "9223372036854775807"),
        ({"num_inference_steps": 201}, "num_inference_steps", "integer_above_max_value", "200"),
        ({"guidance_scale": 20.5}, "guidance_scale", "decimal_above_max_value", "20"),
        ({"guidance_scale": "high"}, "guidance_scale", "invalid_type", "a string"),
        ({"output_format": "gif"}, "output_format", "unsupported_value", "'webp'"),
        ({"output_format": "bmp"}, "output_format", "invalid_value", "'bmp'"),
        ({"output_compression": 101}, "output_compression", "integer_above_max_value", "100"),
        ({"background": "transparent"}, "background", "unsupported_value", "opaque"),
        ({"response_format": "url", "stream": True}, "response_format", "unsupported_value", "b64_json"),
        ({"partial_images": 4}, "partial_images", "integer_above_max_value", "3"),
        ({"stream": "yes"}, "stream", "invalid_type", "a boolean"),
        ({"service_class": "royal"}, "service_class", "invalid_value", "interactive"),
        ({"strength": 0.5}, "strength", "unsupported_parameter", "'strength'"),
        ({"true_cfg_scale": 4}, "true_cfg_scale", "unsupported_parameter", "Use 'guidance_scale'"),
        ({"lora": {"name": "x", "path": "/etc"}}, "lora", "unsupported_parameter", "'lora'"),
        ({"enable_teacache": True}, "enable_teacache", "unsupported_parameter", "'enable_teacache'"),
        ({"extra_params": 3}, "extra_params", "invalid_type", "an object"),
        ({"extra_body": {"layers": 2}}, "layers", "unsupported_parameter", "'layers'"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(server: MediaServer, said: dict[str, Any], param: str, code: str, words: str) -> None:
    response = server.http.post(
        PATH, content=json.dumps({"prompt": "fox"} | said), headers={"content-type": "application/json"}
    )
    error = response.json()["error"]
    expected = 404 if code == "model_not_found" else 400
    assert (response.status_code, error["param"], error["code"]) == (expected, param, code), error
    assert words in error["message"] and error["type"] == "invalid_request_error"
    assert len(error["message"]) < 400


def test_values_that_say_what_is_so_anyway_are_no_error(server: MediaServer) -> None:
    said = {
        "lora": {},
        "enable_teacache": False,
        "generator_device": "cpu",
        "quality": "hd",
        "style": "vivid",
        "user": "me",
    }
    assert server.post(PATH, prompt="fox", **said).status_code == 200


def test_unknown_fields_are_ignored_unless_the_server_is_strict(server: MediaServer, tmp_path: Path) -> None:
    assert server.post(PATH, prompt="fox", colour="red").status_code == 200
    with serving(tmp_path, strict_params=True) as strict:
        status, error = strict.error(PATH, prompt="fox", colour="red")
        assert (status, error["param"], error["code"]) == (400, "colour", "unknown_parameter")


PART, FORM = b"--x\r\ncontent-disposition: form-data", "multipart/form-data; boundary=x"


@pytest.mark.parametrize(
    ("body", "content_type", "status"),
    [
        (b'{"prompt": "fox", "n": NaN}', "application/json", 400),
        (b'{"prompt": "fox", "guidance_scale": 1e400}', "application/json", 400),
        (b'{"prompt": "fox"', "application/json", 400),
        (b'["fox"]', "application/json", 400),
        (b"[" * 100_000, "application/json", 400),
        (b'{"prompt": "\xff"}', "application/json", 400),
        (b'{"prompt": "\\ud800"}', "application/json", 400),
        (b"", "application/json", 400),
        (b"prompt=fox", "application/x-www-form-urlencoded", 400),
        (b"fox", "text/plain", 400),
        (b'{"prompt": "' + b"x" * (9 << 20) + b'"}', "application/json", 413),
        (b"--x\r\n\r\nfox", "multipart/form-data", 400),
        (b"no parts", FORM, 400),
        (PART + b"\r\n\r\nfox\r\n--x--", FORM, 400),
        (PART + b'; name="prompt"; filename="f"\r\n\r\nfox\r\n--x--', FORM, 400),
        ((PART + b'; name="prompt"\r\n\r\na\r\n') * 2 + b"--x--", FORM, 400),
    ],
)  # fmt: skip
def test_bodies_that_are_none_are_refused(server: MediaServer, body: bytes, content_type: str, status: int) -> None:
    num_before = len(server.painter.requests)
    response = server.http.post(PATH, content=body, headers={"content-type": content_type})
    assert response.status_code == status, response.text
    assert response.json()["error"]["type"] == "invalid_request_error"
    assert len(response.content) < 500 and len(server.painter.requests) == num_before


@pytest.mark.parametrize("path", ["/v1/images/edits", "/v1/images/variations"])
def test_editing_is_refused_in_a_way_that_is_not_tried_again(server: MediaServer, path: str) -> None:
    response = server.http.post(path, files={"image": b"\x89PNG", "prompt": (None, "fox")})
    assert (response.status_code, response.json()["error"]["code"]) == (400, "unsupported_endpoint")
    with pytest.raises(openai.BadRequestError):
        server.sdk().images.edit(image=b"\x89PNG", prompt="fox", model="brush")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=5,
)
NAMES = st.sampled_from([*HONOURED_BY_IMAGES, *IMAGE_FIELDS.unsupported, "unknown"])


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(body=st.dictionaries(NAMES, JSON, max_size=5), has_prompt=st.booleans())
def test_no_body_breaks_the_server(server: MediaServer, body: dict[str, Any], has_prompt: bool) -> None:
    said = body | ({"prompt": "fox"} if has_prompt else {}) | {"num_inference_steps": 1}
    response = server.http.post(PATH, content=json.dumps(said), headers={"content-type": "application/json"})
    assert response.status_code in (200, 400, 404), (said, response.text)
    assert response.status_code == 200 or response.json()["error"]["message"]
