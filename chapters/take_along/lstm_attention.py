import torch
from torch import nn


class AdditiveDecoder(nn.Module):
    """Bahdanau's decoder: the old state asks, and the LSTM reads the answer.

    Token vectors have width d, the state and the encoder's rows h, the score's layer a.
    """

    def __init__(self, words, d, h, a):
        super().__init__()
        self.embed, self.cell = nn.Embedding(words, d), nn.LSTMCell(d + h, h)
        self.query, self.key = nn.Linear(h, a, bias=False), nn.Linear(h, a, bias=False)
        self.vector = nn.Linear(a, 1, bias=False)
        self.out, self.logits = nn.Linear(2 * h, h), nn.Linear(h, words)

    def step(self, token, state, H, keys, letters):
        """One token (b,): the next state, the output (b, h) and the weights (b, m)."""
        S = self.vector(torch.tanh(self.query(state[0])[:, None] + keys))[..., 0]
        P = S.masked_fill(~letters, -torch.inf).softmax(-1)  # padding gets the weight 0
        context = (P[:, :, None] * H).sum(1)  # (b, h)
        state = self.cell(torch.cat([self.embed(token), context], -1), state)
        return state, torch.tanh(self.out(torch.cat([state[0], context], -1))), P

    def forward(self, tokens, state, H, letters):
        """Teacher forcing: logits (b, n, words) behind each of the tokens (b, n)."""
        keys, outputs = self.key(H), []  # the keys are the same in each step
        for token in tokens.unbind(1):
            state, output, _ = self.step(token, state, H, keys, letters)
            outputs.append(output)
        return self.logits(torch.stack(outputs, 1))

    @torch.no_grad()
    def write(self, begin, end, state, H, letters, limit=30):
        """The most probable token each time, until all have ended: (b, steps)."""
        token = torch.full((len(H),), begin, device=H.device)
        keys, said = self.key(H), []
        over = torch.zeros_like(token, dtype=torch.bool)
        while len(said) < limit and not over.all():
            state, output, _ = self.step(token, state, H, keys, letters)
            token = self.logits(output).argmax(-1).masked_fill(over, end)
            over = over | (token == end)
            said.append(token)
        return torch.stack(said, 1)
