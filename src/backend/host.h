// The host's replacements for operations that a backend lacks, computed by the CPU backend on copies of the device's
// arrays. A new backend can thus begin with matrices and products, and add the other operations one by one.
//
// The backend's objects have these as their first member, so that a pointer to one is a pointer to the other. Each is
// opened and closed together with its object; closing one that is zero does nothing.
#ifndef SETUN_BACKEND_HOST_H
#define SETUN_BACKEND_HOST_H

#include "backend/backend.h"

typedef struct st_host_device { // first member of st_device
  st_device *cpu;
} st_host_device;

typedef struct st_host_vector { // first member of st_dvector
  st_dvector *cpu;
} st_host_vector;

typedef struct st_host_queue { // first member of st_queue
  const st_backend *backend;   // its `read` and `write` copy arrays
  st_queue *cpu;
  float *buffer; // [capacity] the copy
  size_t capacity;
  setun_error error; // of the first copy that failed since the last error was returned
} st_host_queue;

typedef struct st_host_array { // first member of st_array
  st_array *cpu;
  size_t width;
} st_host_array;

setun_status st_host_device_open(st_host_device *device, const st_device_options *options, setun_error *err);
void st_host_device_close(st_host_device *device);
setun_status st_host_vector_open(st_host_vector *vector, st_device *device, const float *values, size_t n,
                                 setun_error *err);
void st_host_vector_close(st_host_vector *vector);
setun_status st_host_queue_open(st_host_queue *queue, const st_backend *backend, st_device *device,
                                const st_queue_options *options, setun_error *err);
void st_host_queue_close(st_host_queue *queue);
setun_status st_host_array_open(st_host_array *array, st_queue *queue, size_t tokens, size_t width, setun_error *err);
void st_host_array_close(st_host_array *array);

// The index of the largest number, see st_backend.argmax.
int32_t st_host_largest(const float *x, uint32_t n);
// The largest numbers, see st_backend.top.
void st_host_top(const float *row, uint32_t width, uint32_t k, int32_t *ids, float *values);

// Returns the error of a failed copy, once; `finish` and `read` call it first.
setun_status st_host_finish(st_queue *queue, setun_error *err);

// Fills in each function of the backend that is optional (backend.h) and NULL.
void st_host_complete(st_backend *backend);

#endif
