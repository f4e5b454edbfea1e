"""Authoring operators: the base class, attributes, ports, kernels as data, decorator, translations."""
