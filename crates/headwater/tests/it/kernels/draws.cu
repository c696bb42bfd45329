// Every kind of draw, for the test that compares them with the CPU's, to the bit.
//
// Of draw i: key and counter are the first two words of its input, the limit the third; four words come out.

extern "C" __global__ void draws(const u64* in, u64 count, u64* out) {
    const u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    const u64 key = in[3 * i], counter = in[3 * i + 1], limit = in[3 * i + 2];
    const double unit = hw_unit(key, counter);
    out[4 * i] = hw_key_of(key, counter);
    out[4 * i + 1] = hw_draw(key, counter);
    out[4 * i + 2] = hw_below(key, counter, limit ? limit : 1);
    memcpy(out + 4 * i + 3, &unit, 8);
}
