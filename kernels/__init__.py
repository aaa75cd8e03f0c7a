"""Operations with interchangeable backends. Nothing heavy is imported here: import the operation you need.

    from hemiola.kernels.rms_norm import RMS_NORM
    backend = RMS_NORM.resolve(Target.of("cpu", torch.float32)).backend

An operation is a folder: its interface and registry in `__init__.py`, one file per backend.
"""

# The name of this folder is also that of a Hugging Face package, which libraries probe for by its version.
__version__ = "0.1.0"
