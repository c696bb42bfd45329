"""Which functions of torch's look at a tensor, see it differently or write to it: by torch's own schemas where they say so."""

from __future__ import annotations

import torch
from torch import Tensor


def _by_schema() -> tuple[frozenset[str], frozenset[str], frozenset[str]]:
    """Operators that return memory they were given, that write to their first operand, and those of them that change how it is
    seen and not what is in it."""
    views, writes, reshapes = set("__iter__ T mT H mH data".split()), {"__setitem__"}, set()
    for schema in torch._C._jit_get_all_schemas():
        name, first = schema.name.removeprefix("aten::"), schema.arguments[0].alias_info if schema.arguments else None
        if not schema.name.startswith("aten::"):
            continue
        if any(made.alias_info is not None and not made.alias_info.is_write for made in schema.returns):
            views.add(name)
        if first is not None and first.is_write and name.endswith("_") and not name.endswith("__"):
            writes.add(name)
            overload = getattr(getattr(torch.ops.aten, name), schema.overload_name or "default", None)
            if torch.Tag.inplace_view in getattr(overload, "tags", ()):
                reshapes.add(name)
    # `a += b` is `__iadd__`, which stands beside an `__add__`; `__invert__`, `__index__` and `__iter__` stand beside nothing.
    writes |= {name for name in dir(Tensor) if name.startswith("__i") and hasattr(Tensor, f"__{name[3:]}")}
    return frozenset(views - {"to", "cpu", "cuda", "pin_memory", "__getitem__"}), frozenset(writes), frozenset(reshapes)


VIEWS, WRITES, _RESHAPES = _by_schema()
# These are of the tensor itself, not of what is in it.
ITSELF = _RESHAPES | frozenset(
    "requires_grad_ retain_grad register_hook register_post_accumulate_grad_hook backward share_memory_ is_shared "
    "module_load apply_ map_ map2_ __set__ __delete__".split()
)
# These look at a tensor and compute nothing.
LOOKS = frozenset(
    "size dim ndimension numel nelement stride storage_offset is_contiguous data_ptr element_size __len__ tolist item "
    "__repr__ __str__ __format__ numpy __array__ is_floating_point is_complex is_signed is_pinned untyped_storage storage "
    "__hash__ __bool__ __int__ __float__ __complex__ __index__ __contains__ __dlpack__ __dlpack_device__ get_device is_set_to "
    "is_same_size type_as __deepcopy__ is_tensor is_storage result_type can_cast cpu cuda to __get__".split()
)
# And these hand the memory to somebody who may write to it.
HANDS_OUT = frozenset("numpy __array__ __dlpack__ apply_ map_ map2_".split())
