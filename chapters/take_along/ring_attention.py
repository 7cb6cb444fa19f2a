import torch


def add(state, Q, K, V, seen):
    """Let queries Q (n, k) meet one more block of keys K (m, k), values V (m, v)."""
    t, z, a = state  # the largest score, the sum of exponentials, the sum of values
    S = (Q @ K.T / Q.shape[-1] ** 0.5).masked_fill(~seen, -torch.inf)
    top = torch.maximum(t, S.amax(-1, keepdim=True))
    safe = top.clamp_min(torch.finfo(Q.dtype).min)  # a query that has seen no key yet
    E, shrink = (S - safe).exp(), (t - safe).exp()
    return top, shrink * z + E.sum(-1, keepdim=True), shrink * a + E @ V


def zigzag(n, processes):
    """The positions of each process: a piece from the front and one from the back."""
    pieces = torch.arange(n).chunk(2 * processes)
    return [torch.cat([pieces[r], pieces[-1 - r]]) for r in range(processes)]


def ring(Q, K, V, places):
    """Exact causal attention. The lists hold what each process has of Q, K, V.

    places: the positions of these rows. On real processes each runs its own r, and the
    line that rotates becomes torch.distributed.batch_isend_irecv to r + 1, from r - 1.
    """
    nothing = torch.tensor(-torch.inf), torch.tensor(0.0), torch.tensor(0.0)
    state = [nothing] * len(Q)  # one for each process
    at_hand = list(zip(K, V, places, strict=True))
    for _ in Q:  # as many steps as processes; all work at the same time
        for r, (k, v, where) in enumerate(at_hand):
            seen = places[r][:, None] >= where  # by position, not by local index
            state[r] = add(state[r], Q[r], k, v, seen)
        at_hand = at_hand[-1:] + at_hand[:-1]  # process r gets what r - 1 had
    return [a / z for _, z, a in state]
