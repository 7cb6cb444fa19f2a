"""Hand a component its arrays in another dtype: what the two worlds' ways to compute in float32 share."""

import inspect


def float_parameters(f):
    """The names of f's parameters, and those that hold floats by their annotation: arrays, and tuples of arrays."""
    parameters = inspect.signature(f).parameters
    floating = {name for name, p in parameters.items() if "Float[" in str(p.annotation) or p.annotation is tuple}
    return list(parameters), floating


def first_dtype(names, args, options):
    """The dtype of the first argument, given by position or by name; None if it has none."""
    return getattr(args[0] if args else options.get(names[0]), "dtype", None)


def recast(parameters, args, options, cast):
    """Positional and keyword arguments, with `cast` done to all that holds floats and has a dtype."""
    names, floating = parameters
    args = [_each(arg, cast) if name in floating else arg for name, arg in zip(names, args, strict=False)] + list(
        args[len(names) :]  # too many: f itself says so
    )
    return args, {name: _each(arg, cast) if name in floating else arg for name, arg in options.items()}


def _each(arg, cast):
    if isinstance(arg, tuple):
        return tuple(_each(part, cast) for part in arg)
    return cast(arg) if hasattr(arg, "dtype") else arg
