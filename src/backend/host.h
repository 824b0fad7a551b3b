// What a device does not do itself, the host does: the operations that a backend leaves out, computed by the CPU
// backend on copies of the device's arrays. So a new backend begins with matrices and products, and takes the other
// operations over one by one.
//
// Its objects begin with these, as their first member: a pointer to the one is a pointer to the other. Each is opened
// and closed with what it is the beginning of; to close one that is zero does nothing.
#ifndef SETUN_BACKEND_HOST_H
#define SETUN_BACKEND_HOST_H

#include "backend/backend.h"

typedef struct st_host_device { // of st_device
  st_device *cpu;
} st_host_device;

typedef struct st_host_vector { // of st_dvector
  st_dvector *cpu;
} st_host_vector;

typedef struct st_host_queue { // of st_queue
  const st_backend *backend;   // whose `read` and `write` copy arrays
  st_queue *cpu;
  float *buffer; // [capacity] what is copied
  size_t capacity;
  setun_error error; // of the first copy that failed since the last error was given back
} st_host_queue;

typedef struct st_host_array { // of st_array
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

// The error of a copy that failed, once: what `finish` and `read` ask first.
setun_status st_host_finish(st_queue *queue, setun_error *err);

// Fills in what the backend leaves out: each function that is NULL and optional (backend.h).
void st_host_complete(st_backend *backend);

#endif
