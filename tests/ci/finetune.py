"""Fine-tuning by examples/models/finetune.c against transformers and PyTorch, in f64: losses and weights after ten steps, all weights
trained, or LoRA alone; what the files hold; a model with LoRA merged against one with LoRA beside its weights."""
import copy, math, os, subprocess

import torch
import transformers
from safetensors.torch import load_file, save_file

from checks import check

STEPS, ROWS, LENGTH, LR, RANK, ALPHA = 10, 3, 9, 2e-3, 4, 6.0


class Lora(torch.nn.Module):
    """y = base(x) + alpha / rank * B A x, where base is a linear layer or GPT-2's Conv1D."""
    def __init__(self, base, a, b):
        super().__init__()
        self.base, self.lora_A, self.lora_B = base, torch.nn.Parameter(a), torch.nn.Parameter(b)

    def forward(self, x):
        return self.base(x) + (x @ self.lora_A.T) @ self.lora_B.T * (ALPHA / RANK)


def tokens(count):
    torch.manual_seed(5)
    return torch.randint(0, 97, (count,))


def train(model, text):
    """What finetune.c does: AdamW, a rate that falls along a line, gradients cut to norm 1.  The losses."""
    params = [p for p in model.parameters() if p.requires_grad]
    opt = torch.optim.AdamW(params, lr=LR, weight_decay=0.01)
    windows, losses = (len(text) - 1) // LENGTH, []
    for step in range(STEPS):
        rows = [(step * ROWS + r) % windows * LENGTH for r in range(ROWS)]
        batch = torch.stack([text[at:at + LENGTH + 1] for at in rows])
        logits = model(batch[:, :-1]).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
        opt.param_groups[0]["lr"] = LR * (1 - step / STEPS)
        opt.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(params, 1.0)
        opt.step()
        losses.append(loss.item())
    return losses


def run(program, *options):
    result = subprocess.run([program] + [str(o) for o in options], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    losses = [float(line.split()[3]) for line in result.stdout.decode().splitlines() if line.startswith("step ")]
    return result.returncode, losses, result.stderr.decode()


def near(name, got, wanted, what):
    worst = max((abs(a - b) for a, b in zip(got, wanted)), default=math.inf)
    check(len(got) == len(wanted) and worst < 1e-6, "%s: %s after ten steps" % (name, what), "%s\n%s" % (got, wanted))


def near_state(name, got, wanted, what):
    check(sorted(got) == sorted(wanted), "%s: names of %s" % (name, what), "%s\n%s" % (sorted(got), sorted(wanted)))
    worst = max((float((got[k] - v).abs().max()), k) for k, v in wanted.items() if k in got)
    check(worst[0] < 1e-6, "%s: %s" % (name, what), str(worst))


def with_lora(model, start):
    """The layers of attention, wrapped, from the tensors of a file of lora_A and lora_B."""
    model.requires_grad_(False)
    for path in sorted({name.rsplit(".", 1)[0] for name in start}):
        inside = path if path.startswith("model.") else "transformer." + path
        parent, last = inside.rsplit(".", 1)
        parent = model.get_submodule(parent)
        setattr(parent, last, Lora(getattr(parent, last), start[path + ".lora_A"].clone(), start[path + ".lora_B"].clone()))
    return model


def own_names(model):
    """The weights under the names of finetune.c, without those that are tied."""
    state = {k: v.detach() for k, v in model.state_dict().items()}
    if isinstance(model, transformers.GPT2LMHeadModel):
        state = {k[len("transformer."):]: v for k, v in state.items() if k.startswith("transformer.") and ".attn.bias" not in k}
    elif model.config.tie_word_embeddings:
        del state["lm_head.weight"]
    return state


def check_finetune(name, original, programs, out):
    """original: a model in f64."""
    folder, program = os.path.join(out, "finetune-" + name), os.path.join(programs, "finetune")
    path = {k: os.path.join(folder, k + ".safetensors") for k in ("all", "start", "lora", "merged")}
    original.save_pretrained(folder)
    text = tokens(200)
    with open(os.path.join(folder, "text"), "w") as file:
        file.write(" ".join(map(str, text.tolist())))
    usual = [folder, os.path.join(folder, "text"), "--ids", "--steps", STEPS, "--rows", ROWS, "--length", LENGTH, "--lr", LR,
             "--threads", 1]

    model = copy.deepcopy(original)
    wanted = train(model, text)
    status, got, said = run(program, *usual, "--out", path["all"])
    check(status == 0, "%s: trained" % name, said)
    near(name, got, wanted, "losses")
    near_state(name, load_file(path["all"]), own_names(model), "all weights after ten steps")

    lora = ["--lora", RANK, "--alpha", ALPHA]
    status, _, said = run(program, *usual, *lora, "--steps", 0, "--out", path["start"])
    check(status == 0, "%s: LoRA as it begins" % name, said)
    start = load_file(path["start"])
    check(all(k.endswith((".lora_A", ".lora_B")) and "attn" in k for k in start) and len(start) > 0,
          "%s: a file of LoRA holds LoRA alone" % name, str(sorted(start)))
    check(all(not v.any() for k, v in start.items() if k.endswith("lora_B")), "%s: lora_B is zeros" % name)
    torch.manual_seed(6)
    start = {k: v if k.endswith("lora_A") else 0.1 * torch.randn_like(v) for k, v in start.items()}
    save_file(start, path["start"])
    model = with_lora(copy.deepcopy(original), start)
    wanted = train(model, text)
    status, got, said = run(program, *usual, *lora, "--adapter", path["start"], "--out", path["lora"], "--merged",
                            path["merged"])
    check(status == 0, "%s: LoRA is trained" % name, said)
    near(name, got, wanted, "losses with LoRA")
    state = {k.replace("transformer.", ""): v.detach() for k, v in model.state_dict().items() if ".lora_" in k}
    near_state(name, load_file(path["lora"]), state, "LoRA after ten steps")

    merged = copy.deepcopy(original)  # a model of transformers loads what was merged, and is the one with LoRA
    weights = load_file(path["merged"])
    if name == "gpt2":
        weights = {"transformer." + k: v for k, v in weights.items()}
    missing, unexpected = merged.load_state_dict(weights, strict=False)
    check(not unexpected and set(missing) <= {"lm_head.weight"}, "%s: names of what was merged" % name,
          "%s %s" % (missing, unexpected))
    with torch.no_grad():
        worst = float((merged(text[None, :60]).logits - model(text[None, :60]).logits).abs().max())
    check(worst < 1e-6, "%s: merged equals unmerged" % name, str(worst))

    for options, words in ((["--lora", 2, "--target", "*nowhere*"], "no linear layer of"), (["--length", 300], "fewer than"),
                           (["--lora", 3, "--adapter", path["start"]], "is [4, 48], not [3, 48]")):
        status, _, said = run(program, *usual, *options)
        check(status == 1 and words in said, "%s: %s is refused" % (name, options), said)
