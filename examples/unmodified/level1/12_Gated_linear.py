import torch
import torch.nn as nn


class Model(nn.Module):
    """A linear layer whose output is gated by the sigmoid of another."""

    def __init__(self, in_features: int, out_features: int):
        super().__init__()
        self.up = nn.Linear(in_features, out_features, bias=False)
        self.gate = nn.Linear(in_features, out_features, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.up(x) * torch.sigmoid(self.gate(x))


batch_size = 1024
in_features = 2048
out_features = 4096


def get_inputs():
    return [torch.rand(batch_size, in_features)]


def get_init_inputs():
    return [in_features, out_features]
