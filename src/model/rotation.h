// Weights that are stored in a rotated basis: what prism.hadamard.* (GGUF) or setun_hadamard (config.json) declares. A
// matrix W' so stored is W H of each row's blocks after signs, so that W x = W' (H (s x)): see docs/formats.md.
#ifndef SETUN_MODEL_ROTATION_H
#define SETUN_MODEL_ROTATION_H

#include "format/directory.h"
#include "format/gguf_keys.h"

#define ST_ROTATION_KEYS "prism.hadamard."       // what the keys of GGUF begin with
#define ST_ROTATION_MEMBER "setun_hadamard"      // config.json's member, an object with the same names
#define ST_ROTATION_MODEL_TYPE "setun_hadamard_" // what model_type begins with then, so that no other reader takes it

typedef struct st_rotation {
  uint32_t block;     // of the Hadamard matrix; a power of two
  bool has_signs;     // false: all are +1
  char *embedding;    // the tensor of the embedding, whose rows are rotated; NULL: they are not
  bool tied_output;   // and it is the head too, whose inputs are rotated then
  bool gdn_v_grouped; // the inputs of ssm_out are in the order of key heads
  uint32_t n_widths;  // signs, one vector for each width of inputs
  uint32_t *widths;   // [n_widths]
  float *signs;       // the vectors one after another, +1 or -1
  char **names;       // [n_names] of tensors with rotated inputs, sorted; not the embedding's
  size_t n_names;
} st_rotation;

// Reads the declaration of a model's files. *rotation is NULL where they have none, otherwise freed with
// st_rotation_free. Whatever of it is not known, or contradicts itself, is an error that names it.
setun_status st_rotation_read(const st_directory *directory, st_rotation **rotation, setun_error *err);
// Whether the tensors are there that it names, and of such shapes.
setun_status st_rotation_check(const st_rotation *rotation, const st_directory *directory, setun_error *err);
void st_rotation_free(st_rotation *rotation); // may be NULL

// Whether the tensor's inputs, or the embedding's rows, are rotated; false for NULL.
bool st_rotation_has(const st_rotation *rotation, const char *tensor);
// The signs of inputs so wide; NULL: all are +1.
const float *st_rotation_signs(const st_rotation *rotation, uint64_t width);

// Turns a row of a matrix, `width` floats, back into its own basis, rounded once. `scratch` is as wide.
void st_rotation_undo(const st_rotation *rotation, float *row, size_t width, double *scratch);

// A model_type without ST_ROTATION_MODEL_TYPE; NULL for NULL.
const char *st_rotation_plain_type(const char *model_type);

// The declaration for files with tensors of other names: `names` in the place of the old, and the embedding's.
void st_rotation_write_gguf(const st_rotation *rotation, const st_text *names, size_t n, const char *embedding,
                            st_keys *keys);
void st_rotation_write_config(const st_rotation *rotation, const st_text *names, size_t n, const char *embedding,
                              st_json *config);

#endif
