"""A transformer of 0.3 million parameters that guesses bytes of Python's library, for the rows on local steps.

Imports torch when it is used.
"""

import pathlib
import sysconfig

WIDTH, LAYERS, HEADS, CONTEXT, MOST = 96, 2, 4, 128, 4_000_000  #: MOST: bytes that are read


def texts(held_out=200_000):
    """Returns (bytes for training, bytes held out) of Python's library."""
    import torch

    text = b""
    for path in sorted(pathlib.Path(sysconfig.get_paths()["stdlib"]).glob("*.py")):
        text += path.read_bytes()
        if len(text) > MOST:
            break
    whole = torch.frombuffer(bytearray(text), dtype=torch.uint8)
    return whole[:-held_out], whole[-held_out:]


def network(seed=0):
    """Returns a new model.

    Args:
        seed: Of its first parameters.
    """
    import torch
    from torch import nn

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(2))
            self.mixed, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
            self.wide, self.narrow = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

        def forward(self, x):
            rows, length, _ = x.shape
            parts = self.mixed(self.norms[0](x)).view(rows, length, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
            seen = nn.functional.scaled_dot_product_attention(*parts, is_causal=True)
            x = x + self.out(seen.transpose(1, 2).reshape(rows, length, WIDTH))
            return x + self.narrow(nn.functional.relu(self.wide(self.norms[1](x))))

    class Bytes(nn.Module):
        def __init__(self):
            super().__init__()
            self.bytes, self.places = nn.Embedding(256, WIDTH), nn.Parameter(torch.randn(CONTEXT, WIDTH) * 0.1)
            self.layers, self.norm = nn.ModuleList(Layer() for _ in range(LAYERS)), nn.LayerNorm(WIDTH)
            self.head = nn.Linear(WIDTH, 256)

        def forward(self, x):
            x = self.bytes(x) + self.places[: x.shape[1]]
            for layer in self.layers:
                x = layer(x)
            return self.head(self.norm(x))

    torch.manual_seed(seed)
    return Bytes()


def rows_of(text, starts):
    """Returns (inputs, targets): a row of CONTEXT bytes from each start, and the byte after each of them."""
    import torch

    windows = text[starts[:, None] + torch.arange(CONTEXT + 1)].long()
    return windows[:, :-1], windows[:, 1:]


def loss_of(model, text, starts):
    """Returns the mean loss of rows.

    Args:
        model: The model.
        text: The bytes.
        starts: Where its rows begin.
    """
    import torch

    inputs, targets = rows_of(text, starts)
    return torch.nn.functional.cross_entropy(model(inputs).reshape(-1, 256), targets.reshape(-1))


def held_out_loss(model, text, rows=128):
    """Returns the loss of the same rows at each call.

    Args:
        model: The model.
        text: Bytes that are not trained on.
        rows: How many rows.
    """
    import torch

    starts = torch.randint(len(text) - CONTEXT - 1, (rows,), generator=torch.Generator().manual_seed(99))
    with torch.no_grad():
        return sum(loss_of(model, text, part).item() * len(part) for part in starts.split(32)) / rows
