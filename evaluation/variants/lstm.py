"""An LSTM backbone (Hochreiter and Schmidhuber 1997) instead of the decoder.

Layers are pre-norm with residuals: x <- x + LSTM(LN x). Tokens, long skip, head and training are
those of the decoder model, so a comparison shows what attention contributes.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from saga.evaluation.variants.recurrent import RecurrentBackbone
from torch import Tensor, nn

from saga.model.config import ModelConfig
from saga.model.decoder import Cache
from saga.model.dropout import Dropout


class LSTMBackbone(RecurrentBackbone):
    """`config.layers` LSTM layers of `config.width` units."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        d = config.width
        self.norms = nn.ModuleList(nn.LayerNorm(d) for _ in range(config.layers))
        self.cells = nn.ModuleList(nn.LSTM(d, d, batch_first=True) for _ in range(config.layers))
        self.dropout = Dropout(config.dropout)
        for layer in self.layers:
            # The forget gate starts open (Jozefowicz, Zaremba and Sutskever 2015).
            lstm_parameter(layer, "bias_ih_l0").data[d : 2 * d] = 1.0

    @property
    def layers(self) -> list[nn.LSTM]:
        """The LSTM layers, first to last."""
        return [layer for layer in self.cells if isinstance(layer, nn.LSTM)]

    def forward(self, token: Tensor, _age: Tensor) -> tuple[Tensor, Cache]:
        """Residual stream (n, t, d), and each layer's output and memory (n, d) at the last token.

        `step` continues from the output and the memory if records are not padded. Ages reach the
        backbone only through the tokens.
        """
        x = token
        states: Cache = []
        for norm, layer in zip(self.norms, self.layers, strict=True):
            out, (h, c) = layer(norm(x))
            x = x + self.dropout(out)
            states.append((h[0], c[0]))
        return x, states

    def step(self, token: Tensor, state: Cache) -> tuple[Tensor, Cache]:
        """One more token (..., d) after each layer's output and memory: stream and new state."""
        x = token
        states: Cache = []
        for norm, layer, (h, c) in zip(self.norms, self.layers, state, strict=True):
            from_input, from_state = (
                F.linear(
                    vector,
                    lstm_parameter(layer, f"weight_{part}_l0"),
                    lstm_parameter(layer, f"bias_{part}_l0"),
                )
                for vector, part in ((norm(x), "ih"), (h, "hh"))
            )
            input_gate, forget_gate, candidate, output_gate = (from_input + from_state).chunk(4, -1)
            c = torch.sigmoid(forget_gate) * c + torch.sigmoid(input_gate) * torch.tanh(candidate)
            h = torch.sigmoid(output_gate) * torch.tanh(c)
            x = x + h
            states.append((h, c))
        return x, states

    def residual_outputs(self) -> list[nn.Linear]:
        """Empty: no linear map ends a residual branch."""
        return []

    def inner_matrices(self) -> list[Tensor]:
        """Weights of the maps between hidden states."""
        return [
            lstm_parameter(layer, name)
            for layer in self.layers
            for name in ("weight_ih_l0", "weight_hh_l0")
        ]


def lstm_parameter(layer: nn.LSTM, name: str) -> Tensor:
    """A parameter of an LSTM layer; torch creates these attributes at run time, without types."""
    parameter: Tensor = layer.get_parameter(name)
    return parameter
