"""dovetail_gpu_opencl."""
