"""From what a user wrote to a model's files: built-in demo models, local paths, the Hugging Face Hub; or why not.

demo                      the three built-in models (`resolve_all` only)
hemiola-tiny-chat         one of them
dummy:llama-8b            a test shape: a published model's configs with random weights
./models/llama, x.gguf    a folder or file
Qwen/Qwen3-8B[@revision]  a model of the Hub
name=any of these         the same, served under another name
"""

import difflib
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from importlib.resources import files
from pathlib import Path

from ..config import Environment, read_environment
from ..errors import HemiolaError, InvalidRequest, ModelNotFound
from .dummies import find_shape, shape_names
from .remote import Unavailable, cached_repo_ids, fetch_snapshot
from .source import ModelSource, inspect, is_model

DEMO = "demo"
DEMO_MODELS = ("hemiola-tiny-chat", "hemiola-tiny-image", "hemiola-tiny-video")


def resolve(spec: str | Path, *, environment: Environment | None = None) -> ModelSource:
    """The model that `spec` means; a download may come first.

    Raises:
        ModelNotFound: the message lists what was looked for, where, and names that are near.
        UnsupportedModel, CorruptWeights: something is there, but no model that can be read.
    """
    env = environment or read_environment()
    name, target = _split_name(str(spec))
    source = _find(target, env)
    return replace(source, name=name) if name else source


def resolve_all(specs: Iterable[str | Path], *, environment: Environment | None = None) -> tuple[ModelSource, ...]:
    """Every model of `specs`, `demo` standing for all built-in ones.

    Raises:
        InvalidRequest: two models would be served under one name.
        Otherwise as `resolve`.
    """
    env = environment or read_environment()
    expanded = [each for spec in specs for each in (DEMO_MODELS if str(spec) == DEMO else (spec,))]
    sources = tuple(resolve(spec, environment=env) for spec in dict.fromkeys(expanded))
    by_name: dict[str, ModelSource] = {}
    for source in sources:
        other = by_name.setdefault(source.name, source)
        if other is not source:
            raise InvalidRequest(
                "model",
                f"Two models would be served as '{source.name}': {other.path} and {source.path}. "
                "Give one of them another name: name=path.",
            )
    return sources


def encoder_source(
    pipeline: ModelSource, served: Sequence[ModelSource], *, environment: Environment | None = None
) -> ModelSource:
    """The model that is the text encoder of `pipeline` (whose `shared_encoder` is set): a served one if it is served.

    Looked for by served name, then as a path relative to the pipeline's folder, then as any other spec.

    Raises:
        ModelNotFound: as `resolve`.
    """
    assert pipeline.shared_encoder is not None, f"{pipeline.name} has a text encoder of its own"
    shares = pipeline.shared_encoder.shares
    for source in served:
        if source.name == shares:
            return source
    found = _shared_with(pipeline, shares, environment)
    same = [source for source in served if source.path.resolve() == found.path.resolve()]
    return same[0] if same else found


def tokenizer_folder(source: ModelSource, *, environment: Environment | None = None) -> Path | None:
    """The folder of another model whose tokenizer this one uses, where its hemiola.json says so; else None.

    Raises:
        ModelNotFound: as `resolve`.
    """
    if source.shared_tokenizer is None:
        return None
    return _shared_with(source, source.shared_tokenizer, environment).path


def _shared_with(source: ModelSource, shares: str, environment: Environment | None) -> ModelSource:
    """What `shares` means in the model's hemiola.json: a path relative to its folder, or any other spec."""
    inside, beside = source.path / shares, Path(os.path.abspath(source.path.parent / shares))
    if inside.is_dir():
        return inspect(Path(os.path.abspath(inside)), f"{source.name}/{shares}", "folder")
    if beside.is_dir():
        return inspect(beside, beside.name, "folder")
    return resolve(shares, environment=environment)


def known_models(environment: Environment | None = None) -> list[ModelSource]:
    """What can be served without a download: the built-in models, those in the Hub's cache, and the test shapes."""
    env = replace(environment or read_environment(), is_offline=True)
    names = (*DEMO_MODELS, *cached_repo_ids(env), *shape_names())
    return list(_readable(names, env))


def _readable(names: Iterable[str], env: Environment) -> Iterator[ModelSource]:
    for name in names:
        try:
            yield resolve(name, environment=env)
        except HemiolaError:
            continue  # the cache also holds things that are no models


def demo_folder(environment: Environment) -> Path:
    """Where the built-in models are: inside the installed package unless the environment says otherwise."""
    return environment.demo_models or Path(str(files("hemiola") / "samples" / "models"))


def _split_name(spec: str) -> tuple[str | None, str]:
    """`name=target` in two, unless there is a path of the whole."""
    name, equals, target = spec.partition("=")
    if spec and (not equals or Path(spec).expanduser().exists()):
        return None, spec
    if not name or not target:
        raise InvalidRequest("model", f"Invalid model '{spec}': it has to be a model, or name=model.")
    return name, target


@dataclass(slots=True)
class _Search:
    """Where a model was looked for in vain."""

    target: str
    places: list[str] = field(default_factory=list)
    near: list[str] = field(default_factory=list)

    def failed(self) -> ModelNotFound:
        lines = [f"No model '{self.target}'. Looked for:", *(f"  - {place}" for place in self.places)]
        # Owners and folders are often right, and would make everything near: only last parts are compared.
        by_last_part = {name.rsplit("/", 1)[-1].lower(): name for name in self.near}
        close = difflib.get_close_matches(self.target.rsplit("/", 1)[-1].lower(), by_last_part, n=3, cutoff=0.8)
        if close:
            lines.append(f"Did you mean {' or '.join(by_last_part[last_part] for last_part in close)}?")
        return ModelNotFound("\n".join(lines))


def _find(target: str, env: Environment) -> ModelSource:
    shape = find_shape(target)
    if shape is not None:
        return shape
    search = _Search(target)
    found = _find_demo(search, env) or _find_local(search)
    if found is None and not _is_plainly_a_path(target):
        found = _find_remote(search, env)
    if found is None:
        raise search.failed()
    return found


def _find_demo(search: _Search, env: Environment) -> ModelSource | None:
    folder = demo_folder(env)
    if search.target == DEMO:
        raise InvalidRequest("model", f"'{DEMO}' stands for {len(DEMO_MODELS)} models: {', '.join(DEMO_MODELS)}.")
    if search.target in DEMO_MODELS and (folder / search.target).is_dir():
        return inspect(folder / search.target, search.target, "demo")
    installed = [name for name in DEMO_MODELS if (folder / name).is_dir()]
    search.places.append(f"a built-in model in {folder}: there are {', '.join(installed) or 'none'}")
    search.near += installed
    return None


def _find_local(search: _Search) -> ModelSource | None:
    path = Path(search.target).expanduser()
    full = Path(os.path.abspath(path))  # links are kept, unlike with resolve(): their names are the user's
    if full.exists():
        return inspect(full, full.stem if full.is_file() else full.name, "folder")
    search.places.append(f"a folder or .gguf file {full}: does not exist")
    if path.parent.is_dir():
        search.near += [str(path.parent / entry.name) for entry in path.parent.iterdir() if is_model(entry)]
    return None


def _find_remote(search: _Search, env: Environment) -> ModelSource | None:
    snapshot = fetch_snapshot(search.target, env)
    if not isinstance(snapshot, Unavailable):
        return inspect(snapshot, search.target.split("@")[0], "hub")
    search.places.append(f"a model of the Hugging Face Hub: {snapshot.reason}")
    search.near += cached_repo_ids(env)
    return None


def _is_plainly_a_path(target: str) -> bool:
    return target.startswith(("/", "./", "../", "~")) or target.endswith(".gguf") or target.count("/") > 1
