"""What pyproject.toml cannot say: each folder of code below the root is a package of `hemiola`; this file ships not."""

from setuptools import find_packages, setup
from setuptools.command.build_py import build_py

SHIPPED = ("api", "core", "diffusion", "kernels", "llm", "scheduler")


class BuildPackage(build_py):
    """The root is a package, so this file would ship as one of its modules."""

    def find_package_modules(self, package, package_dir):
        modules = super().find_package_modules(package, package_dir)
        return [each for each in modules if each[:2] != ("hemiola", "setup")]


found = find_packages(include=[*SHIPPED, *(f"{name}.*" for name in SHIPPED)])
setup(packages=["hemiola", *(f"hemiola.{name}" for name in found)], cmdclass={"build_py": BuildPackage})
