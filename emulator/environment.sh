# Sourced: makes programs find the emulator at HEADWATER_EMULATOR instead of a driver.
export HEADWATER_LIBCUDA=${HEADWATER_EMULATOR:?}/libcuda.so HEADWATER_LIBNVRTC=${HEADWATER_EMULATOR}/libnvrtc.so
# No other stand-in exists; without these the search could find a real library on the machine.
export HEADWATER_LIBCUBLAS=${HEADWATER_EMULATOR}/none HEADWATER_LIBNVML=${HEADWATER_EMULATOR}/none
export HEADWATER_LIBCUFILE=${HEADWATER_EMULATOR}/libcufile.so
# The emulator's images are paths into its own cache, so the kernel cache must not outlive it.
export HEADWATER_CACHE= HWEMU_CACHE=${HEADWATER_EMULATOR}/kernels
