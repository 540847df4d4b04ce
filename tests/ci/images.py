"""images.py: examples/models/vit.c and resnet.c against transformers and torchvision; models.py runs it.

Pixels as the processors make them, equal in each byte; logits in f64, f32, bf16 and f16; the names of classes; files with names
that are missing or too many; images that are none."""
import copy, json, os, re, shutil, subprocess

from checks import check

import torch
import transformers
from safetensors.torch import load_file, save_file

IMAGENET = dict(image_mean=[0.485, 0.456, 0.406], image_std=[0.229, 0.224, 0.225])
SIZES = ((40, 53), (61, 61), (200, 97), (9, 300), (131, 64))
HEADS = (b"P6\n%d %d\n255\n", b"P6 # made by hand\n# 1 2 3\n  %d\t%d # wide, high\n255 ", b"P6\r\n%d %d 255\n")


class Programs:
    """The programs and the folder of their files."""

    def __init__(self, programs, out):
        self.programs, self.out = programs, os.path.join(out, "images")
        os.makedirs(self.out, exist_ok=True)
        self.images = []
        torch.manual_seed(5)
        for i, (height, width) in enumerate(SIZES):
            waves = torch.sin(torch.arange(height)[:, None, None] * 0.31 + torch.arange(width)[None, :, None] * 0.17 +
                              torch.arange(3) * 2)
            noise = torch.rand(height, width, 3)
            image = ((0.5 + 0.3 * waves + 0.5 * (noise - 0.5)).clamp(0, 1) * 255).round().to(torch.uint8)
            image[: height // 3, : width // 3] = (noise[: height // 3, : width // 3] > 0.5) * 255  # a filter overshoots here
            path = os.path.join(self.out, "%d.ppm" % i)
            with open(path, "wb") as file:
                file.write(HEADS[i % len(HEADS)] % (width, height) + image.numpy().tobytes())
            self.images.append((path, image.permute(2, 0, 1).contiguous()))

    def folder(self, name):
        path = os.path.join(self.out, name)
        shutil.rmtree(path, ignore_errors=True)
        os.makedirs(path)
        return path

    def run(self, program, folder, images, *options):
        """(exit status, what it printed, what it said on stderr)"""
        result = subprocess.run([os.path.join(self.programs, program), folder, "--threads", "1"] + list(options) + list(images),
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        return result.returncode, result.stdout.decode(), result.stderr.decode()

    def resident(self, program, folder):
        """The most bytes of memory that it had, as allocations.so says"""
        result = subprocess.run([os.path.join(self.programs, program), folder, "--threads", "1", self.images[0][0]],
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                env=dict(os.environ, LD_PRELOAD=os.path.join(self.programs, "allocations.so")))
        found = re.search(rb"VmHWM:\s*(\d+) kB", result.stderr)
        check(result.returncode == 0 and found, "%s says what it took" % program, result.stderr.decode())
        return int(found[1]) * 1024 if found else 0

    def saved(self, program, folder, images, what):
        """{"pixels": .., "logits": ..}, or None"""
        path = os.path.join(folder, "saved.safetensors")
        status, _, said = self.run(program, folder, images, "--save", path)
        return load_file(path) if check(status == 0 and said == "", what, said) else None


def save_model(model, folder):
    """As from the hub, with the names of some classes."""
    model.config.id2label = {i: "Klasse \u00e4 \"%d\"" % i for i in range(model.config.num_labels)}
    model.save_pretrained(folder)


def made(model):
    """In f64, with random norms and statistics, too."""
    torch.manual_seed(7)
    model = model.double().eval()
    with torch.no_grad():
        for name, t in list(model.named_parameters()) + list(model.named_buffers()):
            if name.endswith("running_var"):
                t.copy_(0.5 + torch.rand_like(t))
            elif t.dim() == 1 and t.is_floating_point():
                t.add_(0.1 * torch.randn_like(t))
    return model


def logits_of(model, pixels, **options):
    with torch.no_grad():
        result = model(pixels, **options)
    return result if isinstance(result, torch.Tensor) else result.logits


def check_logits(p, program, name, model, write):
    """write(model, folder) saves the model in its dtype."""
    paths = [path for path, _ in p.images[:3]]
    for dtype, bound in ((torch.float64, 1e-10), (torch.float32, 1e-4), (torch.bfloat16, None), (torch.float16, None)):
        folder = p.folder("%s-%s" % (name, str(dtype)[6:]))
        low = copy.deepcopy(model).to(dtype)
        write(low, folder)
        got = p.saved(program, folder, paths, "%s %s" % (name, dtype))
        if not got:
            continue
        exact = logits_of(copy.deepcopy(low).double() if bound is None else model, got["pixels"].double())
        if bound is None:  # four times PyTorch's, against what the rounded weights give: the worst of 21 numbers is chance
            bound = 4 * float((logits_of(low, got["pixels"].to(dtype)).double() - exact).abs().max())
        worst = float((got["logits"].double() - exact).abs().max())
        check(got["logits"].dtype == dtype and got["logits"].shape == exact.shape and worst <= bound and exact.std() > 0.01,
              "%s %s: logits" % (name, dtype), "%g > %g" % (worst, bound))


# ---- pixels ----

def check_pixels(p, program, folder, name, processed):
    """processed(image): what the reference makes of a byte image [3, H, W]"""
    for path, image in p.images:
        got = p.saved(program, folder, [path], "%s: pixels of %s" % (name, path))
        if got:
            wanted = processed(image)
            same = got["pixels"].shape == wanted.shape and got["pixels"].dtype == torch.float32
            worst = float((got["pixels"] - wanted).abs().max()) if same else 1e9
            # a byte more or less is 1 / 255 / std
            check(same and worst <= 2e-6 * max(1, float(wanted.abs().max())), "%s: pixels of %s" % (name, path),
                  "%g %s %s" % (worst, tuple(got["pixels"].shape), tuple(wanted.shape)))


def save_processor(processor, folder):
    processor.save_pretrained(folder)
    path = os.path.join(folder, "preprocessor_config.json")
    if not os.path.exists(path):
        os.rename(os.path.join(folder, "processor_config.json"), path)


def check_processors(p):
    vit, convnext = transformers.ViTImageProcessor, transformers.ConvNextImageProcessor
    cases = {
        "vit": vit(size={"height": 32, "width": 32}),
        "vit-bicubic": vit(size={"height": 32, "width": 32}, resample=3, **IMAGENET),
        "vit-larger": vit(size={"height": 224, "width": 160}, resample=3),
        "vit-crop": vit(size={"shortest_edge": 50}, do_center_crop=True, crop_size={"height": 45, "width": 41}),
        "vit-pad": vit(size={"height": 33, "width": 30}, do_center_crop=True, crop_size={"height": 40, "width": 39}),
        "vit-raw": vit(size={"height": 32, "width": 32}, do_rescale=False),
        "vit-plain": vit(size={"height": 32, "width": 32}, do_normalize=False),
        "vit-as-it-is": vit(do_resize=False, do_center_crop=True, crop_size={"height": 64, "width": 64}),
        "convnext": convnext(size={"shortest_edge": 32}, **IMAGENET),
        "convnext-bilinear": convnext(size={"shortest_edge": 49}, resample=2, crop_pct=0.9),
        "convnext-384": convnext(size={"shortest_edge": 384}, resample=3),
    }
    config = transformers.ResNetConfig(embedding_size=4, hidden_sizes=[4], depths=[1], layer_type="basic", num_labels=2)
    model = transformers.ResNetForImageClassification(config)
    for name, processor in cases.items():
        folder = p.folder("pixels-" + name)
        save_model(model, folder)
        save_processor(processor, folder)
        check_pixels(p, "resnet", folder, name, lambda image: processor(image, return_tensors="pt")["pixel_values"])
    folder = p.folder("pixels-old")  # an integer is a square for ViT, the shorter edge for ConvNext
    save_model(model, folder)
    for kind, processor in (("ViT", cases["vit"]), ("ConvNext", cases["convnext"])):
        with open(os.path.join(folder, "preprocessor_config.json"), "w") as file:
            json.dump({"feature_extractor_type": kind + "FeatureExtractor", "size": 32, "resample": int(processor.resample),
                       "image_mean": list(processor.image_mean), "image_std": list(processor.image_std)}, file)
        check_pixels(p, "resnet", folder, "old " + kind, lambda image: processor(image, return_tensors="pt")["pixel_values"])
    for wrong in ('{"image_processor_type": "BitImageProcessor"}', '{"resample": 1}', '{"size": {"height": -3}}', "{", "[]"):
        with open(os.path.join(folder, "preprocessor_config.json"), "w") as file:
            file.write(wrong)
        status, _, said = p.run("resnet", folder, [p.images[0][0]])
        check(status == 1 and "preprocessor_config.json is not that of a processor that is known" in said, wrong, said)


def check_preset(p):
    """Without preprocessor_config.json a ResNet's pixels are those of torchvision's transforms."""
    from PIL import Image
    from torchvision.transforms._presets import ImageClassification
    config = transformers.ResNetConfig(embedding_size=4, hidden_sizes=[4], depths=[1], layer_type="basic", num_labels=2)
    folder = p.folder("pixels-preset")
    save_model(transformers.ResNetForImageClassification(config), folder)
    preset = ImageClassification(crop_size=224)
    check_pixels(p, "resnet", folder, "torchvision", lambda image: preset(Image.fromarray(image.permute(1, 2, 0).numpy()))[None])


# ---- models ----

def check_vits(p):
    small = dict(hidden_size=48, num_hidden_layers=3, num_attention_heads=4, intermediate_size=80, image_size=32, patch_size=8,
                 num_labels=7, initializer_range=0.3)
    cases = {"vit": {}, "vit-gelu": dict(hidden_act="gelu_new", qkv_bias=False), "vit-large": dict(patch_size=16, image_size=48),
             "vit-wide": dict(image_size=[32, 48], patch_size=[8, 16])}
    for name, options in cases.items():
        config = transformers.ViTConfig(**dict(small, **options))
        model = made(transformers.ViTForImageClassification._from_config(config, attn_implementation="sdpa"))
        check_logits(p, "vit", name, model, save_model)
        if name != "vit":
            continue
        for size in ({"height": 48, "width": 40}, {"height": 16, "width": 64}):  # positions are interpolated
            folder = p.folder("vit-positions")
            save_model(model.double(), folder)
            save_processor(transformers.ViTImageProcessor(size=size), folder)
            got = p.saved("vit", folder, [path for path, _ in p.images[:2]], "another size")
            wanted = got and logits_of(model, got["pixels"].double(), interpolate_pos_encoding=True)
            check(got and float((got["logits"] - wanted).abs().max()) <= 1e-10, "vit: positions of %s" % size)
    folder, other = os.path.join(p.out, "vit-float32"), p.folder("vit-modules")
    one = p.saved("vit", folder, [p.images[0][0]], "vit")
    model = transformers.ViTForImageClassification.from_pretrained(folder)
    for how in ("shards", "names of modules"):
        if how == "shards":
            model.save_pretrained(other, max_shard_size="30KB")
            check(os.path.exists(os.path.join(other, "model.safetensors.index.json")), "there are shards")
        else:
            os.remove(os.path.join(other, "model.safetensors.index.json"))
            weights = dict(model.state_dict(), **{"vit.pooler.dense.weight": torch.ones(2, 2)})
            check("vit.layers.0.mlp.fc1.weight" in weights, "names of modules are others than those on disk")
            save_file(weights, os.path.join(other, "model.safetensors"))
        got = p.saved("vit", other, [p.images[0][0]], how)
        check(got and torch.equal(got["logits"], one["logits"]), "%s give the same logits" % how)


def check_resnets(p):
    small = dict(embedding_size=8, hidden_sizes=[16, 32, 64], depths=[2, 1, 2], num_labels=7)
    cases = {"resnet-basic": dict(layer_type="basic"), "resnet-bottleneck": {},
             "resnet-early": dict(downsample_in_bottleneck=True, downsample_in_first_stage=True)}
    for name, options in cases.items():
        model = made(transformers.ResNetForImageClassification(transformers.ResNetConfig(**dict(small, **options))))

        def write(low, folder):
            save_model(low, folder)
            save_processor(transformers.ConvNextImageProcessor(size={"shortest_edge": 64}), folder)
        check_logits(p, "resnet", name, model, write)


def check_torchvision(p):
    from torchvision.models import resnet as tv
    cases = {"tv-basic": tv.ResNet(tv.BasicBlock, [2, 1, 2, 1], num_classes=7),
             "tv-bottleneck": tv.ResNet(tv.Bottleneck, [1, 2, 1, 1], num_classes=7),
             "tv-groups": tv.ResNet(tv.Bottleneck, [1, 1, 1, 1], num_classes=7, groups=4, width_per_group=8),
             "resnet18": tv.resnet18(num_classes=11)}
    for name, model in cases.items():
        whole = name == "resnet18"

        def write(low, folder):
            save_file(low.state_dict(), os.path.join(folder, "model.safetensors"))
            if not whole:
                save_processor(transformers.ConvNextImageProcessor(size={"shortest_edge": 64}), folder)
        check_logits(p, "resnet", name, made(model), write)


def check_memory(p):
    """The weights are once in memory."""
    small = dict(image_size=32, patch_size=16, num_labels=7)
    vit = transformers.ViTConfig(hidden_size=512, num_hidden_layers=8, num_attention_heads=8, intermediate_size=2048, **small)
    resnet = transformers.ResNetConfig(embedding_size=64, hidden_sizes=[64, 128, 256, 512], depths=[2, 2, 2, 4],
                                       layer_type="basic", num_labels=7)
    for program, model in (("vit", transformers.ViTForImageClassification(vit)),
                           ("resnet", transformers.ResNetForImageClassification(resnet))):
        folder = p.folder("memory-" + program)
        save_model(model, folder)
        save_processor(transformers.ViTImageProcessor(size={"height": 32, "width": 32}), folder)
        weights = os.path.getsize(os.path.join(folder, "model.safetensors"))
        most, least = p.resident(program, folder), p.resident(program, os.path.join(p.out, {
            "vit": "vit-float32", "resnet": "resnet-basic-float32"}[program]))
        print("resident memory: %s %.2f times the weights, f32, %.0f MB" % (program, (most - least) / weights, weights / 1e6))
        check(most - least < 1.1 * weights, "%s: the weights are once in memory" % program,
              "%d > 1.1 * %d" % (most - least, weights))


# ---- names, and what is refused ----

def check_classes(p):
    folder, paths = os.path.join(p.out, "vit-float32"), [path for path, _ in p.images[:2]]
    logits = p.saved("vit", folder, paths, "vit")["logits"].double()
    best = logits.softmax(1).topk(3)
    names = os.path.join(p.out, "names")
    with open(names, "w", encoding="utf8") as file:
        file.write("".join("\u00fc %d, name\r\n" % i for i in range(7)))
    for options, name in (([], "Klasse \u00e4 \"%d\""), (["--classes", names], "\u00fc %d, name")):
        wanted = "".join(path + "\n" + "".join("%.4f  %s\n" % (share, name % i) for share, i in zip(*rows))
                         for path, *rows in zip(paths, best.values.tolist(), best.indices.tolist()))
        status, printed, said = p.run("vit", folder, paths, "--best", "3", *options)
        check(status == 0 and printed == wanted, "names of classes", "%s\n%s%s" % (printed, wanted, said))
    status, printed, said = p.run("vit", folder, paths[:1], "--best", "100")
    shares = [float(line.split()[0]) for line in printed.splitlines()]
    check(status == 0 and len(shares) == 7 and abs(sum(shares) - 1) < 1e-3 and shares == sorted(shares)[::-1],
          "all classes", said)
    with open(names, "a") as file:
        file.write("one more")
    status, printed, said = p.run("vit", folder, paths, "--classes", names)
    check(status == 1 and "has 8 lines, and the model 7 classes" in said and printed == "", "too many names", said)
    status, printed, said = p.run("vit", folder, paths, "--classes", names + ".none")
    check(status == 1 and printed == "", "no file of names", said)
    bare = p.folder("bare")
    shutil.copy(os.path.join(folder, "model.safetensors"), bare)
    with open(os.path.join(folder, "config.json"), encoding="utf8") as file:
        config = re.sub(r'"id2label": {[^}]*},', "", file.read())
    with open(os.path.join(bare, "config.json"), "w", encoding="utf8") as file:
        file.write(config)
    status, printed, said = p.run("vit", bare, paths[:1], "--best", "1")
    check(status == 0 and printed == "%.4f  class %d\n" % (best.values[0, 0], best.indices[0, 0]), "numbers of classes", printed)


def check_refused(p):
    image = [p.images[0][0]]
    layers = "resnet.encoder.stages.%d.layers.%d."
    for program, folder, name, known in (
            ("vit", "vit", "vit.encoder.layer.1.layernorm_after.bias", "vit.layers.1.layernorm_after.bias"),
            ("resnet", "resnet-bottleneck", layers % (1, 0) + "shortcut.convolution.weight", "layer2.0.downsample.0.weight"),
            ("resnet", "resnet-basic", layers % (2, 1) + "layer.1.normalization.running_mean", "layer3.1.bn2.running_mean")):
        source, folder = os.path.join(p.out, folder + "-float32"), p.folder("names-" + program)
        shutil.copy(os.path.join(source, "config.json"), folder)
        weights, path = load_file(os.path.join(source, "model.safetensors")), os.path.join(folder, "model.safetensors")
        save_file(dict(weights, other=torch.zeros(2)), path)
        status, _, said = p.run(program, folder, image)
        check(status == 0 and said == "unexpected: other\n", "a name too many is named", said)
        save_file({k: v for k, v in weights.items() if k != name}, path)
        status, printed, said = p.run(program, folder, image)
        check(status == 1 and printed == "" and said == "missing: %s\n" % known, "a missing name is named", said)
    nowhere = os.path.join(p.out, "nowhere")
    for program, folder, words in (("vit", os.path.join(p.out, "resnet-basic-float32"), "config.json is not that of a ViT"),
                                   ("resnet", os.path.join(p.out, "vit-float32"), "config.json is not that of a ResNet"),
                                   ("vit", nowhere, "config.json is not"), ("resnet", nowhere, "nowhere")):
        status, printed, said = p.run(program, folder, image)
        check(status == 1 and words in said and printed == "", "%s of %s is refused" % (program, folder), said)
    broken = os.path.join(p.out, "broken.ppm")
    for data in (b"", b"P6", b"P5\n1 1\n255\n1", b"P6\n2 2\n255\n" + b"1" * 11, b"P6\n2 2\n65535\n" + b"1" * 24,
                 b"P6\n0 3\n255\n", b"P6\n-2 2\n255\n" + b"1" * 12, b"P6\n99999999 99999999\n255\n", b"P6 # no end", None):
        if data is None:
            os.remove(broken)
        else:
            with open(broken, "wb") as file:
                file.write(data)
        status, printed, said = p.run("vit", os.path.join(p.out, "vit-float32"), [broken])
        check(status == 1 and "is not there, or is no whole PPM" in said and printed == "", "no image: %r" % data, said)
    status, printed, said = p.run("vit", os.path.join(p.out, "vit-float32"), [])
    check(status == 2 and "--classes FILE" in said, "without an image it says how", said)


def check_images(programs, out):
    try:
        import torchvision  # the processors of transformers resize with it, too
        from PIL import Image
    except ImportError as missing:
        print("skipped: vit and resnet: %s" % missing)
        return
    p = Programs(programs, out)
    check_processors(p)
    check_preset(p)
    check_vits(p)
    check_resnets(p)
    check_torchvision(p)
    check_memory(p)
    check_classes(p)
    check_refused(p)
