"""A small GPT, step 1 of 12: attention."""

import torch


def attention(Q, K, V):
    S = Q @ K.mT / Q.shape[-1] ** 0.5  # scores: row i belongs to query i
    return S.softmax(dim=-1) @ V


if __name__ == "__main__":
    Q, K = torch.tensor([[2.0, 0]]), torch.eye(2)
    print(attention(Q, K, torch.tensor([[1.0], [5.0]])))
