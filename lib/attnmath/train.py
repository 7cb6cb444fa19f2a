"""Train a model on the command line: ``python -m attnmath.train g2p``, English spelling to phonemes."""

import argparse
import json
import sys
from dataclasses import fields
from pathlib import Path

PRESETS = {
    "book": {
        "d": 64,
        "f": 256,
        "layers": 2,
        "epochs": 1,
        "rate": 4e-3,
        "warmup": 200,
        "drop": 0.0,
        "smoothing": 0.0,
        "batch": 128,
    },
    "full": {"d": 128, "f": 512, "layers": 3, "epochs": 8, "batch": 128, "rate": 1.5e-3, "warmup": 1000},
}


def parser() -> argparse.ArgumentParser:
    """The command line; every field of the configuration is a flag that overrides its preset."""
    from attnmath.torch.training import Config

    main = argparse.ArgumentParser(prog="python -m attnmath.train", description="Train a model of the book.")
    tasks = main.add_subparsers(dest="task", required=True)
    g2p = tasks.add_parser("g2p", help="English spelling to phonemes, on the CMU dictionary")
    g2p.add_argument("--preset", choices=PRESETS, default="book", help="sizes to begin with (default: %(default)s)")
    g2p.add_argument("--out", type=Path, default=None, help="the folder of the run (default: runs/g2p-PRESET)")
    g2p.add_argument("--device", default=None, help="cpu or cuda (default: cuda if there is one)")
    g2p.add_argument("--threads", type=int, default=None, help="threads of the processor (default: PyTorch's)")
    g2p.add_argument("--save-every", type=int, default=250, metavar="STEPS", help="a checkpoint (default: %(default)s)")
    g2p.add_argument("--resume", action=argparse.BooleanOptionalAction, default=True, help="go on from a checkpoint")
    g2p.add_argument("--quiet", action="store_true", help="no progress bar")
    g2p.add_argument("--say", nargs="+", metavar="WORD", help="do not train: pronounce words with the folder's model")
    for field in fields(Config):
        flag = (
            {"action": argparse.BooleanOptionalAction}
            if field.type in (bool, "bool")
            else {"type": type(field.default)}
        )
        g2p.add_argument(f"--{field.name}", default=None, **flag)
    return main


def main(arguments: list[str] | None = None) -> int:
    """Run a command line; the answer is the exit status."""
    args = parser().parse_args(arguments)
    try:
        return say(args) if args.say else g2p(args)
    except (FileNotFoundError, FloatingPointError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


def _given(args):
    """The fields of the configuration that the command line sets."""
    from attnmath.torch.training import Config

    values = {field.name: getattr(args, field.name) for field in fields(Config)}
    return {name: value for name, value in values.items() if value is not None}


def configuration(args: argparse.Namespace):
    """The preset, with the flags that were given."""
    from attnmath.torch.training import Config

    return Config(**PRESETS[args.preset] | _given(args))


def g2p(args: argparse.Namespace) -> int:
    """Train, evaluate, and print the result."""
    import torch

    from attnmath.torch.training import Run

    if args.threads:
        torch.set_num_threads(args.threads)
    device = args.device or ("cuda" if torch.cuda.is_available() else "cpu")
    run = Run(configuration(args), _folder(args), device, resume=args.resume)
    if run.step and not args.quiet:
        print(f"going on from step {run.step} of {run.total}", file=sys.stderr)
    result = run.fit(args.save_every, progress=not args.quiet).finish(command(args))
    print(json.dumps({part: result[part] for part in ("validation", "test")}, indent=1))
    return 0


def _folder(args):
    return args.out or Path("runs") / f"g2p-{args.preset}"


def command(args: argparse.Namespace) -> list[str]:
    """What was asked for, without what does not change the result, such as the folder."""
    flags = [
        f"--{'' if value else 'no-'}{name}" if isinstance(value, bool) else f"--{name}={value}"
        for name, value in _given(args).items()
    ]
    return ["python", "-m", "attnmath.train", args.task, f"--preset={args.preset}", *flags]


def say(args: argparse.Namespace) -> int:
    """Pronounce words."""
    from attnmath.torch.training import load_speller

    model = load_speller(_folder(args) / "model.safetensors")
    for word, phonemes in zip(args.say, model.transcribe(args.say, width=5), strict=True):
        print(word, *phonemes)
    return 0


if __name__ == "__main__":
    sys.exit(main())
