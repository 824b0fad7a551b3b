// Weights that are stored in a rotated basis, as declared by prism.hadamard.* (GGUF) or setun_hadamard (config.json).
// Such a matrix W' has the signs and then the Hadamard matrix H applied to the blocks of each row of W, so that W x =
// W' (H (s x)): see docs/formats.md.
#ifndef SETUN_MODEL_ROTATION_H
#define SETUN_MODEL_ROTATION_H

#include "format/directory.h"
#include "format/gguf_keys.h"

#define ST_ROTATION_KEYS "prism.hadamard."       // prefix of the GGUF keys
#define ST_ROTATION_MEMBER "setun_hadamard"      // member of config.json, an object with the same names
#define ST_ROTATION_MODEL_TYPE "setun_hadamard_" // prefix of model_type then, so that other readers refuse it

typedef struct st_rotation {
  uint32_t block;     // of the Hadamard matrix; a power of two
  bool has_signs;     // false: all are +1
  char *embedding;    // the embedding's tensor, if its rows are rotated; else NULL
  bool tied_output;   // the embedding is also the head, whose inputs are then rotated
  bool gdn_v_grouped; // the inputs of ssm_out are in the order of key heads
  uint32_t n_widths;  // sign vectors, one for each width of inputs
  uint32_t *widths;   // [n_widths]
  float *signs;       // the vectors, concatenated, +1 or -1
  char **names;       // [n_names] tensors with rotated inputs, sorted; without the embedding
  size_t n_names;
} st_rotation;

// Reads the declaration of a model's files. *rotation is NULL where they have none, otherwise freed with
// st_rotation_free. Unknown or contradictory keys are errors that name them.
setun_status st_rotation_read(const st_directory *directory, st_rotation **rotation, setun_error *err);
// Checks that the tensors that it names exist and have suitable shapes.
setun_status st_rotation_check(const st_rotation *rotation, const st_directory *directory, setun_error *err);
void st_rotation_free(st_rotation *rotation); // may be NULL

// Whether the tensor's inputs, or the embedding's rows, are rotated; false for NULL.
bool st_rotation_has(const st_rotation *rotation, const char *tensor);
// The signs for inputs of this width; NULL: all are +1.
const float *st_rotation_signs(const st_rotation *rotation, uint64_t width);

// Transforms a row of a matrix, `width` floats, back to its original basis, rounded once. `scratch` has the same width.
void st_rotation_undo(const st_rotation *rotation, float *row, size_t width, double *scratch);

// A model_type without ST_ROTATION_MODEL_TYPE; NULL for NULL.
const char *st_rotation_plain_type(const char *model_type);

// The declaration for files with other tensor names: replaces them by `names` and `embedding`.
void st_rotation_write_gguf(const st_rotation *rotation, const st_text *names, size_t n, const char *embedding,
                            st_keys *keys);
void st_rotation_write_config(const st_rotation *rotation, const st_text *names, size_t n, const char *embedding,
                              st_json *config);

#endif
