"""to_c.py FOLDER: the way of a network from PyTorch to C.  Writes weights.safetensors, its state_dict, and vector.safetensors, an
input and the output that PyTorch computes for it: with these the program in C, here examples/from_pytorch.c, tests itself.

To take a network of your own along, call to_c() with it, and build the same one of tg_nn_... in C: the names in the file are the
paths of tg_module_get, and what does not fit is an error that names it."""
import os
import sys

import torch
from safetensors.torch import save_file


def to_c(model, x, folder):
    """Saves model, and what it makes of x, in eval mode: without dropout, and with the running statistics of batch norm."""
    os.makedirs(folder, exist_ok=True)
    model.eval()
    with torch.no_grad():
        y = model(x)
    save_file({name: t.contiguous() for name, t in model.state_dict().items()}, os.path.join(folder, "weights.safetensors"))
    save_file({"x": x.contiguous(), "y": y.contiguous()}, os.path.join(folder, "vector.safetensors"))
    return y


def example():
    """The network of from_pytorch.c: where nothing was trained, element k of each parameter is sin(k + 1)."""
    nn = torch.nn
    model = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(64, 3))
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(torch.arange(1, p.numel() + 1, dtype=torch.float64).sin().reshape(p.shape))
    return model, torch.arange(128, dtype=torch.float64).cos().float().reshape(2, 1, 8, 8)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    torch.set_printoptions(precision=6)
    print("PyTorch computes\n%s" % to_c(*example(), sys.argv[1]))
