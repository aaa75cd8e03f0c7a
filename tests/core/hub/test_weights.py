"""Weight files are checked whole before anything is loaded, and their bytes are known beforehand."""

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from hemiola.core.errors import CorruptWeights, UnsupportedModel
from hemiola.core.hub import check_weights, read_header, resolve


def language_model(folder: Path) -> Path:
    """A folder that looks like a language model with two tensors, 24 numbers in 72 bytes."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text('{"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3"}')
    tensors = {"a": np.zeros((2, 3), np.float32), "b": np.zeros((3, 6), np.float16)}
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    return folder


def sharded_model(folder: Path) -> Path:
    language_model(folder)
    (folder / "model.safetensors").unlink()
    save_file({"a": np.zeros(4, np.float32)}, folder / "model-00001-of-00002.safetensors")
    save_file({"b": np.zeros(8, np.float16)}, folder / "model-00002-of-00002.safetensors")
    weight_map = {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    return folder


def rewrite(file: Path, change: dict[str, object]) -> None:
    """Writes the file anew with `change` in the header's entry of tensor `a`."""
    data = file.read_bytes()
    header_len = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + header_len])
    header["a"].update(change)
    text = json.dumps(header).encode()
    file.write_bytes(len(text).to_bytes(8, "little") + text + data[8 + header_len :])


def test_bytes_are_counted_as_stored_and_as_they_would_be_held(tmp_path: Path) -> None:
    summary = check_weights(resolve(language_model(tmp_path / "m")))
    assert (summary.num_tensors, summary.num_params, summary.num_bytes) == (2, 24, 6 * 4 + 18 * 2)
    assert summary.bytes_as("float32") == 24 * 4
    assert summary.bytes_as("bfloat16") == 24 * 2
    assert [file.name for file in summary.files] == ["model.safetensors"]


def test_integer_tensors_keep_their_size_in_any_dtype(tmp_path: Path) -> None:
    folder = language_model(tmp_path / "m")
    save_file({"packed": np.zeros(10, np.uint8), "scale": np.zeros(2, np.float16)}, folder / "model.safetensors")
    assert check_weights(resolve(folder)).bytes_as("float32") == 10 + 2 * 4


def test_all_shards_of_an_index_are_counted(tmp_path: Path) -> None:
    summary = check_weights(resolve(sharded_model(tmp_path / "m")))
    assert (summary.num_tensors, summary.num_bytes, len(summary.files)) == (2, 32, 2)


def test_a_missing_shard_is_named(tmp_path: Path) -> None:
    folder = sharded_model(tmp_path / "m")
    (folder / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(CorruptWeights, match=r"1 of 2 shards are missing: model-00002-of-00002\.safetensors"):
        check_weights(resolve(folder))


def test_a_shard_without_a_tensor_of_the_index_is_named(tmp_path: Path) -> None:
    folder = sharded_model(tmp_path / "m")
    save_file({"other": np.zeros(8, np.float16)}, folder / "model-00002-of-00002.safetensors")
    with pytest.raises(CorruptWeights, match=r"model-00002-of-00002.*tensor 'b' is missing"):
        check_weights(resolve(folder))


@pytest.mark.parametrize("num_bytes_left", [0, 5, 60, -1])
def test_a_truncated_file_is_named_wherever_it_ends(tmp_path: Path, num_bytes_left: int) -> None:
    file = language_model(tmp_path / "m") / "model.safetensors"
    file.write_bytes(file.read_bytes()[:num_bytes_left])
    with pytest.raises(CorruptWeights, match=r"m/model\.safetensors is truncated"):
        read_header(file)


def test_surplus_bytes_are_reported(tmp_path: Path) -> None:
    file = language_model(tmp_path / "m") / "model.safetensors"
    file.write_bytes(file.read_bytes() + b"\0")
    with pytest.raises(CorruptWeights, match="longer than its header says"):
        read_header(file)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"shape": [2, 4]}, "tensor 'a' are not those of its shape"),
        ({"dtype": "F64"}, "tensor 'a' are not those of its shape"),
        ({"data_offsets": [0, 8]}, "not those of its shape"),
        ({"data_offsets": None}, "broken header"),
    ],
)
def test_a_header_that_contradicts_itself_is_reported(
    tmp_path: Path, change: dict[str, object], complaint: str
) -> None:
    file = language_model(tmp_path / "m") / "model.safetensors"
    rewrite(file, change)
    with pytest.raises(CorruptWeights, match=complaint):
        read_header(file)


def test_an_unresolved_git_lfs_pointer_says_so(tmp_path: Path) -> None:
    folder = language_model(tmp_path / "m")
    (folder / "model.safetensors").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n")
    with pytest.raises(CorruptWeights, match="Git LFS pointer"):
        check_weights(resolve(folder))


def test_no_weights_and_pickled_weights_are_told_apart(tmp_path: Path) -> None:
    folder = language_model(tmp_path / "m")
    (folder / "model.safetensors").unlink()
    with pytest.raises(CorruptWeights, match="no weight file"):
        check_weights(resolve(folder))
    (folder / "pytorch_model.bin").write_bytes(b"x")
    with pytest.raises(UnsupportedModel, match=r"pytorch_model\.bin"):
        check_weights(resolve(folder))


def test_a_gguf_file_has_to_begin_like_one(tmp_path: Path) -> None:
    file = tmp_path / "tiny.gguf"
    file.write_bytes(b"GGUF" + (3).to_bytes(4, "little") + bytes(92))
    assert check_weights(resolve(file)).num_bytes == 100
    file.write_bytes(b"<html>not found</html>")
    with pytest.raises(CorruptWeights, match="no GGUF file"):
        check_weights(resolve(file))
