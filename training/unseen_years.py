"""Ages and horizons that no training record has get the embedding of the nearest one that has.

Their own embeddings are never trained. They would stay near the random numbers that training
starts from, and forecasts would jump where the records end.
"""

from __future__ import annotations

import torch
from torch import nn

from saga.model import Saga
from saga.requests import MAX_HORIZON
from saga.schema import MIN_AGE
from saga.training_records import TrainingRecords


def fill_unseen(network: Saga, records: TrainingRecords) -> None:
    """Copy the nearest trained embedding to each age and horizon beyond the `records`.

    A person's last record is never an input, nor the first one a target.
    """
    young, old = records.first_age - MIN_AGE, records.last_age - MIN_AGE
    direct = network.direct
    _fill(direct.head.gap, 1, min(records.longest, MAX_HORIZON))
    _fill(direct.age, young + 1, old)
    for inputs in (network.tokens, network.light):
        if inputs is not None:
            _fill(inputs.age, young, old - 1)


def _fill(embedding: nn.Embedding, first: int, last: int) -> None:
    nearest = torch.arange(embedding.num_embeddings).clamp(first, last)
    with torch.no_grad():
        embedding.weight.copy_(embedding.weight[nearest])
