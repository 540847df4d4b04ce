"""models.py PROGRAMS OUT: examples/models against transformers and tokenizers, with small models of random weights that are made
here.  PROGRAMS has gpt2, llama, finetune, tokens and allocations.so, which models.sh builds; files go to OUT.  images.py has the
models of images, finetune.py what is trained.

Logits, greedy tokens, batches of prompts of different lengths, penalties, windows, positions that are scaled; f64, f32, bf16 and
f16; one file and shards; names that are missing or too many; numbers of tokens and texts; what generation allocates and how much
memory it has.  The reference computes norms and angles in f64, too, where the model does: transformers has them in f32 always."""
import copy, json, os, re, subprocess, sys

from checks import check, summary
from finetune import check_finetune
from images import check_images

PROGRAMS, OUT = sys.argv[1], sys.argv[2]
os.environ["HF_HUB_OFFLINE"] = "1"
import random
import torch
import transformers
from safetensors.torch import load_file, save_file
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers.models.llama import modeling_llama
from transformers.models.mistral import modeling_mistral
from transformers.models.qwen2 import modeling_qwen2

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()
torch.set_num_threads(1)
PROMPTS = [[5, 9, 2, 44, 17, 3, 60, 8, 31, 2, 19], [7, 7, 1], [90, 4, 33, 21, 12, 6]]
TOKENS = 64


def in_f64(module):
    """Norms and angles of a model in f64 where its weights are."""
    for name in dir(module):
        if name.endswith("RMSNorm"):
            original = getattr(module, name)

            def norm(self, x, original=original.forward):
                if x.dtype != torch.float64:
                    return original(self, x)
                return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.variance_epsilon))
            original.forward = norm
        if name.endswith("RotaryEmbedding"):
            original = getattr(module, name)

            def turn(self, x, position_ids, original=original.forward):
                cos, sin = original(self, x, position_ids)  # sets inv_freq of dynamic scaling, too
                if x.dtype != torch.float64:
                    return cos, sin
                exact = exact_frequencies(self.config, int(position_ids.max()) + 1)
                angle = position_ids[:, :, None].double() * exact
                return torch.cat([angle, angle], -1).cos(), torch.cat([angle, angle], -1).sin()
            original.forward = turn


def exact_frequencies(config, length):
    """The formulas of transformers' modeling_rope_utils in f64."""
    rope = getattr(config, "rope_parameters", None) or dict(config.rope_scaling or {}, rope_theta=config.rope_theta)
    kind = rope.get("rope_type", "default")
    width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    theta = rope["rope_theta"]
    if kind == "dynamic" and length > config.max_position_embeddings:
        grown = rope["factor"] * length / config.max_position_embeddings - (rope["factor"] - 1)
        theta *= grown ** (width / (width - 2))
    angle = theta ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)
    if kind == "linear":
        angle /= rope["factor"]
    if kind == "llama3":
        wave = 2 * torch.pi / angle
        low, high, old = rope["low_freq_factor"], rope["high_freq_factor"], rope["original_max_position_embeddings"]
        smooth = (old / wave - low) / (high - low)
        between = (1 - smooth) * angle / rope["factor"] + smooth * angle
        scaled = torch.where(wave > old / low, angle / rope["factor"], angle)
        angle = torch.where((wave <= old / low) & (wave >= old / high), between, scaled)
    return angle


for module in (modeling_llama, modeling_mistral, modeling_qwen2):
    in_f64(module)


def small(cls, **options):
    shared = dict(vocab_size=97, hidden_size=48, intermediate_size=80, num_hidden_layers=3, num_attention_heads=6,
                  num_key_value_heads=2, max_position_embeddings=128, initializer_range=0.2, bos_token_id=None,
                  eos_token_id=None, pad_token_id=None)
    return cls(**dict(shared, **options))


def scaled(kind, **options):
    return {"rope_scaling": dict({"rope_type": kind}, **options)}


MODELS = {
    "gpt2": transformers.GPT2Config(vocab_size=97, n_embd=48, n_layer=3, n_head=4, n_positions=128, initializer_range=0.2,
                                    bos_token_id=None, eos_token_id=None),
    "llama": small(transformers.LlamaConfig),
    "llama-tied": small(transformers.LlamaConfig, tie_word_embeddings=True, num_key_value_heads=6, attention_bias=True,
                        mlp_bias=True, head_dim=12),
    "llama-linear": small(transformers.LlamaConfig, **scaled("linear", factor=4.0)),
    "llama-dynamic": small(transformers.LlamaConfig, **dict(scaled("dynamic", factor=2.0), max_position_embeddings=32)),
    "llama3": small(transformers.LlamaConfig, **scaled("llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                                                       original_max_position_embeddings=32)),
    "mistral": small(transformers.MistralConfig, sliding_window=7),
    "qwen2": small(transformers.Qwen2Config, use_sliding_window=True, sliding_window=9, max_window_layers=1,
                   tie_word_embeddings=True),
    "qwen2-whole": small(transformers.Qwen2Config),
}


def made(name):
    """A model in f64; its biases and norms are random, too."""
    torch.manual_seed(len(name))
    model = transformers.AutoModelForCausalLM.from_config(copy.deepcopy(MODELS[name]), attn_implementation="sdpa").double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.add_(0.1 * torch.randn_like(parameter))
    return model


def program_of(name):
    return os.path.join(PROGRAMS, "gpt2" if name == "gpt2" else "llama")


def run(name, folder, prompts, *options, **environment):
    """(exit status, lines, what it said on stderr)"""
    texts = [p if isinstance(p, str) else " ".join(map(str, p)) for p in prompts]
    ids = [] if isinstance(prompts[0], str) else ["--ids"]
    result = subprocess.run([program_of(name), folder, "--threads", "1"] + ids + list(options) + texts,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=dict(os.environ, **environment))
    return result.returncode, result.stdout.decode("utf-8", "replace").split("\n"), result.stderr.decode()


def tokens_of(lines, rows):
    return [[int(id_) for id_ in line.split()] for line in lines[:rows]]


def logits_of(name, folder, prompts):
    path = os.path.join(folder, "logits.safetensors")
    status, _, said = run(name, folder, prompts, "--tokens", "0", "--logits", path)
    return load_file(path)["logits"] if check(status == 0, "%s: logits" % name, said) else None


def greedy(model, prompt, tokens=TOKENS, **options):
    ids = torch.tensor([prompt])
    with torch.no_grad():
        out = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=tokens, do_sample=False,
                             eos_token_id=None, pad_token_id=0, **options)
    return out[0, len(prompt):].tolist()


def tie(model, prompt, got, wanted):
    """Whether two lists of tokens differ first where the two best logits are nearly equal."""
    first = next((i for i in range(len(wanted)) if i >= len(got) or got[i] != wanted[i]), None)
    if first is None or first >= len(got):
        return first is None
    with torch.no_grad():
        best = model(torch.tensor([prompt + wanted[:first]])).logits[0, -1].topk(2).values
    return bool(best[0] - best[1] < 1e-4)


def check_model(name):
    model = made(name)
    exact, wanted = [], [greedy(model, prompt) for prompt in PROMPTS]
    with torch.no_grad():
        for prompt in PROMPTS:
            exact.append(model(torch.tensor([prompt])).logits[0])
    for dtype, bound in ((torch.float64, 1e-10), (torch.float32, 1e-4), (torch.bfloat16, None), (torch.float16, None)):
        folder = os.path.join(OUT, "%s-%s" % (name, str(dtype)[6:]))
        model.to(dtype).save_pretrained(folder)
        bounds = [bound] * len(PROMPTS)
        if bound is None:  # twice the error of transformers, against what the rounded weights give
            with torch.no_grad():
                rounded = copy.deepcopy(model).double()
                exact = [rounded(torch.tensor([prompt])).logits[0] for prompt in PROMPTS]
                bounds = [2 * float((model(torch.tensor([prompt])).logits[0] - right).abs().max())
                          for prompt, right in zip(PROMPTS, exact)]
        together = logits_of(name, folder, PROMPTS)
        for row, prompt in enumerate(PROMPTS):
            alone = logits_of(name, folder, [prompt])
            for got, how in ((alone[0], "alone"), (together[row, :len(prompt)], "in a batch")):
                worst = float((got.double() - exact[row]).abs().max())
                check(got.dtype == dtype and worst <= bounds[row], "%s %s: logits %s" % (name, dtype, how),
                      "%g > %g" % (worst, bounds[row]))
        if bound is None:
            continue
        status, lines, said = run(name, folder, PROMPTS, "--tokens", str(TOKENS))
        for row, prompt in enumerate(PROMPTS):
            got = tokens_of(lines, len(PROMPTS))[row]
            if name == "llama-dynamic" and row > 0:  # the longest prompt sets the angles of all
                continue
            same = got == wanted[row] or (dtype == torch.float32 and tie(model, prompt, got, wanted[row]))
            check(status == 0 and len(got) == TOKENS and same, "%s %s: tokens of a batch" % (name, dtype), "%s\n%s\n%s" % (
                got, wanted[row], said))
            if dtype == torch.float64:
                status, alone, said = run(name, folder, [prompt], "--tokens", str(TOKENS))
                check(tokens_of(alone, 1)[0] == wanted[row], "%s: tokens alone" % name, "%s\n%s" % (alone, wanted[row]))
        if dtype == torch.float64:
            status, lines, said = run(name, folder, PROMPTS[:1], "--tokens", "24", "--penalty", "1.3")
            check(tokens_of(lines, 1)[0] == greedy(model, PROMPTS[0], 24, repetition_penalty=1.3), "%s: a penalty" % name, said)
        model = made(name)


def check_options():
    """Drawn tokens, ends of texts, shards, names."""
    name, folder = "llama", os.path.join(OUT, "llama-float32")
    prompt, most = PROMPTS[:1], ("--tokens", "30")
    drawn = [run(name, folder, prompt, *most, "--temperature", "1", "--seed", seed)[1] for seed in "112"]
    check(drawn[0] == drawn[1] != drawn[2], "a seed draws the same tokens, another one others")
    best = run(name, folder, prompt, *most)[1]
    for options in (("--temperature", "1", "--top-k", "1"), ("--temperature", "1", "--top-p", "0"), ("--temperature", "1e-9")):
        check(run(name, folder, prompt, *most, *options)[1] == best, "%s draws the best" % " ".join(options))
    few = run(name, folder, prompt, "--tokens", "100", "--temperature", "5", "--top-k", "2")[1]
    check(few != best and few[0] != "", "two tokens to draw from")
    wanted = tokens_of(best, 1)[0]
    ends = wanted[12]
    os.makedirs(os.path.join(OUT, "ends"), exist_ok=True)
    for file in os.listdir(folder):
        with open(os.path.join(folder, file), "rb") as source, open(os.path.join(OUT, "ends", file), "wb") as to:
            to.write(source.read())
    with open(os.path.join(OUT, "ends", "generation_config.json"), "w") as to:
        json.dump({"eos_token_id": [96, ends]}, to)
    got = tokens_of(run(name, os.path.join(OUT, "ends"), prompt, *most)[1], 1)[0]
    check(got == wanted[:wanted.index(ends) + 1], "a text ends at its last token", "%s\n%s" % (got, wanted))

    shards = os.path.join(OUT, "shards")
    made(name).float().save_pretrained(shards, max_shard_size="60KB")
    check(os.path.exists(os.path.join(shards, "model.safetensors.index.json")), "there are shards")
    check(torch.equal(logits_of(name, shards, prompt), logits_of(name, folder, prompt)), "shards give the same logits")
    weights = load_file(os.path.join(folder, "model.safetensors"))
    path = os.path.join(OUT, "ends", "model.safetensors")
    save_file(dict(weights, other=torch.zeros(2)), path)
    status, lines, said = run(name, os.path.join(OUT, "ends"), prompt, "--tokens", "5")
    check(status == 0 and said == "unexpected: other\n", "a name too many is named", said)
    save_file({k: v for k, v in weights.items() if "layers.1.mlp.up" not in k}, path)
    status, lines, said = run(name, os.path.join(OUT, "ends"), prompt, "--tokens", "5")
    check(status == 1 and said == "missing: model.layers.1.mlp.up_proj.weight\n", "a missing name is named", said)
    bare = os.path.join(OUT, "bare")  # as the hub's gpt2 has it, with the masks that are no weights
    model = made("gpt2").float()
    model.save_pretrained(bare)
    names = {k[len("transformer."):]: v.contiguous() for k, v in model.state_dict().items() if k.startswith("transformer.")}
    names["h.0.attn.bias"] = torch.ones(1, 1, 128, 128)
    save_file(names, os.path.join(bare, "model.safetensors"))
    check(torch.equal(logits_of("gpt2", bare, prompt), logits_of("gpt2", os.path.join(OUT, "gpt2-float32"), prompt)),
          "names without transformer. give the same logits")
    status, lines, said = run("gpt2", bare, prompt, "--tokens", "200")
    check(status == 1 and "211 positions are more than the model's 128" in said, "too many positions", said)
    for program, wrong in (("gpt2", folder), ("llama", bare), ("llama", os.path.join(OUT, "nowhere"))):
        status, _, said = run(program, wrong, prompt)
        check(status == 1 and "config.json is not" in said, "%s of %s is refused" % (program, wrong), said)


def counted(name, folder, prompts, tokens, *options):
    """(allocations after the second token, the most bytes that were resident)"""
    status, _, said = run(name, folder, prompts, "--tokens", str(tokens), *options,
                          LD_PRELOAD=os.path.join(PROGRAMS, "allocations.so"))
    found = re.search(r"(-?\d+) after the second flush\nVmHWM:\s*(\d+) kB", said)
    check(status == 0 and found, "%s says what it took" % name, said)
    return (int(found[1]), int(found[2]) * 1024) if found else (0, 0)


def check_costs():
    """No allocation per token after the second, and the weights once in memory."""
    for name in ("gpt2", "llama", "mistral", "llama-dynamic"):
        for prompts in (PROMPTS[:1], PROMPTS):
            for options in ((), ("--temperature", "0.9", "--top-k", "20", "--top-p", "0.9", "--penalty", "1.1")):
                more = counted(name, os.path.join(OUT, name + "-float32"), prompts, 100, *options)[0]
                check(more == 0, "%s, %d prompts %s: no allocation after the second token" % (name, len(prompts), options),
                      str(more))
    folder = os.path.join(OUT, "large")
    torch.manual_seed(0)
    large = small(transformers.LlamaConfig, vocab_size=60000, hidden_size=256, num_attention_heads=8, intermediate_size=1024)
    transformers.AutoModelForCausalLM.from_config(large).bfloat16().save_pretrained(folder)
    weights = os.path.getsize(os.path.join(folder, "model.safetensors"))

    least = counted("llama", os.path.join(OUT, "llama-bfloat16"), PROMPTS[1:2], 4)[1]
    most = counted("llama", folder, PROMPTS[1:2], 4)[1]
    check(most - least < 1.1 * weights, "the weights are once in memory", "%d > 1.1 * %d" % (most - least, weights))
    print("resident memory: %.2f times the weights, bf16, %.0f MB" % ((most - least) / weights, weights / 1e6))


# ---- texts ----

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
STRANGE = ("Gr\u00fc\u00dfe, na\u00efve caf\u00e9 \u2014 \u4f60\u597d\u4e16\u754c \u3053\u3093\u306b\u3061\u306f "
           "\u043f\u0440\u0438\u0432\u0435\u0442 \u0661\u0662\u0663 \u00bd 12345 \u2029 x\u00a0y  \n\n\tif (a) {\r\n  b\u3000c}\n"
           " \u2019s don't WE'LL I'M 'Tis \U0001d518\U0001d52b\U0001d526 \U0001f642\U0001f469\u200d\U0001f467 \ufdfa \u00aa\u00ba"
           " \u01c5 \u2177 \u0001 ")


def tokenizer(kind, text):
    """Trained on a text, in the form of GPT-2's, Llama 3's, Qwen2's, Llama 2's or Mistral's tokenizer.json."""
    by_bytes = kind not in ("llama2", "mistral")
    t = Tokenizer(models.BPE(ignore_merges=kind == "llama3") if by_bytes else
                  models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True))
    level = pre_tokenizers.ByteLevel(add_prefix_space=kind == "prefix", use_regex=kind not in ("llama3", "qwen2"))
    t.pre_tokenizer = level
    if kind in ("llama3", "qwen2"):
        pattern = LLAMA3 if kind == "llama3" else LLAMA3.replace("{1,3}", "")
        t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated"), level])
    if kind == "digits":
        t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), level])
    if kind == "qwen2":
        t.normalizer = normalizers.NFC()
    if by_bytes:
        t.decoder = decoders.ByteLevel()
        trainer = trainers.BpeTrainer(vocab_size=1000, special_tokens=["<|begin|>", "<|end|>"], show_progress=False,
                                      initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
        t.train_from_iterator([text, STRANGE], trainer)
        if kind == "llama3":
            t.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), processors.TemplateProcessing(
                single="<|begin|> $A", special_tokens=[("<|begin|>", 0)])])
    else:
        t.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
        t.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(),
                                       decoders.Strip(" ", 1, 0)])
        bytes_ = ["<0x%02X>" % i for i in range(256)]
        trainer = trainers.BpeTrainer(vocab_size=1000, special_tokens=["<unk>", "<s>", "</s>"] + bytes_, limit_alphabet=150,
                                      show_progress=False)
        t.train_from_iterator(text.split("\n"), trainer)
        saved = json.loads(t.to_str())  # the trainer takes the bytes for added tokens; in models they are not
        saved["added_tokens"] = [a for a in saved["added_tokens"] if a["content"] not in bytes_]
        t = Tokenizer.from_str(json.dumps(saved))
        if kind == "llama2":
            t.pre_tokenizer = None
            t.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
        t.post_processor = processors.TemplateProcessing(single="<s> $A </s>", special_tokens=[("<s>", 1), ("</s>", 2)])
    t.add_special_tokens([AddedToken("<|user|>")])
    t.add_tokens([AddedToken("<tool>", normalized=False), AddedToken("<tool>s", normalized=False)])
    return t


def check_tokenizers(text):
    random.seed(1)
    letters = STRANGE.replace("\u0001", "") + text[:500]
    cases = ["", "hello", " hello", "  two  spaces  ", STRANGE, text[1000:3000], "a\n\n b", "\n\n", "   ",
             "<|user|> hi <tool>s<tool>x <|end|>"] + ["".join(random.choice(letters) for _ in range(60)) for _ in range(40)]
    path = os.path.join(OUT, "texts")
    with open(path, "wb") as file:
        file.write(b"".join(case.encode() + b"\0" for case in cases))
    for kind in ("gpt2", "prefix", "digits", "llama3", "qwen2", "llama2", "mistral"):
        t, folder = tokenizer(kind, text), os.path.join(OUT, "tokenizer-" + kind)
        os.makedirs(folder, exist_ok=True)
        t.save(os.path.join(folder, "tokenizer.json"))
        folders = [folder]
        if kind == "gpt2":  # and the two files that GPT-2 came with, which name no added tokens
            folders.append(folder + "-old")
            os.makedirs(folders[1], exist_ok=True)
            t.model.save(folders[1])
        for where in folders:
            reference = t
            if where != folder:
                reference = Tokenizer(models.BPE.from_file(where + "/vocab.json", where + "/merges.txt"))
                reference.pre_tokenizer, reference.decoder = t.pre_tokenizer, t.decoder
            for special in (False, True):
                out = subprocess.run([os.path.join(PROGRAMS, "tokens"), where, path] + ["special"] * special,
                                     stdout=subprocess.PIPE).stdout.split(b"\0")
                check(len(out) == len(cases) + 1, "%s: %d texts" % (where, len(cases)))
                for case, got in zip(cases, out):
                    wanted = reference.encode(case, add_special_tokens=special).ids
                    line, _, back = got.partition(b"\n")
                    check([int(id_) for id_ in line.split()] == wanted, "%s: tokens of %r" % (where, case),
                          "%s\n%s" % (line.decode(), wanted))
                    decoded = reference.decode(wanted, skip_special_tokens=True)
                    check("\ufffd" in decoded or decoded.encode() == back, "%s: text of %r" % (where, case), repr(back))
    for wrong, said in (({"model": {"type": "Unigram", "vocab": {"a": 0}}}, b"model 'Unigram'"), ({}, b"no tokenizer was read"),
                        ({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": ["a b"]}}, b"no tokenizer was read"),
                        ({"model": {"vocab": {"a": 0}}, "pre_tokenizer": {"type": "Split", "behavior": "Isolated", "pattern": {
                            "Regex": "(a|b)+"}}}, b"regular expression '(a|b)+'"),
                        ({"model": {"vocab": {"a": 0}}, "normalizer": {"type": "Lowercase"}}, b"normalizer 'Lowercase'")):
        folder = os.path.join(OUT, "wrong")
        os.makedirs(folder, exist_ok=True)
        with open(os.path.join(folder, "tokenizer.json"), "w") as file:
            json.dump(wrong, file)
        result = subprocess.run([os.path.join(PROGRAMS, "tokens"), folder, path], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        check(result.returncode == 1 and said in result.stderr, "refused: %s" % said.decode(), result.stderr.decode())


def check_texts(text):
    """A prompt as a text, and a text as it is streamed."""
    for kind, name, cls, options in (
            ("gpt2", "gpt2", transformers.GPT2Config, dict(n_embd=48, n_layer=2, n_head=4)),
            ("llama2", "llama", transformers.LlamaConfig, dict(hidden_size=48, intermediate_size=64, num_hidden_layers=2,
                                                               num_attention_heads=4))):
        folder = os.path.join(OUT, "tokenizer-" + kind)
        t = Tokenizer.from_file(os.path.join(folder, "tokenizer.json"))
        torch.manual_seed(3)
        config = cls(vocab_size=t.get_vocab_size(), bos_token_id=None, eos_token_id=None, initializer_range=0.2, **options)
        model = transformers.AutoModelForCausalLM.from_config(config).double().eval()
        model.save_pretrained(folder)
        prompt = "The library has tensors"
        status, lines, said = run(name, folder, [prompt], "--tokens", "30")
        ids = t.encode(prompt).ids
        more = greedy(model, ids, 30)
        wanted = t.decode(ids + more, skip_special_tokens=True)
        got = "\n".join(lines)
        if "\ufffd" not in wanted:
            check(status == 0 and got == wanted + "\n", "%s: a text is continued" % kind, "%r\n%r%s" % (got, wanted, said))
        one = run(name, folder, [prompt], "--tokens", "8")[1]
        two = run(name, folder, [prompt, "tensor"], "--tokens", "8")[1]
        check("\n".join(two).startswith("[0] " + "\n".join(one).rstrip("\n")), "%s: two texts" % kind, "%s\n%s" % (one, two))


for model_name in MODELS:
    check_model(model_name)
check_options()
check_costs()
with open("tensorgrad.h", encoding="utf8") as header:
    source = header.read(200000)
check_tokenizers(source)
check_texts(source)
check_images(PROGRAMS, OUT)
for model_name in ("gpt2", "llama", "llama-tied"):
    check_finetune(model_name, made(model_name), PROGRAMS, OUT)
sys.exit(summary())
