#!/bin/sh
# All golden models on each device that can be used here, resident and streamed; and kernels in subgroups of 4, 8 and 16
# invocations, which Mesa's lavapipe can be told to have.
# usage: tools/check_devices.sh BUILD
set -eu
build=$1
"$build/tests/model_backends" --all
for bits in 128 256 512; do
  echo "subgroups of $((bits / 32)) on lavapipe"
  LP_NATIVE_VECTOR_WIDTH=$bits "$build/tests/model_device_operations" --seconds 60 || [ $? = 77 ]
done
