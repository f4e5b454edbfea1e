"""Trains the demo's network on handwritten digits and writes digits.onnx and digits_test.npz.

    python examples/digits/train.py                    # train on the whole training set, write both files
    python examples/digits/train.py --cross-validate   # what the settings below were chosen by; writes nothing

Needs torch, scikit-learn and onnx. Two runs with one version of torch on one machine write equal bytes. The held-back
set is looked at once, after training has ended; --cross-validate sees the training set only.
"""

import argparse

import numpy as np
import torch
from digits_data import CLASSES, HELD_BACK_FILE, MODEL_FILE, SPLIT_SEED, Digits, as_input, load, split
from digits_export import to_onnx
from numpy.typing import NDArray
from torch import nn
from torch.nn import functional

SEED = 1
FOLDS = 5
EPOCHS = 60
BATCH = 64
LEARNING_RATE = 3e-3
WEIGHT_DECAY = 1e-2


def network() -> nn.Sequential:
    """MobileNetV3 in miniature: image [N, 1, 8, 8] -> logits [N, 10].

    A 3x3 stem, two depthwise-separable blocks, and a fully connected head. As in MobileNetV3 (Howard et al. 2019,
    table 2), the early block has relu and the rest h-swish.
    """
    return nn.Sequential(
        *_convolution(1, 16, 3, nn.Hardswish()),
        *_convolution(16, 16, 3, nn.ReLU(), groups=16),
        *_convolution(16, 32, 1, nn.ReLU()),
        nn.MaxPool2d(2),
        *_convolution(32, 32, 3, nn.Hardswish(), groups=32),
        *_convolution(32, 64, 1, nn.Hardswish()),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(64 * 2 * 2, 32),
        nn.Hardswish(),
        nn.Linear(32, CLASSES),
    )


def _convolution(inputs: int, outputs: int, kernel: int, activation: nn.Module, groups: int = 1) -> list[nn.Module]:
    convolution = nn.Conv2d(inputs, outputs, kernel, padding=kernel // 2, groups=groups, bias=False)
    return [convolution, nn.BatchNorm2d(outputs), activation]


def shifted(images: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Each picture of [M, 1, 8, 8] moved by -1, 0 or 1 pixel along each axis; zeros come in at the border."""
    count, _, height, width = images.shape
    padded = functional.pad(images, (1, 1, 1, 1))[:, 0]
    top, left = torch.randint(0, 3, (2, count, 1, 1), generator=generator)
    rows = top + torch.arange(height).view(1, height, 1)
    columns = left + torch.arange(width).view(1, 1, width)
    return padded[torch.arange(count).view(count, 1, 1), rows, columns].unsqueeze(1)


def train(digits: Digits, seed: int) -> nn.Sequential:
    """A network trained on `digits` for a fixed number of epochs, in evaluation mode. The last epoch is the result."""
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    net = network()
    images, labels = torch.from_numpy(as_input(digits.images)), torch.from_numpy(digits.labels.astype(np.int64))
    optimizer = torch.optim.AdamW(net.parameters(), lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY)
    steps = EPOCHS * (len(labels) // BATCH)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, LEARNING_RATE, total_steps=steps)
    for _ in range(EPOCHS):
        order = torch.randperm(len(labels), generator=generator)
        # The rest that fills no batch is left out of this epoch: batch statistics of a few pictures are only noise.
        for batch in order[: len(order) // BATCH * BATCH].view(-1, BATCH):
            loss = functional.cross_entropy(net(shifted(images[batch], generator)), labels[batch])
            optimizer.zero_grad()
            torch.autograd.backward(loss)
            optimizer.step()
            schedule.step()
    return net.eval()


@torch.no_grad()
def probabilities(net: nn.Sequential, digits: Digits) -> NDArray[np.float32]:
    """The class probabilities of `digits` by torch: float32 [M, 10]."""
    result: NDArray[np.float32] = functional.softmax(net(torch.from_numpy(as_input(digits.images))), dim=1).numpy()
    return result


def correct(predicted: NDArray[np.float32], labels: NDArray[np.uint8]) -> int:
    """How many rows of `predicted` [M, 10] have their largest value at the label."""
    return int(np.count_nonzero(predicted.argmax(axis=1) == labels))


def cross_validate(training: Digits, seed: int) -> None:
    """Prints the accuracy of five-fold cross-validation within the training set."""
    fold_of = np.random.RandomState(SPLIT_SEED).permutation(len(training.labels)) % FOLDS
    total = 0
    for fold in range(FOLDS):
        net = train(training.take(np.flatnonzero(fold_of != fold)), seed)
        part = training.take(np.flatnonzero(fold_of == fold))
        hits = correct(probabilities(net, part), part.labels)
        print(f"fold {fold}: {hits} of {len(part.labels)}", flush=True)
        total += hits
    print(f"cross-validation: {total} of {len(training.labels)} = {total / len(training.labels):.2%}")


def write(net: nn.Sequential, held_back: Digits) -> None:
    """Writes both files and prints the held-back accuracy; torch's own probabilities go with the images."""
    predicted = probabilities(net, held_back)
    MODEL_FILE.parent.mkdir(parents=True, exist_ok=True)
    MODEL_FILE.write_bytes(to_onnx(net, CLASSES).SerializeToString(deterministic=True))
    np.savez_compressed(HELD_BACK_FILE, images=held_back.images, labels=held_back.labels, probabilities=predicted)
    hits = correct(predicted, held_back.labels)
    print(f"held back: {hits} of {len(held_back.labels)} = {hits / len(held_back.labels):.2%}")
    print(f"parameters: {sum(parameter.numel() for parameter in net.parameters())}")
    for file in (MODEL_FILE, HELD_BACK_FILE):
        print(f"{file.name}: {file.stat().st_size} bytes")


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cross-validate", action="store_true", help="five folds within the training set; no file")
    parser.add_argument("--seed", type=int, default=SEED, help="of weights, batches and shifts (default: %(default)s)")
    options = parser.parse_args()
    # One thread, so that sums are taken in one order on any number of cores.
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    training, held_back = split(load())
    if options.cross_validate:
        cross_validate(training, options.seed)
    else:
        write(train(training, options.seed), held_back)


if __name__ == "__main__":
    main()
