// Which queues of a device compute and copy: families as drivers list them.
#include "backend/vulkan/vk.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

enum {
  G = VK_QUEUE_GRAPHICS_BIT,
  C = VK_QUEUE_COMPUTE_BIT,
  T = VK_QUEUE_TRANSFER_BIT,
  S = VK_QUEUE_SPARSE_BINDING_BIT,
  P = VK_QUEUE_PROTECTED_BIT,
  DECODE = 0x20, // of video
  MOST = 6
};

typedef struct {
  const char *device;
  struct {
    VkQueueFlags flags;
    uint32_t count;
  } families[MOST];
  st_vk_places expected;
} row;

static const row rows[] = {
    {"lavapipe: one queue", {{G | C | T, 1}}, {{0, 0}, {0, 0}}},
    {"integrated: one family", {{G | C | T | S, 4}}, {{0, 0}, {0, 1}}},
    {"a family that only copies", {{G | C | T | S, 16}, {T | S, 2}, {C | T | S, 8}}, {{0, 0}, {1, 0}}},
    {"families of video before it", {{G | C | T, 1}, {DECODE | T, 1}, {T | S | P, 2}}, {{0, 0}, {2, 0}}},
    {"families of video instead", {{G | C | T, 1}, {DECODE | T, 1}}, {{0, 0}, {0, 0}}},
    {"asynchronous computing", {{G | C | T, 1}, {C | T, 4}}, {{0, 0}, {1, 0}}},
    {"a family that computes behind others", {{T, 1}, {G | T, 1}, {C, 2}}, {{2, 0}, {0, 0}}},
    {"a family without queues", {{G | C | T, 2}, {T, 0}}, {{0, 0}, {0, 1}}},
    {"nothing computes", {{G | T, 1}, {T, 1}}, {{UINT32_MAX, 0}, {UINT32_MAX, 0}}},
};

static void places(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    VkQueueFamilyProperties families[MOST] = {0};
    uint32_t n = 0;
    for (; n < MOST && rows[i].families[n].flags; n++) {
      families[n].queueFlags = rows[i].families[n].flags;
      families[n].queueCount = rows[i].families[n].count;
    }
    st_vk_places found = st_vk_choose_places(families, n), expected = rows[i].expected;
    if (found.compute.family != expected.compute.family || found.compute.index != expected.compute.index ||
        found.copy.family != expected.copy.family || found.copy.index != expected.copy.index) {
      fail_msg("%s: found %d.%u and %d.%u", rows[i].device, (int)found.compute.family, found.compute.index,
               (int)found.copy.family, found.copy.index);
    }
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(places)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
