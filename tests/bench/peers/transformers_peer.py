"""Language models that are run, in transformers with PyTorch: those of tests/bench/generation.c, with the same weights.
Modes: loop, which calls the model for each token with its cache of keys; generate, its function for that.  The driver
takes the faster one."""
import inspect
import os
import sys

from common import labels, numbers, serve

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path = [path for path in sys.path if os.path.abspath(path) != HERE]  # packages would take pytorch.py for another
os.environ.setdefault("HF_HUB_OFFLINE", "1")
import torch
import transformers
from transformers import DynamicCache, GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

torch.set_num_threads(int(sys.argv[1]))
torch.set_flush_denormal(True)
transformers.logging.set_verbosity_error()

# how its versions call the cache
CACHE = "cache" if "cache" in inspect.signature(LlamaForCausalLM.forward).parameters else "past_key_values"


def described(w):
    """The model without its weights."""
    tiny = "tiny" in w.options
    if "gpt2" in w.options:
        layers, width, heads, vocabulary, context = (2, 32, 4, 1200, 64) if tiny else (12, 768, 12, 50257, 1024)
        return GPT2LMHeadModel(GPT2Config(n_layer=layers, n_embd=width, n_head=heads, vocab_size=vocabulary,
                                          n_positions=context))
    layers, width, heads, kv, hidden, vocabulary = (2, 32, 4, 2, 48, 1200) if tiny else (12, 1024, 16, 8, 2816, 32000)
    return LlamaForCausalLM(LlamaConfig(num_hidden_layers=layers, hidden_size=width, num_attention_heads=heads,
                                        num_key_value_heads=kv, intermediate_size=hidden, vocab_size=vocabulary,
                                        rms_norm_eps=1e-5, tie_word_embeddings=True))


def network(w):
    """The model with the weights of generation.c: matrices are numbered in the order of the parameters."""
    with torch.device("meta"):
        model = described(w)
    dtype = torch.bfloat16 if "bf16" in w.options else torch.float32
    rotary = None if "gpt2" in w.options else type(model.model.rotary_emb)(model.config)
    model = model.to_empty(device="cpu").to(dtype)
    if rotary is not None:
        model.model.rotary_emb = rotary  # its angles stay in f32
    seed = 0
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() > 1:
                seed += 1
                parameter.copy_(torch.from_numpy(numbers(list(parameter.shape), seed, 0.05)))
            else:
                parameter.fill_(0 if name.endswith("bias") else 1)
    for name, buffer in model.named_buffers():
        if name.endswith(".attn.bias"):
            buffer.copy_(torch.tril(torch.ones_like(buffer)))
    model.tie_weights()
    model.eval()
    model.generation_config.eos_token_id = model.config.eos_token_id = None
    model.generation_config.pad_token_id = 0
    return model


def generation(w, mode):
    model, (prompt, count) = network(w), w.sizes
    ids = torch.from_numpy(labels([1, prompt], 1000, 1000))
    cache, begun = DynamicCache(config=model.config), [0]
    with torch.inference_mode():
        model(ids, use_cache=True, logits_to_keep=1, **{CACHE: cache})

    def first():
        extra = cache.get_seq_length() - prompt
        if extra > 0:
            cache.crop(-extra)
        begun[0] += 1
        return torch.tensor([[100 + (begun[0] - 1) % 1000]])

    def loop():
        token = first()
        with torch.inference_mode():
            for _ in range(count):
                logits = model(token, use_cache=True, **{CACHE: cache}).logits
                token = logits[:, -1].argmax(-1, keepdim=True)
        return token.item()

    def generate():
        whole = torch.cat([ids, first()], 1)
        with torch.inference_mode():
            made = model.generate(whole, attention_mask=torch.ones_like(whole), do_sample=False, use_cache=True,
                                  min_new_tokens=count, max_new_tokens=count, **{CACHE: cache})
        return made[0, -1].item()

    return loop if mode == "loop" else generate, count


def prefill(w):
    model = network(w)
    ids = torch.from_numpy(labels([1, w.sizes[0]], 1000, 1000))

    def forward():
        with torch.inference_mode():
            cache = DynamicCache(config=model.config)
            return model(ids, use_cache=True, logits_to_keep=1, **{CACHE: cache}).logits[0, -1].argmax().item()

    return forward


def modes(w):
    return {"generate": ["loop", "generate"], "prefill": ["forward"]}.get(w.kind, [])


def build(w, mode):
    return generation(w, mode) if w.kind == "generate" else prefill(w)


serve("transformers %s, PyTorch %s" % (transformers.__version__, torch.__version__), modes, build)
