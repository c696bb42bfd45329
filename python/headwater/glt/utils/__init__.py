"""GraphLearn's small tools, for programs that use them beside its loaders."""

from ..typing import reverse_edge_type
from .common import (
    CastMixin,
    count_dict,
    ensure_dir,
    index_select,
    load_ckpt,
    merge_dict,
    parse_size,
    save_ckpt,
    seed_everything,
)
from .device import assign_device, ensure_device, get_available_device
from .tensor import apply_to_all_tensor, convert_to_tensor, id2idx, share_memory, squeeze, tensor_equal_with_device
from .topo import coo_to_csc, coo_to_csr, ptr2ind

__all__ = [
    "CastMixin",
    "apply_to_all_tensor",
    "assign_device",
    "convert_to_tensor",
    "coo_to_csc",
    "coo_to_csr",
    "count_dict",
    "ensure_device",
    "ensure_dir",
    "get_available_device",
    "id2idx",
    "index_select",
    "load_ckpt",
    "merge_dict",
    "parse_size",
    "ptr2ind",
    "reverse_edge_type",
    "save_ckpt",
    "seed_everything",
    "share_memory",
    "squeeze",
    "tensor_equal_with_device",
]
