"""Templates are rendered as the transformers library renders them."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from hemiola.core.errors import InvalidRequest
from hemiola.llm.chat_template import ChatTemplate

TEMPLATE = """\
{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- for tool in tools %}
        {{- tool | tojson }}
    {%- endfor %}
    {{- '<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
    {%- if message.role == 'critic' %}{{ raise_exception('No critics here') }}{% endif %}
    {%- if message.role == 'skip' %}{% continue %}{% endif %}
    {{- '<|im_start|>' + message.role + '\\n' }}
    {%- generation %}{{- message.content + eos_token + '\\n' }}{% endgeneration %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\\n\\n</think>\\n\\n' }}
    {%- endif %}
{%- endif %}"""
MESSAGES = [
    {"role": "user", "content": 'Où est <b>l’été</b> & "quoi"?'},
    {"role": "skip", "content": "unseen"},
    {"role": "assistant", "content": "Là."},
]
TOOLS = [{"type": "function", "function": {"name": "météo", "parameters": {"z": 1, "a": {"type": "string"}}}}]
Tools = list[dict[str, Any]] | None


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "chat_template.jinja").write_text(TEMPLATE, encoding="utf-8")
    config = {"eos_token": {"content": "<|im_end|>"}, "bos_token": None, "model_max_length": 10}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    return tmp_path


def by_transformers(tools: Tools, **options: Any) -> str:
    from transformers.utils.chat_template_utils import render_jinja_template

    rendered, _ = render_jinja_template(
        conversations=[MESSAGES], tools=tools, chat_template=TEMPLATE, eos_token="<|im_end|>", **options
    )
    text: str = rendered[0]
    return text


@pytest.mark.parametrize("tools", [None, TOOLS])
@pytest.mark.parametrize("options", [{}, {"enable_thinking": False}, {"enable_thinking": True}])
def test_rendering_equals_that_of_transformers(folder: Path, tools: Tools, options: dict[str, Any]) -> None:
    got = ChatTemplate(folder).render(MESSAGES, tools=tools, **options)
    assert got == by_transformers(tools, add_generation_prompt=True, **options)
    assert 'l’été</b> & "quoi"?<|im_end|>' in got
    assert ("météo" in got) is (tools is not None)


def test_without_a_generation_prompt_history_stands_alone(folder: Path) -> None:
    template = ChatTemplate(folder)
    history = template.render(MESSAGES, add_generation_prompt=False)
    assert history == by_transformers(None, add_generation_prompt=False)
    assert template.render(MESSAGES).startswith(history)


def test_a_template_in_the_config_is_found_and_the_one_for_tools_is_preferred(tmp_path: Path) -> None:
    templates = [
        {"name": "default", "template": "plain"},
        {"name": "tool_use", "template": "with {{ tools | length }}"},
    ]
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": templates}))
    template = ChatTemplate(tmp_path)
    assert template.render(MESSAGES) == "plain"
    assert template.render(MESSAGES, tools=TOOLS) == "with 1"


def test_what_the_template_refuses_is_the_users_mistake(folder: Path) -> None:
    with pytest.raises(InvalidRequest, match="No critics here") as caught:
        ChatTemplate(folder).render([{"role": "critic", "content": "boo"}])
    assert caught.value.param == "messages"
    with pytest.raises(InvalidRequest, match=re.escape("chat template says")):
        ChatTemplate(folder).render([{"role": "user", "content": None}])


def test_a_model_without_a_template_says_so_when_it_is_asked(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="no chat template"):
        ChatTemplate(tmp_path).render(MESSAGES)


def test_a_template_cannot_reach_out_of_its_sandbox(tmp_path: Path) -> None:
    (tmp_path / "chat_template.jinja").write_text("{{ messages.__class__.__mro__ }}{{ messages.append(1) }}")
    with pytest.raises(InvalidRequest):
        ChatTemplate(tmp_path).render(MESSAGES)
