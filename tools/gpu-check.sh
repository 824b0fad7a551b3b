#!/bin/sh
# Checks Setun on this machine's first GPU in under four minutes: kernels, golden models, and a synthetic model of 2 billion
# ternary weights; writes one JSON file, for docs/gpu.md.
# usage: tools/gpu-check.sh [--build FOLDER] [-o FILE]
#   --build FOLDER  a build that was brought along (with tests); otherwise build-gpu/ is built from these sources
#   -o FILE         default gpu-check.json
# Exit status: 0, 1 when a check failed, 77 without a GPU that can be used.
set -eu
cd "$(dirname "$0")/.."
build='' device=vulkan:0 out=gpu-check.json
while [ $# -gt 0 ]; do
  case $1 in
    --build) build=$2 ;;
    -o) out=$2 ;;
    *)
      sed -n '4,7s/^# \{0,1\}//p' "$0" >&2
      exit 2
      ;;
  esac
  shift 2
done

start=$(date +%s)
if [ -z "$build" ]; then
  build=build-gpu
  cmake -S . -B "$build" -DCMAKE_BUILD_TYPE=Release -DSETUN_TESTS=ON >"$build.log" 2>&1 &&
    cmake --build "$build" -j --target setun model_device_operations model_backends >>"$build.log" 2>&1 || {
    tail -20 "$build.log" >&2
    exit 1
  }
fi
setun=$build/setun
if ! "$setun" devices --json | python3 -c 'import json, sys
sys.exit(not any(d["name"] == sys.argv[1] and "problem" not in d for d in json.load(sys.stdin)))' "$device"; then
  echo "gpu-check.sh: $device cannot be used here:" >&2
  "$setun" devices >&2
  exit 77
fi

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
# run NAME SECONDS COMMAND...: its output, exit status and seconds.
run() {
  name=$1 limit=$2 status=0 begun=$(date +%s)
  shift 2
  timeout "$limit" "$@" >"$folder/$name.out" 2>"$folder/$name.err" || status=$?
  echo "$status $(($(date +%s) - begun))" >"$folder/$name.status"
  echo "gpu-check.sh: $name: $([ "$status" = 0 ] && echo passed || echo "failed ($status)")"
}

prompt="Once upon a time there was a little"
run kernels 60 "$build/tests/model_device_operations" --seconds 10
run golden 90 "$build/tests/model_backends"
run text_cpu 20 "$setun" run models/setun-tales-7m -p "$prompt" -n 40 --temp 0 --ids
run text_gpu 20 "$setun" run models/setun-tales-7m -p "$prompt" -n 40 --temp 0 --ids --device "$device"
run count 60 "$setun" bench --synthetic 2b4t --device "$device" --count --json
run speed 90 "$setun" bench --synthetic 2b4t --device "$device" --json -r 1

python3 - "$folder" "$out" "$device" "$setun" "$(($(date +%s) - start))" <<'END'
import json, os, subprocess, sys
folder, out, device, setun, seconds = sys.argv[1:]
def read(name):
    with open(os.path.join(folder, name), encoding="utf-8", errors="replace") as file:
        return file.read()
found = [d for d in json.loads(subprocess.run([setun, "devices", "--json"], stdout=subprocess.PIPE, check=True).stdout)
         if d["name"] == device]
result = {"device": found[0], "version": subprocess.run([setun, "--version"], stdout=subprocess.PIPE).stdout.decode().strip(),
          "seconds": int(seconds), "checks": {}}
for name in ("kernels", "golden", "text_cpu", "text_gpu", "count", "speed"):
    status, took = map(int, read(name + ".status").split())
    check = result["checks"][name] = {"passed": status == 0, "seconds": took}
    if status:
        check["error"] = (read(name + ".err") or read(name + ".out"))[-2000:]
    elif name in ("count", "speed"):
        check["result"] = json.loads(read(name + ".out"))
same = read("text_cpu.out") == read("text_gpu.out")
result["checks"]["same_text"] = {"passed": same}
result["passed"] = all(c["passed"] for c in result["checks"].values())
with open(out, "w", encoding="utf-8") as file:
    json.dump(result, file, indent=1)
    file.write("\n")
print(f"{out}: {'passed' if result['passed'] else 'failed'} on {found[0]['description']}")
sys.exit(not result["passed"])
END
