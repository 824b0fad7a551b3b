#!/bin/sh
# All golden models on each device that can be used here, resident and streamed; greedy ids of published ones; kernels in
# subgroups of 4, 8 and 16 invocations, which Mesa's lavapipe can be told to have; and kernels and a streamed model under
# Vulkan's validation layers, where these are installed (Debian: vulkan-validationlayers).
# usage: tools/check_devices.sh BUILD
set -eu
build=$1
"$build/tests/model_backends" --all
"$(dirname "$0")/check_real_devices.py" "$build" || [ $? = 77 ]
for bits in 128 256 512; do
  echo "subgroups of $((bits / 32)) on lavapipe"
  LP_NATIVE_VECTOR_WIDTH=$bits "$build/tests/model_device_operations" --seconds 60 || [ $? = 77 ]
  LP_NATIVE_VECTOR_WIDTH=$bits "$build/tests/model_device_experts" --seconds 20 || [ $? = 77 ]
done

layer=VK_LAYER_KHRONOS_validation
if ! ls /usr/share/vulkan/explicit_layer.d /etc/vulkan/explicit_layer.d 2>/dev/null | grep -qi khronos_validation; then
  echo "skipped: $layer is not installed"
  exit 0
fi
said=$(mktemp)
trap 'rm -f "$said"' EXIT
# What the layers find is printed, and changes no exit status.
validated() {
  echo "under validation layers: $(basename "$1")"
  VK_INSTANCE_LAYERS=$layer VK_LAYER_ENABLES=VK_VALIDATION_FEATURE_ENABLE_SYNCHRONIZATION_VALIDATION_EXT "$@" >"$said" 2>&1 ||
    [ $? = 77 ] || { cat "$said" >&2; exit 1; }
  ! grep -A8 -e 'Validation ' -e VUID- -e SYNC- "$said" >&2
}
validated "$build/tests/model_device_operations" --seconds 0
validated "$build/tests/model_device_experts" --seconds 0
validated "$build/tests/model_device_start"
validated "$build/setun" run models/setun-tales-7m -p "One day" -n 8 --temp 0.8 --top-k 20 --seed 3 -b 16 -c 256 \
  --device vulkan,cpu
validated "$build/tests/model_backends"
