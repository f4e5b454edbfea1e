"""The version of the distribution, in the one place that the build reads."""

__version__ = "0.1.0"
