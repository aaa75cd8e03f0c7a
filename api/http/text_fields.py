"""Every field of chat and completion requests that clients are known to send, and what becomes of it.

The documentation prints these tables. A field that is in none of them is unknown: ignored and logged, or refused when
the server is strict.
"""

from collections.abc import Collection
from typing import Any

from .fields import FieldTable

# Honoured: name -> what it does.
_BOTH: dict[str, str] = {
    "model": "the served model or an alias of it; may be left out where only one language model is served",
    "max_tokens": "tokens generated at most, up to the model's context",
    "n": "answers per prompt, 1 to 128; answer i is made with seed + i",
    "temperature": "0 to 2; 0 is greedy; the model's own if left out",
    "top_p": "nucleus, above 0 up to 1; the model's own if left out",
    "top_k": "0 and -1 are off; the model's own if left out",
    "seed": "of the random stream, 64 bits; random if left out",
    "stop": "a string or up to 16 of them, none empty; they are not shown",
    "stop_token_ids": "tokens that end the answer, besides those that end the model's turn; they are not shown",
    "ignore_eos": "go on where the model would end its turn",
    "stream": "chunks as they are generated, instead of one answer at the end",
    "stream_options": "{include_usage}: a last chunk with the usage; only with 'stream'",
    "priority": "lower runs earlier; 0 is ordinary",
    "service_class": "how soon it matters: 'interactive', 'standard' or 'background'",
    "cache_salt": "separates prompts' cached tokens from those of other salts; up to 128 characters",
}
_HONOURED_BY_CHAT = _BOTH | {
    "messages": "roles developer, system, user, assistant, tool, function; content is text or parts of text",
    "max_completion_tokens": "wins over 'max_tokens'",
    "logprobs": "whether to tell how likely each token was",
    "top_logprobs": "how many of the likeliest tokens to tell, 0 to 20; only with 'logprobs'",
    "tools": "functions that the model may call; an empty list is as good as none",
    "tool_choice": "'none', 'auto' or {type: allowed_tools} with mode auto; calls cannot be forced yet",
    "parallel_tool_calls": "false: only the first call of an answer is told",
    "response_format": "{type: text}; others are refused",
    "reasoning_effort": "'none' turns thinking off, any other turns it on, where the model can think",
    "chat_template_kwargs": "what the model's template understands, such as {enable_thinking}",
    "include_reasoning": "false: reasoning is not told",
    "continue_final_message": "go on with the last message, which is the assistant's and has begun",
    "add_generation_prompt": "false only with 'continue_final_message', where it may not be true",
}
_HONOURED_BY_COMPLETIONS = _BOTH | {
    "prompt": "a text, token ids, or a list of either",
    "logprobs": "how many of the likeliest tokens to tell beside each chosen one, 0 to 5",
    "echo": "the prompt before each answer; not together with 'logprobs'",
    "add_special_tokens": "begin text prompts as the model's plain prompts do (true)",
}
# Accepted, and without effect.
_HARMLESS = frozenset(
    (
        "user metadata store service_tier safety_identifier prompt_cache_key prompt_cache_options "
        "prompt_cache_retention prediction moderation request_id rid session_id watermark watermarking "
        "data_parallel_rank kv_transfer_params bootstrap_host bootstrap_port bootstrap_room "
        "return_cached_tokens_details"
    ).split()
)

# Refused, unless a value says what is so anyway: name -> such values.
_UNSUPPORTED: dict[str, Collection[Any]] = {
    # Sampling
    "frequency_penalty": (0,),
    "presence_penalty": (0,),
    "repetition_penalty": (1,),
    "repetition_detection": (),
    "logit_bias": ({},),
    "min_p": (0,),
    "min_tokens": (0,),
    "bad_words": ([],),
    "allowed_token_ids": (),
    "logprob_token_ids": ([],),
    "prompt_logprobs": (),
    "use_beam_search": (False,),
    "beam_width": (1,),
    "best_of": (1,),
    "stop_regex": ("", []),
    # Structured output
    "structured_outputs": ({},),
    "regex": (),
    "ebnf": (),
    "json_schema": (),
    "guided_json": (),
    "guided_json_object": (False,),
    "guided_regex": (),
    "guided_choice": (),
    "guided_grammar": (),
    "guided_whitespace_pattern": (),
    "guided_decoding_backend": (),
    # What is shown, and how
    "skip_special_tokens": (True,),
    "spaces_between_special_tokens": (True,),
    "include_stop_str_in_output": (False,),
    "no_stop_trim": (False,),
    "stream_interval": (1,),
    "return_token_ids": (False,),
    "return_tokens_as_token_ids": (False,),
    "return_prompt_text": (False,),
    "return_meta_info": (False,),
    "return_hidden_states": (False,),
    # Prompts and models
    "truncate_prompt_tokens": (),
    "extra_key": (),
    "lora": ({},),
    "lora_path": ("",),
}
_OF_CHAT: dict[str, Collection[Any]] = {
    "functions": ([],),
    "function_call": ("none", "auto"),
    "audio": (),
    "modalities": (["text"],),
    "web_search_options": (),
    "verbosity": ("medium",),
    "echo": (False,),
    "add_special_tokens": (False,),
    "chat_template": (),
    "documents": ([],),
    "mm_processor_kwargs": ({},),
    "media_io_kwargs": ({},),
    "max_dynamic_patch": (),
    "separate_reasoning": (True,),
    "stream_reasoning": (True,),
    "thinking_token_budget": (),
}
_OF_COMPLETIONS: dict[str, Collection[Any]] = {
    "suffix": ("",),
    "prompt_embeds": (),
    "response_format": ({"type": "text"},),
}
_HINTS = {
    "functions": "Use 'tools'.",
    "function_call": "Use 'tool_choice'.",
    "guided_json": "Output is not constrained.",
    "modalities": "Text is all that comes out.",
    "best_of": "Use 'n'.",
}

CHAT_FIELDS = FieldTable(_HONOURED_BY_CHAT, _HARMLESS, _UNSUPPORTED | _OF_CHAT, _HINTS)
COMPLETION_FIELDS = FieldTable(_HONOURED_BY_COMPLETIONS, _HARMLESS, _UNSUPPORTED | _OF_COMPLETIONS, _HINTS)
TOKENIZE_FIELDS = FieldTable(
    honoured={
        "model": _BOTH["model"],
        "prompt": "a text or a list of them",
        "messages": "in place of 'prompt': a conversation, put into the model's template",
        "tools": "with 'messages': told to the model",
        "add_special_tokens": "begin as the model's plain prompts do (true; with 'messages' false)",
        "add_generation_prompt": "with 'messages': end with the beginning of an answer (true)",
        "chat_template_kwargs": _HONOURED_BY_CHAT["chat_template_kwargs"],
        "return_token_strs": "also tell the tokens as the vocabulary writes them",
    },
    harmless=frozenset(),
    unsupported={"continue_final_message": (False,), "chat_template": (), "mm_processor_kwargs": ({},)},
    hints={},
)
DETOKENIZE_FIELDS = FieldTable({"model": _BOTH["model"], "tokens": "token ids"}, frozenset(), {}, {})
