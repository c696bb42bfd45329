"""Faults that offloaders have been published with, put back under ours by one switch, `put_back`.

Nothing that ships knows of it. Where a stream or the host does not wait for another, the emulator takes the wait away; everything else is
a name or two of the hooks. The five races need the emulator that holds work back, the two keys any tensor.

A slot cannot be given to others while a disk writes it: the disk owns it meanwhile, and the compiler sees to that. What can be put back is a
slot that goes down again while it is on its way up.
"""

import enum
import itertools

import headwater.offload.context
from headwater.offload import site


class PublicBug(enum.Enum):
    """Seven of others, and two of the same kind that nobody has published."""

    COPIED_BEFORE_IT_IS_COMPUTED = "axolotl #3833 and TRL #7195 queued the copy behind the wait that should order it"
    STREAM_LOOKED_UP_ONCE = "torchtitan #2581 and TRL #7195 asked for the current stream when they were made"
    BACK_BEFORE_IT_HAS_LEFT = "Megatron-Core #7398 loaded what was still on its way"
    MEMORY_GIVEN_UP_BEFORE_IT_IS_COPIED = "torchtune #1867 dropped tensors while they were read"
    SLOT_USED_BEFORE_IT_IS_READ = "torchtitan #2581 wrote pinned memory that was still on its way back"
    VIEWS_KNOWN_BY_SHAPE = "FlashTrain and ms-swift #10157 told views apart without their offsets and strides"
    OFFSET_IN_ELEMENTS = "TRL added an offset in elements to an address in bytes"
    USED_BEFORE_IT_IS_BACK = "nobody waits for the copy that brings a tensor back"
    MEMORY_GIVEN_UP_BEFORE_IT_IS_FILLED = "a block that was brought back early and that nobody asks for"


KEYS = (PublicBug.VIEWS_KNOWN_BY_SHAPE, PublicBug.OFFSET_IN_ELEMENTS)


def put_back(bug, monkeypatch):
    """Until the end of a test, offloaders that are made from now on have this fault."""
    _PUT_BACK[bug](monkeypatch)


def _lose(monkeypatch, *lost):
    """Waits are lost between the streams of each offloader and all that were there before, as pairs of who waits and for whom."""
    import held

    open_site = site.open_site

    def opened(place, **settings):
        made = open_site(place, **settings)
        if place is not None:
            up, down, *others = held.streams()
            streams = {"up": [up], "down": [down], "compute": others}
            for waiter, awaited in lost:
                for pair in itertools.product(streams[waiter], streams[awaited]):
                    held.lose(*pair)
        return made

    monkeypatch.setattr(headwater.offload.context, "open_site", opened)


def _copied_early(monkeypatch):
    _lose(monkeypatch, ("down", "compute"))


def _stream_looked_up_once(monkeypatch):
    first = []

    def stream(self):
        first.append(self.place.stream())
        return first[0]

    monkeypatch.setattr(site.Site, "_stream", stream)


def load_what_has_not_gone(monkeypatch):
    """What is still on its way is not taken from where it is: that alone is slow and not wrong."""
    bring = site.Site.bring

    def brought(self, saved, tally):
        number = saved.block.number
        storage = self._leaving.pop(number, None)
        try:
            return bring(self, saved, tally)
        finally:
            if storage is not None:
                self._leaving[number] = storage

    monkeypatch.setattr(site.Site, "bring", brought)


def _back_early(monkeypatch):
    load_what_has_not_gone(monkeypatch)
    _lose(monkeypatch, ("up", "down"))


def _given_up_early(monkeypatch):
    save = site.Site.save

    def saved(self, *given):
        block = save(self, *given)
        self._leaving.clear()
        return block

    monkeypatch.setattr(site.Site, "save", saved)


def _slot_used_early(monkeypatch):
    _lose(monkeypatch, ("down", "up"))


def _known_by_shape(monkeypatch):
    class Extent(site.Extent):
        def __init__(self, tensor):
            super().__init__(tensor)
            self.key = tuple(tensor.shape)

    begin = headwater.offload.context.Saved.__init__

    def begun(self, block, tensor):
        begin(self, block, tensor)
        extent = site.Extent(tensor)
        if block.copied is None and not block.start <= extent.start <= block.start + block.nbytes - extent.nbytes:
            # It passes for the one that was saved first.
            self.offset = block.start // self.dtype.itemsize

    monkeypatch.setattr(headwater.offload.context, "Extent", Extent)
    monkeypatch.setattr(headwater.offload.context.Saved, "__init__", begun)


def _offset_in_elements(monkeypatch):
    class Extent(site.Extent):
        def __init__(self, tensor):
            super().__init__(tensor)
            self.start = tensor.storage_offset()

    over = headwater.offload.context.Saved.over
    monkeypatch.setattr(headwater.offload.context, "Extent", Extent)
    monkeypatch.setattr(
        headwater.offload.context.Saved, "over", lambda self, storage, start: over(self, storage, start * self.dtype.itemsize)
    )


def _used_early(monkeypatch):
    monkeypatch.setattr(site.Block, "mark", property(lambda self: None, lambda self, mark: None), raising=False)


def _filled_late(monkeypatch):
    monkeypatch.setattr(site.Site, "_land", lambda self, block: None)


_PUT_BACK = {
    PublicBug.COPIED_BEFORE_IT_IS_COMPUTED: _copied_early,
    PublicBug.STREAM_LOOKED_UP_ONCE: _stream_looked_up_once,
    PublicBug.BACK_BEFORE_IT_HAS_LEFT: _back_early,
    PublicBug.MEMORY_GIVEN_UP_BEFORE_IT_IS_COPIED: _given_up_early,
    PublicBug.SLOT_USED_BEFORE_IT_IS_READ: _slot_used_early,
    PublicBug.VIEWS_KNOWN_BY_SHAPE: _known_by_shape,
    PublicBug.OFFSET_IN_ELEMENTS: _offset_in_elements,
    PublicBug.USED_BEFORE_IT_IS_BACK: _used_early,
    PublicBug.MEMORY_GIVEN_UP_BEFORE_IT_IS_FILLED: _filled_late,
}
