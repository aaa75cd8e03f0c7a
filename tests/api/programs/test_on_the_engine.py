"""Programs on the demo models: the same as by hand, at once, without computing a prompt twice, and cancellable."""

import asyncio
from typing import Any

import numpy as np
import pytest

import hemiola as hm
from hemiola.api.front.text import TextFront
from hemiola.core.request import TextRequest
from hemiola.core.tracing import StepRecord

PAGE_LEN = 4  # tokens, on a CPU
GREEDY: dict[str, Any] = {"temperature": 0.0, "max_tokens": 40}
ASK = "Come up with a scene for a picture book about {}."
PAINT = "Now write an image prompt for this scene."


@hm.program
def book(s: hm.State, animal: str) -> None:
    s += hm.user(ASK.format(animal))
    s += hm.assistant(hm.gen("scene", **GREEDY))
    s += hm.user(PAINT)
    s += hm.assistant(hm.gen("prompt", **GREEDY))
    s += hm.gen_image("picture", s["prompt"], steps=2, seed=4, size=(96, 96))
    s += hm.gen_video("clip", s["prompt"], steps=1, seed=5, frames=5)


def test_a_program_gives_what_the_same_calls_by_hand_give(demo: hm.Engine) -> None:
    run = book.on(demo).run("a heron")
    messages: list[dict[str, str]] = [{"role": "user", "content": ASK.format("a heron")}]
    scene = demo.chat(messages, **GREEDY).text
    messages += [{"role": "assistant", "content": scene}, {"role": "user", "content": PAINT}]
    prompt = demo.chat(messages, **GREEDY).text
    picture = demo.image(prompt, num_inference_steps=2, seed=4, size=(96, 96))
    clip = demo.video(prompt, num_inference_steps=1, seed=5, num_frames=5)
    assert run.errors == [] and scene and prompt
    assert run.messages() == [*messages, {"role": "assistant", "content": prompt}]
    assert run["picture"].pictures[0].pixels == picture.pictures[0].pixels
    assert np.array_equal(run["clip"].array, clip.array)


def test_a_turn_that_has_begun_goes_on_as_its_text_would(demo: hm.Engine) -> None:
    @hm.program
    def begun(s: hm.State) -> None:
        s += hm.user(ASK.format("a fox"))
        with s.assistant():
            s += "A fox is "
            s += hm.gen("rest", **GREEDY)

    run = begun.on(demo).run()
    front = demo.text_front(None)
    asked = front.render([{"role": "user", "content": ASK.format("a fox")}]) + "A fox is "
    assert run["rest"] == demo.complete(asked, add_special_tokens=False, **GREEDY).text
    assert run["rest"] and run["rest"] != demo.chat(ASK.format("a fox"), **GREEDY).text


def test_a_picture_denoises_while_a_later_scene_is_written(demo: hm.Engine) -> None:
    @hm.program
    def scenes(s: hm.State) -> None:
        for i in range(2):
            s += hm.user(ASK.format(("a fox", "a heron")[i]))
            s += hm.assistant(hm.gen(f"scene{i}", temperature=0.0, max_tokens=30))
            s += hm.gen_image(f"picture{i}", s[f"scene{i}"], steps=6, seed=i)

    run = scenes.on(demo).run()
    assert run.errors == []
    ids = {node.name: node.request_ids[0] for node in run.nodes}
    written = steps_of(demo, ids["scene1"])
    denoised = [step for step in steps_of(demo, ids["picture0"]) if step.phase.startswith("denoise")]
    inside = [step for step in denoised if written[0].start_s < step.start_s and step.end_s < written[-1].end_s]
    assert inside, "No step of the first picture ran between the first and the last step of the second scene."


def steps_of(engine: hm.Engine, request_id: str) -> list[StepRecord]:
    return [step for step in engine.trace.records if request_id in step.request_ids]


def test_forks_and_later_turns_compute_no_prompt_token_again(demo: hm.Engine) -> None:
    """Of every prompt, only what no prompt or answer before it began with is computed: within a page."""

    @hm.program
    def forked(s: hm.State) -> None:
        s += hm.system("You write very short picture books.")
        s += hm.user(ASK.format("an old zebra"))
        with s.assistant():
            s += "Once, "
            s += hm.gen("story", **GREEDY)
        for i, scene in enumerate(s.fork(3)):
            scene += hm.user(f"{i + 1}. " + PAINT)
            scene += hm.assistant(hm.gen("prompt", **GREEDY))
            scene += hm.user("Thank you.")
            scene += hm.assistant(hm.gen("reply", **GREEDY))

    asked: dict[str, TextRequest] = {}
    answered: dict[str, tuple[int, ...]] = {}
    run = forked.on(Noting(demo, asked, answered)).run()
    assert run.errors == [] and len(asked) == 7
    for node in run.nodes[1:]:
        mine = asked[node.request_ids[0]].token_ids
        shared = max(
            common(mine, (*asked[each.request_ids[0]].token_ids, *answered[each.request_ids[0]]))
            for each in node.inputs
        )
        assert node.usage is not None
        assert node.usage.cached_tokens >= min(shared, len(mine) - 1) - PAGE_LEN, node.name
    story = run.nodes[0]
    scenes = [node for node in run.nodes if node.name == "prompt"]
    whole = len(asked[story.request_ids[0]].token_ids) + len(answered[story.request_ids[0]])
    assert all(common(asked[n.request_ids[0]].token_ids, asked[story.request_ids[0]].token_ids) for n in scenes)
    assert all(node.usage is not None and node.usage.cached_tokens >= whole - PAGE_LEN for node in scenes)


def common(a: tuple[int, ...], b: tuple[int, ...]) -> int:
    """Length of the longest beginning of both."""
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


class Noting:
    """An engine that notes what text was asked and answered, by request."""

    def __init__(self, engine: hm.Engine, asked: dict[str, TextRequest], answered: dict[str, tuple[int, ...]]) -> None:
        self._engine = engine
        self._asked = asked
        self._answered = answered

    def stream_chat(self, messages: Any, **options: Any) -> Any:
        stream = self._engine.stream_chat(messages, **options)
        assemble = stream._assemble

        def noting(events: Any) -> Any:
            completion = assemble(events)
            for request, answer in zip(stream.requests, completion.answers, strict=True):
                assert isinstance(request, TextRequest)
                self._asked[request.id] = request
                self._answered[request.id] = answer.token_ids
            return completion

        stream._assemble = noting
        return stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)


async def test_after_cancelling_no_step_of_the_program_runs(demo: hm.Engine) -> None:
    @hm.program
    def long(s: hm.State) -> None:
        s += hm.user(ASK.format("a fox"))
        s += hm.gen_image("picture", "a fox", steps=60)
        for branch in s.fork(3):
            branch += hm.assistant(hm.gen("endless", max_tokens=2000, seed=1))
            branch += hm.gen_video("clip", branch["endless"])

    begun: dict[str, int] = {}
    async with asyncio.timeout(60):
        events = aiter(long.on(demo).stream())
        async for event in events:
            begun[event.name] = begun.get(event.name, 0) + (event.kind in ("text", "progress"))
            if begun.get("picture", 0) >= 2 and begun.get("endless", 0) >= 9:
                break
        await events.aclose()  # type: ignore[attr-defined]
    num_steps = len(demo.trace)
    assert num_steps > 0
    await asyncio.sleep(0.5)
    assert len(demo.trace) == num_steps
    demo._check()


def test_a_request_that_is_refused_fails_its_node_alone(demo: hm.Engine) -> None:
    @hm.program
    def partly_wrong(s: hm.State) -> None:
        s += hm.gen_image("huge", "a fox", size=(4096, 4096), steps=1)
        s += hm.user("Hello.")
        s += hm.assistant(hm.gen("reply", **GREEDY))

    run = partly_wrong.on(demo).run()
    assert run["reply"] and [error.name for error in run.errors] == ["huge"]
    with pytest.raises(hm.NodeFailed, match=r"'huge' \(test_on_the_engine.py:\d+\) failed: .*multiples"):
        run["huge"]


def test_the_trace_has_times_and_tokens_and_can_be_drawn(demo: hm.Engine, tmp_path: Any) -> None:
    trace = book.on(demo).run("a toad").trace()
    scene, prompt, picture, clip = trace.nodes
    assert (prompt.inputs, picture.inputs, clip.inputs) == ((scene.idx,), (prompt.idx,), (prompt.idx,))
    for node in trace.nodes:
        assert node.submitted_s is not None and node.first_s is not None and node.ended_s is not None
        assert 0 <= node.created_s <= node.submitted_s <= node.first_s <= node.ended_s
    assert scene.ended_s is not None and prompt.submitted_s is not None and scene.ended_s <= prompt.submitted_s
    assert prompt.cached_tokens > 0 and trace.computed_prompt_tokens > 0
    svg = trace.draw(tmp_path / "book.svg")
    assert (tmp_path / "book.svg").read_text() == svg
    assert svg.count("<g>") == 4 and svg.count("<path") == 3
    assert all(f">{node.name}</text>" in svg for node in trace.nodes)


def test_the_edge_refuses_what_cannot_be_continued(demo: hm.Engine) -> None:
    front: TextFront = demo.text_front(None)
    for messages in ("hello", [{"role": "assistant", "content": "x"}], [{"role": "user", "content": "x"}] * 2):
        with pytest.raises(hm.HemiolaError, match="continue_final_message"):
            front.chat_requests(messages, hm.CallTerms(), continue_final_message=True)
