"""Language models. Decoders of our own, by the config's `model_type`; all others run through `transformers_decoder`.

To add one: a module with `why_not(config)` and a function that turns a config of transformers into a `DecoderConfig`
(or a class of its own with the methods of `base.LanguageModel`, built in `loading`).
"""

MODELS = {
    "llama": "hemiola.llm.models.llama:llama",
    "mistral": "hemiola.llm.models.llama:mistral",
    "qwen2": "hemiola.llm.models.llama:qwen2",
    "qwen3": "hemiola.llm.models.llama:qwen3",
}
