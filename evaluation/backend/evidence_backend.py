"""Setuptools as the build backend; an editable installation leaves `saga` to `saga-forecast`.

Setuptools would make an empty namespace of `saga`, because this distribution has no such package,
and Python would find the namespace before the package.
"""

from setuptools.build_meta import *  # noqa: F403
from setuptools.command import editable_wheel

editable_wheel._find_virtual_namespaces = lambda _roots: iter(())
