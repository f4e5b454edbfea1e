"""Adapter for Model Explorer: `model-explorer model.onnx --extensions=dovetail_views.model_explorer`."""
