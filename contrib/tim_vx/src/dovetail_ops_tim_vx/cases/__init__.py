"""Test cases of the operators, one file for each: golden numbers of the originals, and computations of their own in float64."""
