"""Keeps NaN and infinities right where oneDNN's primitives and fused steps lose or create NaN."""
