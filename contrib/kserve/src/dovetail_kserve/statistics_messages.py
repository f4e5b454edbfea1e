"""The messages of `ModelStatistics`, a method of the statistics extension that kserve's protocol file lacks.

Names and numbers of fields are those of the extension; counts of responses, of memory and of batches are left out.
"""

from dovetail_kserve.messages import Field, message_classes

__all__ = ["StatisticsRequest", "StatisticsResponse"]

_MESSAGES: dict[str, tuple[Field, ...]] = {
    "ModelStatisticsRequest": (("name", 1, "string"), ("version", 2, "string")),
    "StatisticDuration": (("count", 1, "uint64"), ("ns", 2, "uint64")),
    "InferStatistics": (
        ("success", 1, "StatisticDuration"),
        ("fail", 2, "StatisticDuration"),
        ("queue", 3, "StatisticDuration"),
        ("compute_input", 4, "StatisticDuration"),
        ("compute_infer", 5, "StatisticDuration"),
        ("compute_output", 6, "StatisticDuration"),
    ),
    "InferBatchStatistics": (("batch_size", 1, "uint64"),),
    "ModelStatistics": (
        ("name", 1, "string"),
        ("version", 2, "string"),
        ("last_inference", 3, "uint64"),
        ("inference_count", 4, "uint64"),
        ("execution_count", 5, "uint64"),
        ("inference_stats", 6, "InferStatistics"),
        ("batch_stats", 7, "InferBatchStatistics[]"),
    ),
    "ModelStatisticsResponse": (("model_stats", 1, "ModelStatistics[]"),),
}

_CLASSES = message_classes("inference", _MESSAGES)

StatisticsRequest = _CLASSES["ModelStatisticsRequest"]
StatisticsResponse = _CLASSES["ModelStatisticsResponse"]
